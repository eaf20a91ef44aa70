// Package conformance sends the same requests to two servers and compares the responses: status,
// the headers that clients act on, and the bytes of the body. One of the servers is a real
// kube-apiserver, the oracle. So a case needs no expected response, only a few facts about it,
// which ensure that the case does not compare two empty or failed responses.
//
// Cases are data, grouped by topic in cases_*.go. A target is a base URL and how to reach it, so
// the same cases run against the gateway and against any other server of the same state. Assertions
// lists the documented behaviors that the cases check.
package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Target is a server to send requests to.
type Target struct {
	Name string
	// URL is the base URL, without a trailing slash.
	URL string
	// TLS trusts the server and has no client certificate.
	TLS *tls.Config
	// HTTP2 offers HTTP/2 by ALPN; otherwise the target uses HTTP/1.1.
	HTTP2 bool
	// HasPriority means that the server has a priority and fairness of its own, so all its responses
	// name flow schemas. Those of a gateway do so only if they come from its cluster.
	HasPriority bool
	// Through, if set, wraps the transport. It makes the responses of a server that lacks a feature
	// look like those of a server that has it.
	Through func(http.RoundTripper) http.RoundTripper

	sent    atomic.Int64
	mu      sync.Mutex
	clients map[*tls.Certificate]*http.Client // guarded by mu
}

// Credentials authenticate a request.
type Credentials struct {
	Token string
	Cert  *tls.Certificate
}

// client returns a client with its own connections for each certificate.
func (t *Target) client(cert *tls.Certificate) *http.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clients[cert]; c != nil {
		return c
	}
	if t.clients == nil {
		t.clients = make(map[*tls.Certificate]*http.Client)
	}
	var transport http.RoundTripper = &http.Transport{
		TLSClientConfig:    t.tlsFor(cert),
		ForceAttemptHTTP2:  t.HTTP2,
		DisableCompression: true, // cases set Accept-Encoding themselves
		IdleConnTimeout:    time.Minute,
	}
	if t.Through != nil {
		transport = t.Through(transport)
	}
	c := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.clients[cert] = c
	return c
}

func (t *Target) tlsFor(cert *tls.Certificate) *tls.Config {
	cfg := t.TLS.Clone()
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return cfg
}

// Sent returns the number of requests sent, except WebSockets.
func (t *Target) Sent() int64 { return t.sent.Load() }

// Close closes idle connections.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		c.CloseIdleConnections()
	}
}

// A Request is a request in terms that are the same for every target.
type Request struct {
	Method string // the default is GET
	Path   string // with query
	Accept string // not sent if empty
	Header map[string]string
	Type   string // Content-Type; not sent if empty
	Body   string
}

// A Response is a response with its body decompressed.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// requestTimeout bounds one exchange, including watches.
const requestTimeout = 20 * time.Second

// open sends a request and returns the response with its body unread.
func (t *Target) open(ctx context.Context, r Request, as Credentials) (*http.Response, error) {
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if r.Body != "" {
		body = strings.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.URL+r.Path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "conformance")
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	if r.Type != "" {
		req.Header.Set("Content-Type", r.Type)
	}
	if as.Token != "" {
		req.Header.Set("Authorization", "Bearer "+as.Token)
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	t.sent.Add(1)
	resp, err := t.client(as.Cert).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	return resp, nil
}

// Send sends a request and reads the whole response.
func (t *Target) Send(ctx context.Context, r Request, as Credentials) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := t.open(ctx, r, as)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return Response{}, fmt.Errorf("%s: %s %s: read body: %w", t.Name, r.Method, r.Path, err)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" && len(b) > 0 {
		if b, err = gunzip(b); err != nil {
			return Response{}, fmt.Errorf("%s: %s %s: %w", t.Name, r.Method, r.Path, err)
		}
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: b}, nil
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return out, nil
}
