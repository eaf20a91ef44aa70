package extension

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// respond is a transport whose answer is given.
type respond func(req *http.Request) *http.Response

func (a respond) RoundTrip(req *http.Request) (*http.Response, error) {
	if resp := a(req); resp != nil {
		return resp, nil
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// TestWebhooks: the client of a webhook ends answers that are too large or never come,
// and is not told when to try again. The configuration it is made from stays as it was.
func TestWebhooks(t *testing.T) {
	const limit = 1000
	var size int
	shared := &rest.Config{Host: "https://hook.test", Transport: respond(func(*http.Request) *http.Response {
		if size < 0 {
			return nil
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Retry-After": {"100000"}}, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", size)))}
	})}
	resolver := Webhooks(limit)(&webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc:        func(string) (*rest.Config, error) { return shared, nil },
		ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) { return shared, nil },
	})
	byURL, err := resolver.ClientConfigFor("hook.test:443")
	if err != nil {
		t.Fatal(err)
	}
	byService, err := resolver.ClientConfigForService("hook", "ns", 443)
	if err != nil {
		t.Fatal(err)
	}
	if shared.WrapTransport != nil || shared.Timeout != 0 {
		t.Error("the configuration of others was changed")
	}
	bubble.Test(t, func(t *testing.T) {
		for _, config := range []*rest.Config{byURL, byService} {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, size = range []int{0, limit, limit + 1, 100 * limit, -1} {
				resp, err := client.Get(config.Host)
				if size < 0 {
					if err == nil {
						t.Error("an answer that never comes is waited for")
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if len(body) != min(size, limit) || (err != nil) != (size > limit) || resp.Header.Get("Retry-After") != "" {
					t.Errorf("%d bytes: read %d, %v, %v", size, len(body), err, resp.Header)
				}
			}
		}
	})
}

// TestDocuments: no panic and no endless answer comes through.
func TestDocuments(t *testing.T) {
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		status  int
		size    int
	}{
		"good":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, 200, 2},
		"panic":   {func(http.ResponseWriter, *http.Request) { panic("odd") }, 502, len("bad gateway\n")},
		"aborted": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, len("bad gateway\n")},
		"large": {func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			for range 100 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
			t.Error("all was taken")
		}, 200, DocumentSize},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Documents(tt.handler, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
			if w.Code != tt.status || w.Body.Len() != tt.size {
				t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		var err error
		Documents(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			err = req.Context().Err()
		}), slog.New(slog.DiscardHandler)).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
		if err == nil {
			t.Error("it has no deadline")
		}
	})
}

// TestStatuses: what no response writer takes is an error.
func TestStatuses(t *testing.T) {
	for status, good := range map[int]bool{0: false, 42: false, 99: false, 101: true, 200: true, 999: true, 1000: false} {
		resp, err := Statuses(respond(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: status, Body: http.NoBody}
		})).RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
		if (err == nil) != good {
			t.Errorf("%d: %v", status, err)
		}
		if err == nil && resp.StatusCode != status {
			t.Error(errors.New(resp.Status))
		}
	}
}
