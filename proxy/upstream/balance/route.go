package balance

import (
	"context"
	"sync/atomic"
)

// route is the routing information in the context of a request.
type route struct {
	only       *Server // whatever its standing
	preferred  bool    // to the server of the feeds if possible
	repeatable bool    // the request changes nothing, though its method may

	// tried is set, for only, when the request has reached the connection pool.
	tried atomic.Bool
}

type routeKey struct{}

func withRoute(ctx context.Context, r *route) context.Context {
	return context.WithValue(ctx, routeKey{}, r)
}

// Only sends requests with the returned context to s, whatever its standing.
func (s *Server) Only(ctx context.Context) context.Context { return withRoute(ctx, &route{only: s}) }

// Preferred sends requests with the returned context to the server of the feeds if possible, unless
// ctx already selects a server.
func Preferred(ctx context.Context) context.Context {
	if ctx.Value(routeKey{}) != nil {
		return ctx
	}
	return withRoute(ctx, &route{preferred: true})
}

// Repeatable returns a context that marks requests as free of side effects, whatever their method,
// so that they may be retried.
func Repeatable(ctx context.Context) context.Context {
	return withRoute(ctx, &route{repeatable: true})
}

// getOnce returns the status of path over a new connection, 0 if there is no response.
func (s *Server) getOnce(ctx context.Context, path string) int {
	resp, err := s.set.Requests.Once().RoundTrip(s.request(s.Only(ctx), path))
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	s.set.Health.Responded()
	return resp.StatusCode
}
