// Package credentials stands between requests and credential plugins of client-go.
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

// ErrSilent says that a credential plugin does not come to an end.
var ErrSilent = errors.New("the credential plugin of the kubeconfig does not come to an end")

// Plugin hands out what a credential plugin of client-go says. client-go runs that, or asks an
// OIDC provider, for as long as it takes, whatever becomes of the request that wants it, and
// lets others wait behind a mutex. So it is asked in a goroutine of its own, of which there is
// one at most. Requests wait for that as long as they are wanted, and while it takes longer
// than patience they do not wait at all; who owns it need not wait for its end. It is safe for
// concurrent use.
type Plugin struct {
	// chain is client-go's, in front of asked; cert the certificate that it has now, nil if it
	// never has one.
	chain    http.RoundTripper
	cert     func() (*tls.Certificate, error)
	patience time.Duration
	log      *slog.Logger

	asks flight.Group[struct{}, credentials]
	// last was handed out last, the upstream has answered 401 to refused since.
	last, refused atomic.Pointer[credentials]
	stuck         atomic.Bool
}

// credentials are those of a request.
type credentials struct {
	authorization string // its header
	cert          *tls.Certificate
}

// Take takes the plugin out of a configuration, which gets credentials through it then; nil if
// there is none.
func Take(config *transport.Config, patience time.Duration, log *slog.Logger) *Plugin {
	if config.WrapTransport == nil {
		return nil
	}
	p := &Plugin{patience: patience, log: log}
	p.chain = config.WrapTransport(asked{p})
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return &transported{p, rt} }
	if holder := config.TLS.GetCertHolder; holder != nil {
		p.cert = holder.GetCert
		config.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: p.certificate}
	}
	return p
}

// Client is the client of client-go for a configuration, whose plugin nobody waits for for longer
// than patience.
func Client(cfg *rest.Config, patience time.Duration, log *slog.Logger) (*http.Client, error) {
	config, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	Take(config, patience, log)
	rt, err := transport.New(config)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt}, nil
}

// Stuck reports whether requests get no credentials for the time being. Of nil they get none.
func (p *Plugin) Stuck() bool { return p != nil && p.stuck.Load() }

// certificate is what a connection is made with. The request that it is made for was given its
// credentials just now.
func (p *Plugin) certificate() (*tls.Certificate, error) {
	if last := p.last.Load(); last != nil {
		return last.cert, nil
	}
	return nil, nil
}

// get returns the credentials that count now.
func (p *Plugin) get(ctx context.Context) (credentials, error) {
	if p.stuck.Load() {
		return credentials{}, ErrSilent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, ErrSilent)
	defer cancel()
	out, _, err := p.asks.Do(ctx, struct{}{}, p.ask)
	return out, err
}

// ask asks the plugin.
func (p *Plugin) ask(ctx context.Context) (credentials, error) {
	if err := ctx.Err(); err != nil {
		return credentials{}, err // nobody waits any more
	}
	defer p.time()()
	// What the upstream has refused client-go has renewed when it hears of it, and hands out
	// the next time.
	for {
		out, renewed, err := p.handOut()
		if err != nil {
			return out, err
		}
		p.last.Store(&out)
		if !renewed {
			return out, nil
		}
		p.refused.Store(nil)
	}
}

// handOut lets client-go put credentials on a request, and tells it that they were refused if
// they were.
func (p *Plugin) handOut() (out credentials, refused bool, err error) {
	req := (&http.Request{Method: http.MethodGet, Header: make(http.Header)}).WithContext(context.WithValue(context.Background(), outKey{}, &out))
	resp, err := p.chain.RoundTrip(req)
	if err != nil {
		return out, false, err
	}
	return out, resp.StatusCode == http.StatusUnauthorized, nil
}

// time finds out whether the plugin is stuck until it is called off.
func (p *Plugin) time() (stop func()) {
	var mu sync.Mutex
	over := false
	slow := time.AfterFunc(p.patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			p.stuck.Store(true)
			p.log.Warn("the credential plugin of the kubeconfig does not come to an end; until it does, nothing is asked with the gateway's own credentials", "waited", p.patience)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		if slow.Stop(); p.stuck.Swap(false) {
			p.log.Info("the credential plugin of the kubeconfig has come to an end")
		}
	}
}

type outKey struct{}

// asked is what the plugin takes for the upstream.
type asked struct{ p *Plugin }

// RoundTrip implements http.RoundTripper.
func (a asked) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Context().Value(outKey{}).(*credentials)
	*out = credentials{authorization: req.Header.Get("Authorization")}
	if a.p.cert != nil {
		var err error
		if out.cert, err = a.p.cert(); err != nil {
			return nil, err
		}
	}
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}
	if refused := a.p.refused.Load(); refused != nil && *refused == *out {
		resp.StatusCode = http.StatusUnauthorized
	}
	return resp, nil
}

// transported is an http.RoundTripper with the plugin's credentials.
type transported struct {
	p    *Plugin
	next http.RoundTripper
}

// WrappedRoundTripper is how client-go finds what is behind it.
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
		t.p.refused.Store(&out)
	}
	return resp, err
}
