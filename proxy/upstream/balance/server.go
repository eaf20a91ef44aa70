package balance

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Standing says what may be expected of a server, the better the smaller.
//
//	             no connection                  it answers again
//	  +--------------------------------> down ---------+
//	  |                                                v
//	ready <---- /readyz says so ---- unready <---------+
//	  |                                 ^              ^
//	  +-- /readyz fails, shutting down -+              |
//	  |                                                |
//	  +-- no sign of life for a time --> silent -------+
type Standing int32

// What may be expected of a server.
const (
	Ready   Standing = iota // or not asked yet
	Unready                 // it answers, but is starting, shutting down or in trouble
	Down                    // no connection can be made
	Silent                  // nothing is heard of it any more
)

// String implements fmt.Stringer.
func (s Standing) String() string { return [...]string{"ready", "not ready", "down", "silent"}[s] }

// Server is one of several API servers of a cluster. It is safe for concurrent use.
type Server struct {
	set  *Set
	log  *slog.Logger
	base *url.URL // scheme and host
	host string   // what requests say in their Host
	// spare: it is for when there is no other.
	spare bool
	pools []*pool.Pool // by index of styles
	rank  uint64       // of two that are equal otherwise the lower is preferred

	is      atomic.Int32 // standing
	since   atomic.Int64 // when it became ready again, unix nanoseconds; 0: it always was
	shunned atomic.Int64 // until when it is avoided, because its connections broke
	broken  atomic.Int32 // connections in a row
	contact atomic.Int64 // last sign of life, unix nanoseconds
	// under way: requests that are soon over, and those that last.
	short, long atomic.Int64
	dead        health.Server // what is known of its feeds' connections
	counts      serverCounts
	kick        chan struct{} // makes the next look come at once
	retire      context.CancelFunc
	doubted     bool // the last look was not answered; of watch only

	mu struct {
		sync.Mutex
		attempts map[*attempt]struct{}
		retired  bool
		gone     *time.Timer // while it is silent
	}
}

// ramp is how long a server that has come back gets less than its share.
const ramp = 10 * time.Second

// leastShare is what it gets at first.
const leastShare = 0.1

const (
	// brokenMost is how many connections in a row may break before a server is avoided
	// whatever its /readyz says, and shunFor for how long.
	brokenMost = 5
	shunFor    = 10 * time.Second
)

// Host is the host and port of the server.
func (s *Server) Host() string { return s.base.Host }

// Standing is what looks at the server have found out.
func (s *Server) Standing() Standing { return Standing(s.is.Load()) }

// now is the server's standing, as far as others are preferred to it.
func (s *Server) now(at int64) Standing {
	is := s.Standing()
	if is == Ready && s.shunned.Load() > at {
		return Unready
	}
	return is
}

// load is how much there is to do for the server, of one kind, for its share.
func (s *Server) load(long bool, at int64) float64 {
	n := s.short.Load()
	if long {
		n = s.long.Load()
	}
	share := 1.0
	if since := s.since.Load(); since != 0 {
		share = max(leastShare, min(1, float64(at-since)/float64(ramp)))
	}
	return float64(n+1) / share
}

// sign records a sign of life.
func (s *Server) sign() { s.contact.Store(s.set.Health.Now().UnixNano()) }

// answered records an answer to a request, or to a look.
func (s *Server) answered(look bool) {
	s.sign()
	if look {
		return
	}
	if s.broken.Load() != 0 {
		s.broken.Store(0)
	}
	if is := s.Standing(); is == Down || is == Silent {
		s.look()
	}
}

// failed records a request without an answer.
func (s *Server) failed(err error, connected, written bool) {
	switch {
	case !connected || health.Unconnected(err):
		s.become(Down, err)
	case !written:
		// It may be the request that cannot be sent: a head may be larger than the server
		// takes over HTTP/2. No client says by that which servers are avoided.
	case s.broken.Add(1) >= brokenMost:
		s.broken.Store(0)
		s.shunned.Store(s.set.Health.Now().Add(shunFor).UnixNano())
		s.counts.ejections.Inc()
		s.log.Warn("an API server breaks its connections again and again, it is avoided for a while", "error", err)
		s.set.prefer()
	}
	s.look()
}

// look asks for a look at the server soon.
func (s *Server) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// become records what was found out, and does what follows from it.
func (s *Server) become(next Standing, why error) {
	s.mu.Lock()
	was := s.Standing()
	if was == next || s.mu.retired || was == Silent && next == Down {
		s.mu.Unlock()
		return
	}
	if next == Ready {
		s.since.Store(s.set.Health.Now().UnixNano())
	}
	s.is.Store(int32(next))
	if s.mu.gone != nil {
		s.mu.gone.Stop()
		s.mu.gone = nil
	}
	if next == Silent {
		s.mu.gone = time.AfterFunc(s.set.patience(), s.abandon)
	}
	s.mu.Unlock()

	s.tell(was, next, why)
	s.set.prefer()
	if next == Silent {
		// A write that was sent may still be answered, and nobody may send it again.
		s.cut(health.ErrSilent, func(a *attempt) bool { return a.repeatable || !a.connected.Load() })
	}
	if next >= Down {
		s.set.lost()
		select {
		case s.set.missed <- struct{}{}:
		default:
		}
	}
}

// tell counts and logs a change.
func (s *Server) tell(was, next Standing, why error) {
	up := 0.0
	if next == Ready {
		up = 1
	}
	s.counts.up.Set(up)
	if was == Ready {
		s.counts.ejections.Inc()
		s.log.Warn("an API server is "+next.String()+", requests go to others", "error", why)
		return
	}
	s.log.Info("an API server is "+next.String(), "before", was.String(), "error", why)
}

// abandon ends all that waits for a server that stays silent.
func (s *Server) abandon() {
	if s.Standing() == Silent {
		s.cut(health.ErrSilent, func(*attempt) bool { return true })
	}
}

// cut ends the attempts that match. Connections that were upgraded stay.
func (s *Server) cut(cause error, match func(*attempt) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.mu.attempts {
		if !a.upgraded.Load() && match(a) {
			a.cancel(cause)
		}
	}
}

func (s *Server) begin(a *attempt) {
	if !a.look {
		s.counts.requests.Inc()
		s.counts.outstanding.Inc()
		s.underWay(a).Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.attempts[a] = struct{}{}
}

func (s *Server) end(a *attempt) {
	if !a.look {
		s.counts.outstanding.Dec()
		s.underWay(a).Add(-1)
	}
	s.mu.Lock()
	delete(s.mu.attempts, a)
	idle := s.mu.retired && len(s.mu.attempts) == 0
	s.mu.Unlock()
	if idle {
		s.close()
	}
}

func (s *Server) underWay(a *attempt) *atomic.Int64 {
	if a.long {
		return &s.long
	}
	return &s.short
}

// leave is called when the server is none of the cluster's any more. What is under way
// goes on, but for feeds.
func (s *Server) leave() {
	s.mu.Lock()
	s.mu.retired = true
	if s.mu.gone != nil {
		s.mu.gone.Stop()
	}
	idle := len(s.mu.attempts) == 0
	s.mu.Unlock()
	s.retire()
	s.log.Info("an API server is none of the cluster's any more")
	s.cut(errMoved, func(a *attempt) bool { return a.feed })
	if idle {
		s.close()
	}
}

// close releases what a retired server has left.
func (s *Server) close() {
	for _, p := range s.pools {
		p.CloseIdleConnections()
	}
	for _, other := range *s.set.all.Load() {
		if other.base.Host == s.base.Host {
			return // it is there again
		}
	}
	s.set.Metrics.forget(s.base.Host)
}
