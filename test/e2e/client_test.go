package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// Media types of clients.
const (
	typeJSON     = "application/json"
	typeProto    = "application/vnd.kubernetes.protobuf"
	typeTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	typeMeta     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	typeMetaList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	typeMetaPB   = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// A client sends plain HTTP requests to one server as one user, so that tests see every byte and
// header.
type client struct {
	name   string // of the server, for failure messages
	url    string
	header http.Header // sent with every request
	http   *http.Client
}

// identity is the credentials of a client.
type identity struct {
	token string
	cert  *realkube.KeyPair
}

func as(user string) identity { return identity{token: kube.Token(user)} }

// newClient returns a client with its own connections, which are closed at the end of the test.
func newClient(t *testing.T, name, url string, who identity, http2 bool) *client {
	t.Helper()
	cfg := &tls.Config{RootCAs: kube.ServingCAs()}
	if who.cert != nil {
		pair, err := tls.X509KeyPair(who.cert.CertPEM, who.cert.KeyPEM)
		must(t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	c := &client{name: name, url: url, header: http.Header{}, http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: cfg, ForceAttemptHTTP2: http2, DisableCompression: true, MaxIdleConnsPerHost: 16,
	}}}
	if who.token != "" {
		c.header.Set("Authorization", "Bearer "+who.token)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// direct returns a client of kube-apiserver itself.
func direct(t *testing.T, who identity) *client {
	t.Helper()
	return newClient(t, "kube-apiserver", kube.URL(), who, true)
}

// through returns a client of the gateway.
func through(t *testing.T, g *realkube.Gateway, who identity) *client {
	t.Helper()
	return newClient(t, "gateway", g.URL(), who, true)
}

// with returns a copy of the client that also sends a header.
func (c *client) with(key, value string) *client {
	out := *c
	out.header = c.header.Clone()
	out.header.Add(key, value)
	return &out
}

// A request can be sent to kube-apiserver and to the gateway.
type request struct {
	method string // the default is GET
	path   string // with query
	accept string
	typ    string // Content-Type
	body   string
}

func (r request) String() string { return fmt.Sprintf("%s %s (%s)", r.verb(), r.path, r.accept) }

func (r request) verb() string {
	if r.method == "" {
		return http.MethodGet
	}
	return r.method
}

// A response has its complete body.
type response struct {
	status int
	header http.Header
	body   string
}

func (a response) String() string { return fmt.Sprintf("%d %.500s", a.status, a.body) }

// open sends a request and returns the response with its body unread.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.verb(), c.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header = c.header.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "e2e")
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.typ != "" {
		req.Header.Set("Content-Type", r.typ)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return resp, nil
}

// requestTimeout bounds one request other than a watch.
const requestTimeout = 30 * time.Second

// send sends a request and reads the whole response.
func (c *client) send(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.open(ctx, r)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return response{}, fmt.Errorf("%s: %s: %w", c.name, r, err)
	}
	return response{status: resp.StatusCode, header: resp.Header, body: string(b)}, nil
}

// get sends a GET and fails the test if there is no response.
func (c *client) get(ctx context.Context, t *testing.T, path, accept string) response {
	t.Helper()
	a, err := c.send(ctx, request{path: path, accept: accept})
	must(t, err)
	return a
}

// sameResponse sends a request to both servers and reports differences in status, media type or body.
func sameResponse(ctx context.Context, t *testing.T, up, gw *client, r request, wantStatus int) {
	t.Helper()
	want, err := up.send(ctx, r)
	must(t, err)
	if want.status != wantStatus {
		t.Errorf("%s: kube-apiserver responds %s, want %d", r, want, wantStatus)
	}
	got, err := gw.send(ctx, r)
	must(t, err)
	compareResponses(t, r, want, got)
}

func compareResponses(t *testing.T, r request, want, got response) {
	t.Helper()
	if got.status != want.status || !bytes.Equal([]byte(got.body), []byte(want.body)) {
		t.Errorf("%s:\n gateway        %s\n kube-apiserver %s", r, got, want)
	}
	for _, key := range []string{"Content-Type", "Retry-After", "Www-Authenticate"} {
		if got.header.Get(key) != want.header.Get(key) {
			t.Errorf("%s: %s is %q, want %q", r, key, got.header.Get(key), want.header.Get(key))
		}
	}
}

// sameStatus is sameAnswer without the comparison of bodies, for lists and watches that are
// allowed: they contain the version of the server's cache. It is safe for concurrent use.
func sameStatus(ctx context.Context, t *testing.T, up, gw *client, r request) {
	t.Helper()
	want, err := up.send(ctx, r)
	got, gwErr := gw.send(ctx, r)
	if err != nil || gwErr != nil {
		t.Errorf("%s: %v, %v", r, err, gwErr)
		return
	}
	if got.status != want.status || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
		t.Errorf("%s:\n gateway        %s %s\n kube-apiserver %s %s", r,
			got, got.header.Get("Content-Type"), want, want.header.Get("Content-Type"))
	}
}
