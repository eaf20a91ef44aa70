package balance

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Something on the way to a server, such as a router that was replaced, may forget
// connections: what is sent on them is lost, and nobody says so. New ones work. The looks at
// a server find out, because they go over a connection of their own that stays open.

// forget is called when a look that began then was not answered on a connection that there
// was, and what was asked later was on a new one. Requests go over new ones from now on.
// Those that wait on an old one end, and connections of feeds that were silent all the time
// are closed.
func (s *Server) forget(began, asked time.Time) {
	s.log.Info("connections to an API server are dead while new ones work, and are replaced")
	s.renew()
	s.cut(errForgotten, func(a *attempt) bool { return a.waits() && (a.reused.Load() || a.began.Before(asked)) })
	s.set.Health.Conns().CloseSilent(&s.dead, began)
}

// mistrust is called when a look that began then was answered on a new connection, after one
// that was not on whatever connection. Requests go over new ones from now on. Those that wait
// on old ones since before are made again if they may be; the others, writes, end unless
// their connection answers.
func (s *Server) mistrust(began time.Time) {
	since := func(a *attempt) bool { return a.waits() && a.began.Before(began) }
	s.cut(errForgotten, func(a *attempt) bool { return a.repeatable && since(a) })
	old := s.renew()
	waiting := make(map[int]bool)
	s.mu.Lock()
	for a := range s.mu.attempts {
		waiting[a.balanced.style] = waiting[a.balanced.style] || since(a)
	}
	s.mu.Unlock()
	for style, t := range old {
		if t == nil || !waiting[style] || s.pools[style].Style().HTTP1 {
			continue // over HTTP/1.1 there would be another connection
		}
		s.set.Spawn(func() {
			if s.dumb(t) {
				s.cut(errForgotten, func(a *attempt) bool { return a.balanced.style == style && since(a) })
			}
		})
	}
}

// renew has requests sent over new connections from now on, but those of feeds, which are
// pinged. It returns the transports of the old ones, by style.
func (s *Server) renew() []*pool.Transports {
	old := make([]*pool.Transports, len(s.pools))
	for i, p := range s.pools {
		if p.Style().Feed {
			continue
		}
		var err error
		if old[i], err = p.Reload(); err != nil {
			s.log.Warn("connections that may be dead stay in use", "error", err)
			return old
		}
	}
	return old
}

// dumb reports whether the server does not answer on the connections that t has, while it does
// on a new one that it was asked on later: where everything is slow, the first to be asked is
// the first to be answered.
func (s *Server) dumb(t *pool.Transports) bool {
	limit := s.set.ServerSilence
	ctx, cancel := context.WithTimeout(s.set.Context, 2*limit)
	defer cancel()
	over := make(chan struct{})
	asked := s.set.Spawn(func() {
		defer close(over)
		if resp, err := t.RoundTrip(s.request(ctx, "/version")); err == nil {
			_ = resp.Body.Close()
		}
	})
	if !asked || happens(over, limit) || s.answers(ctx, "/version") == 0 {
		return false
	}
	return !happens(over, health.Grace/4)
}

// happens reports whether c is closed in time.
func happens(c <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// waits reports whether a was sent, and waits for an answer.
func (a *attempt) waits() bool { return a.connected.Load() && !a.answered.Load() }
