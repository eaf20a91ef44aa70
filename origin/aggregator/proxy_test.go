package aggregator

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestProxyDeadline: a server that does not answer a create is given up at the
// request's deadline, with what kube-apiserver says then.
func TestProxyDeadline(t *testing.T) {
	p := &proxyHandler{resolver: somewhere{}, logger: slog.New(slog.DiscardHandler)}
	p.target.Store(&target{remote: true, available: true, transport: silent{}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "someone"})
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "create"})
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/apis/example.com/v1/things", strings.NewReader("{}")))
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatalf("%q: %v", w.Body, err)
	}
	if w.Code != http.StatusGatewayTimeout || status.Reason != metav1.StatusReasonTimeout {
		t.Errorf("%d, %+v", w.Code, status)
	}
}

type somewhere struct{}

func (somewhere) ResolveEndpoint(string, string, int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: "192.0.2.1"}, nil
}

// silent answers no request.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}
