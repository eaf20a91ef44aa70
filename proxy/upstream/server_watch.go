package upstream

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
func (s *apiServer) watch(ctx context.Context) {
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
		if standing(s.is.Load()) >= down {
			s.set.lost()
		}
		pause := time.NewTimer(lookPause - time.Since(began))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		// Spread the load of many gateways.
		period := s.set.c.limits.ServerCheck
		timer.Reset(period - lookPause + rand.N(period/10+1))
	}
}

// errUnsure says that a look found out nothing.
var errUnsure = errors.New("nothing is known")

// check asks the server whether it is ready.
func (s *apiServer) check(ctx context.Context) (standing, error) {
	limit := s.set.c.limits.ServerSilence
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it gave no sign of life for %v", limit))
	defer cancel()
	began := time.Now().UnixNano()
	// While its store stands still, a server waits for that before it says that it is not
	// ready. It is asked for something else then.
	var alive atomic.Bool
	also := time.AfterFunc(limit/2, func() { s.set.c.spawn(func() { alive.Store(s.answers(ctx)) }) })
	defer also.Stop()
	way, rt := &routing{only: s}, s.set.c.ownDirect
	if s.doubted {
		rt = s.set.c.prober
	}
	resp, err := s.ask(ctx, rt, way, "/readyz")
	switch {
	case err == nil:
	case ctx.Err() == nil:
		return down, err
	case !way.tried.Load():
		return 0, errUnsure // the credentials were waited for
	case alive.Load():
		s.doubted = true
		return unready, fmt.Errorf("it answers, but /readyz not for %v", limit)
	case s.contact.Load() >= began:
		return 0, errUnsure // it is busy
	default:
		s.doubted = true
		return silent, context.Cause(ctx)
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	s.set.c.life.sign()
	if s.doubted {
		s.doubted = false
		s.renew()
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return ready, nil // or not for us to know: requests will tell
	}
	return unready, fmt.Errorf("/readyz answers %s: %.200q", resp.Status, said)
}

// answers reports whether the server answers on a new connection what it knows by itself.
func (s *apiServer) answers(ctx context.Context) bool {
	resp, err := s.ask(ctx, s.set.c.prober, &routing{only: s}, "/version")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	s.set.c.life.sign()
	return true
}

// ask sends a look.
func (s *apiServer) ask(ctx context.Context, rt http.RoundTripper, way *routing, path string) (*http.Response, error) {
	u := *s.base
	u.Path = path
	return rt.RoundTrip((&http.Request{
		Method: http.MethodGet, URL: &u, Host: u.Host, Header: http.Header{"User-Agent": {s.set.c.agent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(withRouting(ctx, way)))
}

// renew lets requests go over new connections from now on, but those of feeds, which are
// pinged: a look was answered on a new one after one that was not on an old one. Something
// on the way may have forgotten the old ones, and each would be waited for.
func (s *apiServer) renew() {
	for _, p := range s.pools {
		if p.style.track != nil {
			continue
		}
		if err := p.reload(); err != nil {
			s.log.Warn("connections that may be dead stay in use", "error", err)
			return
		}
	}
}
