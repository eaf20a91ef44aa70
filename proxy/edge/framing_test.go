package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestBodyTo10 tells a failed body apart from a complete one without any framing.
func TestBodyTo10(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: -1, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
			_, _ = io.WriteString(w, "some")
			return 4, errors.New("boom")
		})}
	})
	c := ts.Dial()
	c.Send("GET / HTTP/1.0\r\n\r\n")
	resp, err := http.ReadResponse(c.Br, nil)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("a truncated response looks complete")
	}
}

func TestNoBody(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		status := 0
		_, _ = fmt.Sscanf(r.Path, "/%d", &status)
		resp := &api.Response{Status: status, Header: api.Header{{Name: "Etag", Value: `"x"`}}}
		if r.Method == "HEAD" {
			resp.Header.Add("Content-Length", "12345")
		}
		return resp
	})
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		for _, tc := range []struct {
			method, path string
			length       string
		}{
			{"GET", "/200", "0"}, {"GET", "/204", ""}, {"GET", "/304", ""}, {"HEAD", "/200", "12345"},
		} {
			req, _ := http.NewRequest(tc.method, url+tc.path, nil)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if len(body) > 0 || resp.Header.Get("Content-Length") != tc.length || resp.Header.Get("Etag") != `"x"` {
				t.Errorf("%s %s: %q %v", tc.method, tc.path, body, resp.Header)
			}
		}
	})
}
