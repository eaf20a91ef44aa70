package server

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// errUnfinished is what the parts of this package answer that are not written yet.
var errUnfinished = errors.New("origin/server: not finished")

// Server is the API server. Its methods are safe for concurrent use.
type Server struct {
	opts Options
}

// New builds a server; nothing of it runs, and nothing is written, before Start.
// ctx bounds the building only.
func New(ctx context.Context, opts Options) (*Server, error) {
	return nil, errUnfinished
}

// Start runs the server: it writes what has to exist (namespaces, roles, ...) and
// returns when requests are served completely. ctx bounds the starting only; what
// runs afterwards ends with Close.
func (s *Server) Start(ctx context.Context) error {
	return errUnfinished
}

// Handler is the complete API: authentication, impersonation, authorization,
// deadlines, warnings and all groups. It may be served before Start has returned
// and then answers as kube-apiserver does before it is ready.
//
// It authenticates by, in this order: the Authorization header, the client
// certificate in req.TLS, then the user that the request's context holds (WithUser),
// and else takes the request for an anonymous one. A context's user is thus what
// an in-process connection vouches for, and a client's own token wins over it.
//
// Watches need a ResponseWriter that flushes; exec, attach, port-forward and proxied
// upgrades one that hijacks.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, errUnfinished.Error(), http.StatusServiceUnavailable)
	})
}

// Loopback is a configuration for clients in this process: they call the Handler
// without a socket, as system:apiserver in system:masters. Streams other than
// watches and logs (upgrades) cannot be made through it.
func (s *Server) Loopback() *rest.Config {
	return nil
}

// Close ends watches and everything that runs, and waits for it. The engine stays
// open.
func (s *Server) Close() error {
	return nil
}

type userKey struct{}

// WithUser returns a context whose requests are made by u, unless they carry
// credentials of their own. Only code of this process can make one.
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// Privileged is the user of Loopback: system:apiserver in system:masters.
func Privileged() user.Info {
	return &user.DefaultInfo{
		Name:   user.APIServerUser,
		Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup},
	}
}
