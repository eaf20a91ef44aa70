package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// The delay between attempts to open a stream.
	shortestPause = 10 * time.Millisecond
	longestPause  = time.Second
	// The interval of progress requests: etcd does not respond while the watch is behind, which it
	// checks every 100 ms.
	firstRepeat = time.Millisecond
	lastRepeat  = 100 * time.Millisecond
	// aheadRepeat is the longest while the watch is ahead of the store: there is no answer before the
	// store gets there, which may be never.
	aheadRepeat = 5 * time.Second
)

// repeatAfter is the wait that follows on a wait of d.
func repeatAfter(d time.Duration, ahead bool) time.Duration {
	if ahead {
		return min(2*d, aheadRepeat)
	}
	return min(2*d, lastRepeat)
}

// pauses are the waits between attempts, each twice as long as the last.
type pauses struct{ last time.Duration }

func (p *pauses) reset() { p.last = 0 }

func (p *pauses) wait(ctx context.Context) {
	p.last = min(max(2*p.last, shortestPause), longestPause)
	timer := time.NewTimer(p.last)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follow opens a stream from the watch's position on and hands its events over until it ends.
// confirmed reports whether etcd has accepted the watch.
func (w *watcher) follow() (confirmed bool, err error) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	// A member that is cut off from the others ends the stream then, instead of staying silent.
	stream, err := pb.NewWatchClient(w.engine.client.ActiveConnection()).
		Watch(clientv3.WithRequireLeader(ctx), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return false, w.ended(err)
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: w.key, RangeEnd: w.end, StartRevision: int64(w.position()) + 1,
		PrevKv: true, Fragment: true, ProgressNotify: true,
	}}})
	if err != nil {
		_, err = stream.Recv() // Send's error is only that there is one
		return false, w.ended(err)
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return confirmed, w.ended(err)
		}
		if resp.Canceled || resp.CompactRevision != 0 {
			return confirmed, w.cancelled(resp)
		}
		if resp.Created {
			if err := w.created(ctx, resp.Header); err != nil {
				return false, err
			}
			confirmed = true
			// Not before: etcd would send the answer ahead of events that wait for this confirmation.
			w.setStream(stream)
			continue
		}
		if err := w.deliver(resp); err != nil {
			return confirmed, err
		}
	}
}

func (w *watcher) setStream(s sender) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stream = s
	w.change()
}

// ended classifies the error that ended a stream.
func (w *watcher) ended(err error) error {
	err = rpctypes.Error(err)
	if w.ctx.Err() == nil {
		if errors.Is(err, rpctypes.ErrPermissionDenied) || codeOf(err) == codes.Unimplemented {
			return &endOfWatch{w.engine.translate(w.ctx, err)}
		}
		w.engine.metrics.errors.WithLabelValues("watch", reason(w.engine.translate(w.ctx, err))).Inc()
	}
	return err
}

// cancelled returns why etcd rejected or ended the watch.
func (w *watcher) cancelled(resp *pb.WatchResponse) error {
	if resp.CompactRevision != 0 {
		return &endOfWatch{fmt.Errorf("%w: at %d, the watch needs %d", storage.ErrCompacted, resp.CompactRevision, w.position()+1)}
	}
	switch resp.CancelReason {
	case rpctypes.ErrGRPCPermissionDenied.Error():
		return &endOfWatch{fmt.Errorf("etcd %s: %w", w.engine.endpoints, rpctypes.ErrPermissionDenied)}
	case rpctypes.ErrCompacted.Error(), rpctypes.ErrGRPCCompacted.Error():
		return &endOfWatch{storage.ErrCompacted}
	}
	return fmt.Errorf("etcd ended the watch: %s", resp.CancelReason) // a token that has run out, for one: the next stream has a new one
}

// created checks that this is still the same store. A restored store has lower revisions, and
// changes under revisions that were used before would never be delivered. The watcher then fails
// with ErrCompacted.
func (w *watcher) created(ctx context.Context, header *pb.ResponseHeader) error {
	if w.cluster != 0 && w.cluster != header.ClusterId {
		return &endOfWatch{fmt.Errorf("%w: etcd is another cluster", storage.ErrCompacted)}
	}
	w.cluster = header.ClusterId
	if uint64(header.Revision) < w.seen {
		// Or this member is behind the others.
		now, err := w.engine.CurrentRevision(ctx)
		if err != nil {
			return err
		}
		if now < w.seen {
			return &endOfWatch{fmt.Errorf("%w: etcd went back from revision %d to %d", storage.ErrCompacted, w.seen, now)}
		}
	}
	w.seen = max(w.seen, uint64(header.Revision))
	return nil
}

// deliver hands over the events of a message, apart from those that its continuation must complete.
func (w *watcher) deliver(resp *pb.WatchResponse) error {
	events := w.held
	w.held = nil
	for _, ev := range resp.Events {
		one, err := event((*clientv3.Event)(ev))
		if err != nil {
			return &endOfWatch{err}
		}
		events = append(events, one)
	}
	var b storage.Batch
	switch {
	case resp.Fragment:
		// The message was too long; the revision it was cut in may go on in the next.
		first := len(events)
		for first > 0 && events[first-1].KV.Revision == events[len(events)-1].KV.Revision {
			first--
		}
		events, w.held = events[:first:first], events[first:]
		if len(events) == 0 {
			return nil
		}
	case len(events) == 0:
		// Progress. Some stores that speak etcd's protocol respond with revision 0; ignore it, and old
		// revisions.
		if resp.Header == nil || uint64(resp.Header.Revision) < w.position() || resp.Header.Revision == 0 {
			return nil
		}
		b.Revision = uint64(resp.Header.Revision)
	}
	if len(events) > 0 {
		// The header's revision is beyond the events when etcd cuts a long history.
		b = storage.Batch{Events: events, Revision: events[len(events)-1].KV.Revision}
	}
	w.seen = max(w.seen, b.Revision)
	w.turn.Lock()
	defer w.turn.Unlock()
	if !w.hand(b) {
		return storage.ErrClosed
	}
	return nil
}

// progress answers RequestProgress until the watcher ends.
func (w *watcher) progress() {
	for {
		select {
		case <-w.requests:
			w.report()
		case <-w.ctx.Done():
			return
		case <-w.done:
			return
		}
	}
}

// report requests progress from etcd until Next has returned a batch of at least the revision that
// was current at the beginning. A member of the cluster may be behind, and a request may get no
// response.
func (w *watcher) report() {
	w.mu.Lock()
	from := w.mu.handed
	w.mu.Unlock()
	requested := w.request()
	target, ok := w.target()
	if !ok {
		return
	}
	repeat, again := firstRepeat, false
	timer := time.NewTimer(repeat)
	defer timer.Stop()
	for {
		w.mu.Lock()
		handed, handing, position, changed := w.mu.handed, w.mu.handing, w.mu.position, w.mu.changed
		reopened := w.mu.stream != nil && w.mu.stream != requested
		w.mu.Unlock()
		switch {
		case handed > from && position >= target:
			return
		case position == target:
			// Nothing has changed after the position. etcd reports this only after a change since
			// the watch began.
			w.reportIdle(target, handed)
			return
		case reopened || handed > from && !again:
			// The batch was the response to an earlier request, or older events.
			again = again || !reopened
			requested = w.request()
		}
		select {
		case <-changed:
		case <-timer.C:
			// While Next does not take a batch, responses queue up behind it: send no more
			// requests.
			if !handing {
				requested = w.request()
			}
			repeat = repeatAfter(repeat, position > target)
			timer.Reset(repeat)
		case <-w.ctx.Done():
			return
		case <-w.done:
			return
		}
	}
}

// reportIdle hands over that nothing happened up to the position, unless something was handed over
// since.
func (w *watcher) reportIdle(position, handed uint64) {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.mu.Lock()
	still := w.mu.handed == handed
	w.mu.Unlock()
	if still {
		w.hand(storage.Batch{Revision: position})
	}
}

// request requests the watch's progress from etcd and returns the stream that it used, nil while
// there is none.
func (w *watcher) request() sender {
	w.mu.Lock()
	stream := w.mu.stream
	w.mu.Unlock()
	if stream == nil {
		return nil
	}
	// run sees an error as the end of the stream.
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	return stream
}

// target is the store's revision, waited for while it cannot be read.
func (w *watcher) target() (uint64, bool) {
	var pause pauses
	for {
		rev, err := w.engine.CurrentRevision(w.ctx)
		if err == nil {
			return rev, true
		}
		pause.wait(w.ctx)
		if w.ctx.Err() != nil {
			return 0, false
		}
	}
}
