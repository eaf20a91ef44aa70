package upstream

import (
	"context"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// standing says what may be expected of a server, the better the smaller.
//
//	             no connection                  it answers again
//	  +--------------------------------> down ---------+
//	  |                                                v
//	ready <---- /readyz says so ---- unready <---------+
//	  |                                 ^              ^
//	  +-- /readyz fails, shutting down -+              |
//	  |                                                |
//	  +-- no sign of life for a time --> silent -------+
type standing int32

const (
	ready   standing = iota // or not asked yet
	unready                 // it answers, but is starting, shutting down or in trouble
	down                    // no connection can be made
	silent                  // nothing is heard of it any more
)

func (s standing) String() string { return [...]string{"ready", "not ready", "down", "silent"}[s] }

// apiServer is one of several API servers of a cluster. It is safe for concurrent use.
type apiServer struct {
	set  *servers
	log  *slog.Logger
	base *url.URL // scheme and host
	host string   // what requests say in their Host
	// spare: it is for when there is no other.
	spare bool
	pools []*pool // by index of styles
	rank  uint64  // of two that are equal otherwise the lower is preferred

	is      atomic.Int32 // standing
	since   atomic.Int64 // when it became ready again, unix nanoseconds; 0: it always was
	shunned atomic.Int64 // until when it is avoided, because its connections broke
	broken  atomic.Int32 // connections in a row
	contact atomic.Int64 // last sign of life, unix nanoseconds
	// under way: requests that are soon over, and those that last.
	short, long atomic.Int64
	dead        dead // what is known of its feeds' connections
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

// now is the server's standing.
func (s *apiServer) now(at int64) standing {
	is := standing(s.is.Load())
	if is == ready && s.shunned.Load() > at {
		return unready
	}
	return is
}

// load is how much there is to do for the server, of one kind, for its share.
func (s *apiServer) load(long bool, at int64) float64 {
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
func (s *apiServer) sign() { s.contact.Store(s.set.c.now().UnixNano()) }

// answered records an answer to a request, or to a look.
func (s *apiServer) answered(look bool) {
	s.sign()
	if look {
		return
	}
	if s.broken.Load() != 0 {
		s.broken.Store(0)
	}
	if is := standing(s.is.Load()); is == down || is == silent {
		s.look()
	}
}

// failed records a request without an answer.
func (s *apiServer) failed(err error, connected, written bool) {
	switch {
	case !connected || unconnected(err):
		s.become(down, err)
	case !written:
		// It may be the request that cannot be sent: a head may be larger than the server
		// takes over HTTP/2. No client says by that which servers are avoided.
	case s.broken.Add(1) >= brokenMost:
		s.broken.Store(0)
		s.shunned.Store(s.set.c.now().Add(shunFor).UnixNano())
		s.counts.ejections.Inc()
		s.log.Warn("an API server breaks its connections again and again, it is avoided for a while", "error", err)
		s.set.prefer()
	}
	s.look()
}

// look asks for a look at the server soon.
func (s *apiServer) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// become records what was found out, and does what follows from it.
func (s *apiServer) become(next standing, why error) {
	s.mu.Lock()
	was := standing(s.is.Load())
	if was == next || s.mu.retired || was == silent && next == down {
		s.mu.Unlock()
		return
	}
	if next == ready {
		s.since.Store(s.set.c.now().UnixNano())
	}
	s.is.Store(int32(next))
	if s.mu.gone != nil {
		s.mu.gone.Stop()
		s.mu.gone = nil
	}
	if next == silent {
		s.mu.gone = time.AfterFunc(s.set.patience(), s.abandon)
	}
	s.mu.Unlock()

	s.tell(was, next, why)
	s.set.prefer()
	if next == silent {
		// A write that was sent may still be answered, and nobody may send it again.
		s.cut(errSilent, func(a *attempt) bool { return a.repeatable || !a.connected.Load() })
	}
	if next >= down {
		s.set.lost()
		select {
		case s.set.missed <- struct{}{}:
		default:
		}
	}
}

// tell counts and logs a change.
func (s *apiServer) tell(was, next standing, why error) {
	up := 0.0
	if next == ready {
		up = 1
	}
	s.counts.up.Set(up)
	if was == ready {
		s.counts.ejections.Inc()
		s.log.Warn("an API server is "+next.String()+", requests go to others", "error", why)
		return
	}
	s.log.Info("an API server is "+next.String(), "before", was.String(), "error", why)
}

// abandon ends all that waits for a server that stays silent.
func (s *apiServer) abandon() {
	if standing(s.is.Load()) == silent {
		s.cut(errSilent, func(*attempt) bool { return true })
	}
}

// cut ends the attempts that match. Connections that were upgraded stay.
func (s *apiServer) cut(cause error, match func(*attempt) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.mu.attempts {
		if !a.upgraded.Load() && match(a) {
			a.cancel(cause)
		}
	}
}

func (s *apiServer) begin(a *attempt) {
	if !a.look {
		s.counts.requests.Inc()
		s.counts.outstanding.Inc()
		s.underWay(a).Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.attempts[a] = struct{}{}
}

func (s *apiServer) end(a *attempt) {
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

func (s *apiServer) underWay(a *attempt) *atomic.Int64 {
	if a.long {
		return &s.long
	}
	return &s.short
}

// leave is called when the server is none of the cluster's any more. What is under way
// goes on, but for feeds.
func (s *apiServer) leave() {
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
func (s *apiServer) close() {
	for _, p := range s.pools {
		p.CloseIdleConnections()
	}
	for _, other := range *s.set.all.Load() {
		if other.base.Host == s.base.Host {
			return // it is there again
		}
	}
	s.set.c.metrics.servers.forget(s.base.Host)
}
