package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
)

// faultySource changes the events of the watches of backfills.
type faultySource struct {
	source.Source
	watches int
	// event returns what the n-th event of the i-th watch becomes; an error ends the watch.
	event func(i, n int, ev source.Event) ([]source.Event, error)
}

func (s *faultySource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	if !opts.Probe {
		return s.Source.Watch(ctx, res, enc, opts, handle)
	}
	i, n := s.watches, -1
	s.watches++
	return s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.Type == source.WatchAccepted {
			return handle(ev)
		}
		n++
		events, err := s.event(i, n, ev)
		for _, ev := range events {
			if err := handle(ev); err != nil {
				return err
			}
		}
		return err
	})
}

// withFaults begins with the past of usual, and two deletions at version 107.
func withFaults(t *testing.T, event func(i, n int, ev source.Event) ([]source.Event, error), f func(*testing.T, *bench)) {
	t.Helper()
	past := func(b *bench) {
		usual(b)
		b.remove("ns/a", "ns/b")
		b.create("ns/c")
		b.wrapped = &faultySource{Source: b.Source, event: event}
	}
	withBench(t, cache.Limits{}, past, f)
}

const (
	all        = "MODIFIED ns/a@103 MODIFIED ns/b@104 DELETED ns/a@105 ADDED ns/a@106 DELETED ns/a@107 DELETED ns/b@107 ADDED ns/c@108"
	events     = 7
	withLabelX = "DELETED ns/a@103 ADDED ns/b@104 ADDED ns/a@106 DELETED ns/a@107 DELETED ns/b@107"
)

var errCut = errors.New("connection reset")

// TestCut cuts the watch behind each event, also between two of one version.
func TestCut(t *testing.T) {
	for at := range events + 1 {
		for _, end := range []error{errCut, nil} {
			t.Run(fmt.Sprint(at, end), func(t *testing.T) {
				withFaults(t, func(i, n int, ev source.Event) ([]source.Event, error) {
					if i == 0 && n == at {
						return nil, errCut
					}
					return []source.Event{ev}, nil
				}, func(t *testing.T, b *bench) {
					b.expect(102, "", all)
					b.expect(102, "app=x", withLabelX)
				})
			})
		}
	}
}

func TestCutAgainAndAgain(t *testing.T) {
	cut := func(int, int, source.Event) ([]source.Event, error) { return nil, errCut }
	withFaults(t, cut, func(t *testing.T, b *bench) {
		if got, err := b.watch(t.Context(), 102, nil); !errors.Is(err, errCut) {
			t.Errorf("%s, %v", got, err)
		}
		b.expectCalls(watchFrom(102), watchFrom(102), watchFrom(102))
	})
}

// TestLaggingServer checks that the bookmark of a server that does not have all events is not the end.
func TestLaggingServer(t *testing.T) {
	for lag := range events {
		t.Run(fmt.Sprint(lag), func(t *testing.T) {
			withFaults(t, func(i, n int, ev source.Event) ([]source.Event, error) {
				switch {
				case i > 2 || n < lag:
					return []source.Event{ev}, nil
				case ev.Type == api.Bookmark:
					ev.ResourceVersion = uint64(102 + lag)
					if lag >= 5 { // between two events of version 107
						ev.ResourceVersion = 106
					}
					return []source.Event{ev}, nil
				}
				return nil, nil
			}, func(t *testing.T, b *bench) {
				b.expect(102, "", all)
				b.expect(102, "app=x", withLabelX)
			})
		})
	}
}

// TestMissingEvent checks that events that do not lead to the state of the collection are not served.
func TestMissingEvent(t *testing.T) {
	for missing := range events {
		withFaults(t, func(_, n int, ev source.Event) ([]source.Event, error) {
			if n == missing {
				return nil, nil
			}
			return []source.Event{ev}, nil
		}, func(t *testing.T, b *bench) {
			got, err := b.watch(t.Context(), 102, nil)
			// The object of the first two events has later ones, which lead to its state.
			if missing >= 2 && !errors.Is(err, store.ErrNotJoined) {
				t.Errorf("without event %d: %s, %v", missing, got, err)
			}
		})
	}
}

func TestSilentServer(t *testing.T) {
	withFaults(t, func(_, _ int, ev source.Event) ([]source.Event, error) { return nil, nil }, func(t *testing.T, b *bench) {
		b.HoldBookmarks(true)
		b.SetSilent(true)
		began := time.Now()
		if got, err := b.watch(t.Context(), 102, nil); err == nil || source.IsExpired(err) || time.Since(began) != 10*time.Second {
			t.Errorf("%s, %v after %v", got, err, time.Since(began))
		}
		b.SetSilent(false)
	})
}

func TestUpstreamDown(t *testing.T) {
	withFaults(t, func(_, _ int, ev source.Event) ([]source.Event, error) { return []source.Event{ev}, nil }, func(t *testing.T, b *bench) {
		b.SetDown(true)
		began := time.Now()
		if got, err := b.watch(t.Context(), 102, nil); err == nil || source.IsExpired(err) || time.Since(began) > time.Second {
			t.Errorf("%s, %v after %v", got, err, time.Since(began))
		}
		b.SetDown(false)
		time.Sleep(10 * time.Second)
		b.expect(102, "", all)
	})
}

// TestPanic checks that the callers get an error, and the next ones another attempt.
func TestPanic(t *testing.T) {
	withFaults(t, func(i, _ int, ev source.Event) ([]source.Event, error) {
		if i == 0 {
			panic("event")
		}
		return []source.Event{ev}, nil
	}, func(t *testing.T, b *bench) {
		if got, err := b.watch(t.Context(), 102, nil); err == nil {
			t.Error(got)
		}
		b.expect(102, "", all)
	})
}
