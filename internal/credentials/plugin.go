// Package credentials bounds how long requests wait for client-go's credential plugins.
package credentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubeweir/kubeweir/internal/flight"
)

// ErrSilent means that a credential plugin does not return.
var ErrSilent = errors.New("the credential plugin of the kubeconfig does not return")

// Plugin provides the credentials of a client-go credential plugin. client-go runs the plugin, or
// requests a token from an OIDC provider, for as long as that takes, even if the request that needs
// it is canceled, and makes others wait behind a mutex. So Plugin calls it in a goroutine of its
// own, of which there is at most one. Requests wait for that goroutine until their context ends;
// once it has taken longer than timeout they fail at once. Nobody waits for the goroutine's end.
// Plugin is safe for concurrent use.
type Plugin struct {
	// chain is client-go's, in front of asked. cert is its current certificate, nil if it never has
	// one.
	chain   http.RoundTripper
	cert    func() (*tls.Certificate, error)
	timeout time.Duration
	log     *slog.Logger

	calls flight.Group[struct{}, credentials]
	// last was returned last. The upstream has since responded to refused with a 401.
	last, rejected atomic.Pointer[credentials]
	stuck          atomic.Bool
}

// credentials are the credentials of one request.
type credentials struct {
	authorization string // the Authorization header
	cert          *tls.Certificate
}

// Take removes the plugin from a configuration, which then gets its credentials from the returned
// Plugin. It returns nil if there is no plugin.
func Take(config *transport.Config, timeout time.Duration, log *slog.Logger) *Plugin {
	if config.WrapTransport == nil {
		return nil
	}
	p := &Plugin{timeout: timeout, log: log}
	p.chain = config.WrapTransport(requested{p})
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return &transported{p, rt} }
	if holder := config.TLS.GetCertHolder; holder != nil {
		p.cert = holder.GetCert
		config.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: p.certificate}
	}
	return p
}

// Client returns the client of client-go for a configuration. Its requests wait for the plugin no
// longer than timeout.
func Client(cfg *rest.Config, timeout time.Duration, log *slog.Logger) (*http.Client, error) {
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	Take(config, timeout, log)
	rt, err := transport.New(config)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt}, nil
}

// Stuck reports whether requests currently get no credentials. A nil Plugin is never stuck.
func (p *Plugin) Stuck() bool { return p != nil && p.stuck.Load() }

// certificate returns the client certificate of a new connection. The request that needs the
// connection has just been given its credentials.
func (p *Plugin) certificate() (*tls.Certificate, error) {
	if last := p.last.Load(); last != nil {
		return last.cert, nil
	}
	return nil, nil
}

// get returns the current credentials.
func (p *Plugin) get(ctx context.Context) (credentials, error) {
	if p.stuck.Load() {
		return credentials{}, ErrSilent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, ErrSilent)
	defer cancel()
	out, _, err := p.calls.Do(ctx, struct{}{}, p.call)
	return out, err
}

// call calls the plugin.
func (p *Plugin) call(ctx context.Context) (credentials, error) {
	if err := ctx.Err(); err != nil {
		return credentials{}, err // all waiting requests have been canceled
	}
	defer p.time()()
	// client-go renews rejected credentials when it sees the 401, and returns the new ones the next
	// time.
	for {
		out, renewed, err := p.handOut()
		if err != nil {
			return out, err
		}
		p.last.Store(&out)
		if !renewed {
			return out, nil
		}
		p.rejected.Store(nil)
	}
}

// handOut lets client-go set credentials on a request, and reports to it if they were rejected.
func (p *Plugin) handOut() (out credentials, rejected bool, err error) {
	req := (&http.Request{Method: http.MethodGet, Header: make(http.Header)}).WithContext(context.WithValue(context.Background(), outKey{}, &out))
	resp, err := p.chain.RoundTrip(req)
	if err != nil {
		return out, false, err
	}
	return out, resp.StatusCode == http.StatusUnauthorized, nil
}

// time detects that the plugin is stuck, until stop is called.
func (p *Plugin) time() (stop func()) {
	var mu sync.Mutex
	over := false
	slow := time.AfterFunc(p.timeout, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			p.stuck.Store(true)
			p.log.Warn("credential plugin does not return, requests with the gateway's own credentials fail until it does", "waited", p.timeout)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		if slow.Stop(); p.stuck.Swap(false) {
			p.log.Info("credential plugin returned")
		}
	}
}

type outKey struct{}

// requested plays the upstream for client-go's chain.
type requested struct{ p *Plugin }

// RoundTrip implements http.RoundTripper.
func (a requested) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Context().Value(outKey{}).(*credentials)
	*out = credentials{authorization: req.Header.Get("Authorization")}
	if a.p.cert != nil {
		var err error
		if out.cert, err = a.p.cert(); err != nil {
			return nil, err
		}
	}
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}
	if rejected := a.p.rejected.Load(); rejected != nil && *rejected == *out {
		resp.StatusCode = http.StatusUnauthorized
	}
	return resp, nil
}

// transported is an http.RoundTripper with the plugin's credentials.
type transported struct {
	p    *Plugin
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t *transported) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *transported) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Authorization") != "" {
		return t.next.RoundTrip(req)
	}
	out, err := t.p.get(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if out.authorization != "" {
		with := *req
		with.Header = req.Header.Clone()
		with.Header.Set("Authorization", out.authorization)
		req = &with
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		t.p.rejected.Store(&out)
	}
	return resp, err
}
