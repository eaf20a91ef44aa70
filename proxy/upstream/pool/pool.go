package pool

import (
	"log/slog"
	"net/http"
	"sync/atomic"
)

// Pool is a set of connections of one style, which are replaced when certificates change or when
// they may be lost. Requests in progress stay on the old connections, which end when they are idle.
type Pool struct {
	factory *Factory
	style   Style
	current atomic.Pointer[Transport]
}

// Pool returns a new pool of connections of a style.
func (f *Factory) Pool(s Style) (*Pool, error) {
	t, err := f.transport(s)
	if err != nil {
		return nil, err
	}
	p := &Pool{factory: f, style: s}
	p.current.Store(t)
	return p, nil
}

// RoundTrip implements http.RoundTripper.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	return p.current.Load().RoundTrip(req)
}

// Renew sends requests over new connections, with the certificate files as they are now.
func (p *Pool) Renew() error {
	t, err := p.factory.transport(p.style)
	if err != nil {
		return err
	}
	p.current.Swap(t).CloseIdleConnections()
	return nil
}

// RenewAll renews pools, but those of feeds, whose connections are pinged.
func RenewAll(pools []*Pool, log *slog.Logger) {
	for _, p := range pools {
		if p.style.Feed {
			continue
		}
		if err := p.Renew(); err != nil {
			log.Warn("connections that may be dead stay in use", "error", err)
			return
		}
	}
}

// CloseIdleConnections is found by client-go's wrappers.
func (p *Pool) CloseIdleConnections() { p.current.Load().CloseIdleConnections() }
