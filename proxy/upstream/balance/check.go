package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// lookPause is the least time between two looks at a server.
const lookPause = 100 * time.Millisecond

// watch looks at the server again and again until ctx ends.
func (s *Server) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kick:
		}
		began := time.Now()
		next, err := s.check(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errUnsure) {
			s.become(next, err)
		}
		if s.Standing() >= Down {
			s.set.lost()
		}
		pause := time.NewTimer(lookPause - time.Since(began))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		// Spread the load of many gateways.
		period := s.set.ServerCheck
		timer.Reset(period - lookPause + rand.N(period/10+1))
	}
}

// errUnsure says that a look found out nothing.
var errUnsure = errors.New("nothing is known")

// check asks the server whether it is ready.
func (s *Server) check(ctx context.Context) (Standing, error) {
	limit := s.set.ServerSilence
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it gave no sign of life for %v", limit))
	defer cancel()
	began := s.set.Health.Now()
	var second anew
	also := time.AfterFunc(limit/2, func() { second.ask(ctx, s) })
	defer also.Stop()
	way, rt := &routing{only: s}, s.set.CheckTransport()
	if s.doubted || s.set.Factory.PluginStuck() {
		rt = s.set.OnceTransport()
	}
	resp, err := s.ask(ctx, rt, way, "/readyz")
	switch code := int(second.ready.Load()); {
	case err == nil:
	case !way.tried.Load():
		return 0, errUnsure // there were no credentials
	case ctx.Err() == nil:
		return Down, err
	case code != 0 && !s.doubted:
		s.forget(began, began.Add(limit/2))
		return s.told(code, nil)
	case second.alive.Load():
		s.doubted = true
		return Unready, fmt.Errorf("it answers, but /readyz not for %v", limit)
	case s.contact.Load() >= began.UnixNano():
		return 0, errUnsure // it is busy
	default:
		s.doubted = true
		return Silent, context.Cause(ctx)
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	s.set.Health.Responded()
	s.dead.ProbeAnswered(began, s.set.Health.Now())
	if s.doubted {
		s.doubted = false
		s.mistrust(began)
	}
	return s.told(resp.StatusCode, said)
}

// told is what /readyz says.
func (s *Server) told(code int, said []byte) (Standing, error) {
	switch code {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return Ready, nil // or not for us to know: requests will tell
	}
	return Unready, fmt.Errorf("/readyz answers %d: %.200q", code, said)
}

// anew is what a server answers on new connections while it does not on one that there was.
// If that is the same, the connection is dead. While its store stands still, a server waits
// for that before it says that it is not ready; it is asked for something else, too.
type anew struct {
	alive atomic.Bool  // it answers what it knows by itself
	ready atomic.Int32 // what code /readyz answers, 0 for none
}

// ask asks both, the second for half of what is left, so that the other connection has time
// to show that it lives.
func (n *anew) ask(ctx context.Context, s *Server) {
	s.set.Spawn(func() { n.alive.Store(s.answers(ctx, "/version") != 0) })
	s.set.Spawn(func() {
		ctx, cancel := context.WithTimeout(ctx, s.set.ServerSilence/4)
		defer cancel()
		n.ready.Store(int32(s.answers(ctx, "/readyz")))
	})
}

// answers returns the code that the server answers on a new connection, 0 if it does not.
func (s *Server) answers(ctx context.Context, path string) int {
	resp, err := s.ask(ctx, s.set.OnceTransport(), &routing{only: s}, path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	s.set.Health.Responded()
	return resp.StatusCode
}

// ask sends a look.
func (s *Server) ask(ctx context.Context, rt http.RoundTripper, way *routing, path string) (*http.Response, error) {
	return rt.RoundTrip(s.request(withRouting(ctx, way), path))
}

// request is the gateway's own for path.
func (s *Server) request(ctx context.Context, path string) *http.Request {
	u := *s.base
	u.Path = path
	return (&http.Request{
		Method: http.MethodGet, URL: &u, Host: s.host, Header: http.Header{"User-Agent": {s.set.Agent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
}
