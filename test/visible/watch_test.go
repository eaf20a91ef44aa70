package visible

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// watchesPerState is the number of watches that are open while permissions change.
const watchesPerState = 4

// openWatch is an open watch, with the namespaces that were visible when it was opened.
type openWatch struct {
	request *request
	before  expectation
	stream  *stream
	events  chan event // closed when the watch has ended
	ended   time.Time  // set before events is closed
}

// openSome opens watches of users who see only some namespaces.
func (b *bench) openSome(ctx context.Context, random *rand.Rand) (open []*openWatch) {
	b.t.Helper()
	for range 10 * watchesPerState {
		r := randomRequest(random)
		if !r.watch || len(r.selectors) > 0 {
			continue
		}
		before, err := b.oracle.expect(ctx, r)
		must(b.t, err)
		if before.whole || before.rejected {
			continue
		}
		s, err := b.gateway.watch(ctx, r)
		must(b.t, err)
		if _, err := s.initial(); err != nil {
			b.t.Errorf("%v: %d %v", r, s.status, err)
			s.close()
			continue
		}
		w := &openWatch{request: r, before: before, stream: s, events: make(chan event, 1000)}
		go func() {
			defer close(w.events)
			for {
				e, err := s.next()
				if err != nil {
					w.ended = time.Now()
					return
				}
				w.events <- e
			}
		}()
		if open = append(open, w); len(open) == watchesPerState {
			break
		}
	}
	return open
}

// follow checks that a watch has ended with 410 if its visible namespaces have changed, and
// otherwise is still open.
func (b *bench) follow(ctx context.Context, w *openWatch, changed time.Time) {
	b.t.Helper()
	defer w.stream.close()
	after, err := b.oracle.expect(ctx, w.request)
	must(b.t, err)
	if !after.whole && slices.Equal(after.in, w.before.in) {
		b.left++
		select {
		case e, more := <-w.events:
			// A role may have differed briefly, because aggregation takes time. That may have ended the
			// watch.
			if more && e.code != http.StatusGone {
				b.t.Errorf("%v: the namespaces are unchanged, but the watch received %+v", w.request, e)
			}
		default:
		}
		return
	}
	b.ended++
	for {
		select {
		case e, more := <-w.events:
			switch {
			case !more:
				b.t.Errorf("%v: the watch ended without 410; visible were %q, now %q", w.request, w.before.in, after.in)
				return
			case e.code == http.StatusGone:
				<-w.events
				if !b.denies {
					b.slowest = max(b.slowest, w.ended.Sub(changed))
				}
				return
			case e.kind != "BOOKMARK":
				b.t.Errorf("%v: %+v", w.request, e)
				return
			}
		case <-time.After(settleTime):
			b.t.Error(fmt.Errorf("%v: the watch is still open; visible were %q, now %q", w.request, w.before.in, after.in))
			return
		}
	}
}
