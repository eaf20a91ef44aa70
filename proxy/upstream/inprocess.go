package upstream

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/inprocess"
)

// InProcess is an upstream in this process. It is called without a connection, and trusts the
// Client to say who sent a request.
type InProcess struct {
	// Handler serves requests as kube-apiserver does.
	Handler http.Handler
	// WithUser returns a context in which Handler treats a request as u's. With nil the request is
	// the gateway's own, which may do everything.
	WithUser func(ctx context.Context, u user.Info) context.Context
	// Track is for ImmediateSource: it returns a context for Handler, and the Progress of the watch
	// that is served with that context.
	Track func(ctx context.Context) (context.Context, Progress)
}

// Progress reports the progress of one watch of an upstream in this process.
type Progress interface {
	// Current implements source.ImmediateSource.Progress for this watch.
	Current(ctx context.Context) (last, current uint64, shared bool, err error)
}

// localHost is the address of an upstream in this process, which is never dialed.
const localHost = "in-process"

// local is the upstream in this process.
type local struct {
	*InProcess
	transport *inprocess.Transport
}

// ownTransport sends requests as the gateway.
type ownTransport struct{ l *local }

// RoundTrip implements http.RoundTripper.
func (t ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.l.transport.RoundTrip(req.WithContext(t.l.WithUser(req.Context(), nil)))
}
