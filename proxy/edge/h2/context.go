package h2

import "github.com/kubeweir/kubeweir/proxy/edge"

// requestContext is the context of an HTTP/2 request. Who asks for Done is going to wait, so
// that the connection is read by another goroutine from then on.
type requestContext struct {
	edge.Context
	// reads is the connection that is not read while the request is served, in turn.
	reads *conn
	turn  uint64
}

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} {
	done, first := r.Start()
	if first && r.reads != nil {
		r.reads.takeOver(r.turn)
	}
	return done
}
