package visible

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// watchesPerState is how many watches are open while rights change.
const watchesPerState = 4

// openWatch is a watch of what was visible.
type openWatch struct {
	request *request
	before  expectation
	stream  *stream
	events  chan event // closed at the end
	ended   time.Time  // before events is closed
}

// openSome opens watches that are narrowed.
func (b *bench) openSome(ctx context.Context, random *rand.Rand) (open []*openWatch) {
	b.t.Helper()
	for range 10 * watchesPerState {
		r := randomRequest(random)
		if !r.watch || len(r.selectors) > 0 {
			continue
		}
		before, err := b.oracle.expect(ctx, r)
		must(b.t, err)
		if before.whole || before.refused {
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

// follow finds out whether a watch has ended that was to, by 410, and one that was not has not.
func (b *bench) follow(ctx context.Context, w *openWatch, changed time.Time) {
	b.t.Helper()
	defer w.stream.close()
	after, err := b.oracle.expect(ctx, w.request)
	must(b.t, err)
	if !after.whole && slices.Equal(after.in, w.before.in) {
		b.left++
		select {
		case e, more := <-w.events:
			// What a role said in between may have ended it: aggregation takes time.
			if more && e.code != http.StatusGone {
				b.t.Errorf("%v: the namespaces are the same, and it has %+v", w.request, e)
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
				b.t.Errorf("%v: it ended without 410; visible were %q, and are %q", w.request, w.before.in, after.in)
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
			b.t.Error(fmt.Errorf("%v: it goes on; visible were %q, and are %q", w.request, w.before.in, after.in))
			return
		}
	}
}
