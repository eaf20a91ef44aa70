package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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
	way := &routing{only: s}
	u := *s.base
	u.Path = "/readyz"
	req := (&http.Request{
		Method: http.MethodGet, URL: &u, Host: u.Host, Header: http.Header{"User-Agent": {s.set.c.agent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(withRouting(ctx, way))
	resp, err := s.set.c.ownDirect.RoundTrip(req)
	switch {
	case err == nil:
	case ctx.Err() == nil:
		return down, err
	case !way.tried.Load() || s.contact.Load() >= began:
		return 0, errUnsure // the credentials were waited for; or it is busy
	default:
		return silent, context.Cause(ctx)
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	s.set.c.life.sign()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return ready, nil // or not for us to know: requests will tell
	}
	return unready, fmt.Errorf("/readyz answers %s: %.200q", resp.Status, said)
}
