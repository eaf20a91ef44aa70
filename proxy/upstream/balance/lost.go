package balance

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Something on the way to a server, such as a router that was replaced, may forget connections:
// what is sent on them disappears, and nobody says so. New ones work. Checks find out, because they
// use a connection of their own that stays open.

// errLost cancels an attempt on a lost connection.
var errLost = fmt.Errorf("%w on a connection that there was", health.ErrSilent)

// replaceLost is called when a check that began then was not responded to on an open connection,
// and one that was sent at retried was, on a new connection. Requests use new connections from now
// on. Those that wait on an old one are canceled, and feed connections that were silent all the
// time are closed.
func (s *Server) replaceLost(began, retried time.Time) {
	s.log.Info("connections to an API server are dead while new ones work, and are replaced")
	s.renew()
	s.cancel(errLost, func(a *attempt) bool { return a.waits() && (a.reused.Load() || a.began.Before(retried)) })
	s.set.Health.Conns().CloseSilent(&s.health, began)
}

// replaceDoubtful is called when a check that began then was responded to on a new connection,
// after one that was not on any. Requests use new connections from now on. Those that wait on old
// ones since before are sent again if they may be. The others, writes, are canceled unless their
// connection responds.
func (s *Server) replaceDoubtful(began time.Time) {
	waited := func(a *attempt) bool { return a.waits() && a.began.Before(began) }
	s.cancel(errLost, func(a *attempt) bool { return a.repeatable && waited(a) })
	old := s.renew()
	waiting := make(map[int]bool)
	s.mu.Lock()
	for a := range s.mu.attempts {
		waiting[a.style] = waiting[a.style] || waited(a)
	}
	s.mu.Unlock()
	for style, t := range old {
		if t == nil || !waiting[style] || s.pools[style].Style().HTTP1 {
			continue // over HTTP/1.1 there would be another connection
		}
		s.set.Spawn(func() {
			if s.isLost(t) {
				s.cancel(errLost, func(a *attempt) bool { return a.style == style && waited(a) })
			}
		})
	}
}

// renew sends requests over new connections from now on, but those of feeds, which are pinged. It
// returns the transports of the old ones, by style.
func (s *Server) renew() []*pool.Transport {
	old := make([]*pool.Transport, len(s.pools))
	for i, p := range s.pools {
		if p.Style().Feed {
			continue
		}
		var err error
		if old[i], err = p.Renew(); err != nil {
			s.log.Warn("connections that may be dead stay in use", "error", err)
			return old
		}
	}
	return old
}

// isLost reports whether the server does not respond on the connections of t, while it does on a
// new one that it was asked on later: where everything is slow, the first request is the first to
// be responded to.
func (s *Server) isLost(t *pool.Transport) bool {
	limit := s.set.ServerSilence
	ctx, cancel := context.WithTimeout(s.set.Context, 2*limit)
	defer cancel()
	responded := make(chan struct{})
	sent := s.set.Spawn(func() {
		defer close(responded)
		if resp, err := t.RoundTrip(s.request(ctx, "/version")); err == nil {
			_ = resp.Body.Close()
		}
	})
	if !sent || isClosed(responded, limit) || s.getOnce(ctx, "/version") == 0 {
		return false
	}
	return !isClosed(responded, health.Grace/4)
}

// isClosed reports whether c is closed in time.
func isClosed(c <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
