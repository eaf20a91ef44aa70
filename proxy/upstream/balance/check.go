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

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// checkPause is the least time between two checks of a server.
const checkPause = 100 * time.Millisecond

// watch checks the server until ctx ends.
func (s *Server) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.checker.kick:
		}
		began := time.Now()
		next, err := s.inspect(ctx)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errInconclusive) {
			s.become(next, err)
		}
		if s.Standing() >= health.Down {
			s.set.reportDown()
		}
		pause := time.NewTimer(checkPause - time.Since(began))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		// Spread the load of many gateways.
		period := s.set.ServerCheck
		timer.Reset(period - checkPause + rand.N(period/10+1))
	}
}

// errInconclusive means that a check found nothing.
var errInconclusive = errors.New("nothing is known")

// inspect asks the server whether it is ready.
func (s *Server) inspect(ctx context.Context) (health.Standing, error) {
	limit := s.set.ServerSilence
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it gave no sign of life for %v", limit))
	defer cancel()
	began := s.set.Health.Now()
	var retry retriedCheck
	retrying := time.AfterFunc(limit/2, func() { retry.send(ctx, s) })
	defer retrying.Stop()
	route, rt := &route{only: s}, s.set.Requests.Check()
	if s.checker.doubted || s.set.Factory.PluginStuck() {
		rt = s.set.Requests.Once()
	}
	resp, err := rt.RoundTrip(s.request(withRoute(ctx, route), "/readyz"))
	switch code := int(retry.ready.Load()); {
	case err == nil:
	case !route.tried.Load():
		return 0, errInconclusive // there were no credentials
	case ctx.Err() == nil:
		return health.Down, err
	case code != 0 && !s.checker.doubted:
		s.replaceLost(began, began.Add(limit/2))
		return standingOf(code, nil)
	case retry.alive.Load():
		s.checker.doubted = true
		return health.NotReady, fmt.Errorf("it answers, but /readyz not for %v", limit)
	case s.health.HeardSince(began):
		return 0, errInconclusive // it is busy
	default:
		s.checker.doubted = true
		return health.Unresponsive, context.Cause(ctx)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	s.set.Health.Responded()
	s.health.ProbeResponded(began, s.set.Health.Now())
	if s.checker.doubted {
		s.checker.doubted = false
		s.replaceDoubtful(began)
	}
	return standingOf(resp.StatusCode, body)
}

// standingOf returns the standing that a response of /readyz means.
func standingOf(code int, body []byte) (health.Standing, error) {
	switch code {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return health.Ready, nil // or not for us to know: requests will tell
	}
	return health.NotReady, fmt.Errorf("/readyz answers %d: %.200q", code, body)
}

// retriedCheck holds the responses of a server on new connections while it does not respond on an
// open one. If the server responds, the open connection is lost. While its store hangs, a server
// delays the response of /readyz; therefore another path is requested as well.
type retriedCheck struct {
	alive atomic.Bool  // it responds with what it knows by itself
	ready atomic.Int32 // the status of /readyz, 0 for none
}

// send asks for both, the second for half of the time left, so that the other connection has time
// to show that it is alive.
func (r *retriedCheck) send(ctx context.Context, s *Server) {
	s.set.Spawn(func() { r.alive.Store(s.getOnce(ctx, "/version") != 0) })
	s.set.Spawn(func() {
		ctx, cancel := context.WithTimeout(ctx, s.set.ServerSilence/4)
		defer cancel()
		r.ready.Store(int32(s.getOnce(ctx, "/readyz")))
	})
}
