package upstream

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

// ClientGo returns what a constructor of client-go needs to talk to the upstream as the gateway,
// over this client's connections, for instance
//
//	kubernetes.NewForConfigAndClient(client.ClientGo())
//
// There is no client-side rate limit. The requests are counted with the purpose review.
func (c *Client) ClientGo() (*rest.Config, *http.Client) {
	cfg := &rest.Config{Host: c.base.String(), UserAgent: c.agent, QPS: -1}
	return cfg, &http.Client{Transport: countedTransport{c}}
}

// countedTransport counts the requests of client-go.
type countedTransport struct{ c *Client }

// RoundTrip implements http.RoundTripper.
func (t countedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if len(req.Header["User-Agent"]) == 0 {
		req = req.Clone(req.Context())
		req.Header.Set("User-Agent", t.c.agent)
	}
	if err := t.c.health.Admit(); err != nil {
		return nil, err
	}
	// The context of a review ends with the review.
	ctx, cancel := context.WithCancelCause(req.Context())
	if t.c.servers != nil {
		ctx = balance.Repeatable(ctx) // a review is created, and changes nothing
	}
	resp, err := t.c.exchange(req.WithContext(ctx), &exchange{rt: t.c.own.shared, purpose: forReview, cancel: cancel})
	if err != nil {
		t.c.metrics.responded(forReview, req.Method, 0, 0)
		return nil, err
	}
	t.c.rights.Responded(req.Method, t.c.ownPath(req.URL), req.URL.RawQuery, resp.StatusCode, func() string { return status.Message(&resp.Body, resp.Body) })
	return resp, nil
}
