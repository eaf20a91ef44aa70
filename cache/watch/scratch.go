package watch

import (
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/watchmux"
)

// scratch is the memory of one goroutine that is reused by its deliveries.
type scratch struct {
	deliveries []watchmux.Delivery
	frames     form.Frames
	// queued are the streams whose frames wait to be sent together with those of other streams on
	// the same connection. since is when the first one was queued.
	queued []api.SharedWriter
	since  time.Time
}

// queuedTime and queuedStreams bound how long queued frames wait for others.
const (
	queuedTime    = 2 * time.Millisecond
	queuedStreams = 512
)

// write writes the frames, or queues them if the writer supports that.
func (sc *scratch) write(panics *contain.Panics, w api.StreamWriter) error {
	if shared, ok := w.(api.SharedWriter); ok && shared.QueueFrames(sc.frames.List()) {
		if len(sc.queued) == 0 {
			sc.since = time.Now()
		}
		sc.queued = append(sc.queued, shared)
		return nil
	}
	sc.flush(panics) // because this one may block
	return w.WriteFrames(sc.frames.List())
}

// flush sends the queued frames. A panic ends the stream that caused it: it is unknown how much of
// its frames was sent, so nothing may follow.
func (sc *scratch) flush(panics *contain.Panics) {
	for _, w := range sc.queued {
		if panics.Run("watch", w.Flush) != nil {
			_ = panics.Run("watch", w.Abort)
		}
	}
	clear(sc.queued)
	sc.queued = sc.queued[:0]
}

// flushDue sends the queued frames if they have waited long enough.
func (sc *scratch) flushDue(panics *contain.Panics) {
	if len(sc.queued) >= queuedStreams || len(sc.queued) > 0 && time.Since(sc.since) > queuedTime {
		sc.flush(panics)
	}
}
