// Package h2spec tests the transport against RFC 9113 and RFC 7541 with the cases of h2spec.
package h2spec

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/edge/h1"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
)

// reading responds after it has read the body, as h2spec expects. A handler that responds earlier
// does not notice that the body is shorter than Content-Length.
type reading struct{}

func (reading) Serve(_ context.Context, r *api.Request) *api.Response {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return &api.Response{Status: 400}
		}
	}
	return &api.Response{Status: 200, Body: []byte("hello")}
}

// TestH2spec runs all cases, including the strict ones, with and without TLS.
func TestH2spec(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "h2spec")
	build := exec.Command("go", "build", "-o", tool, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = filepath.Join("..", "tools", "h2spec")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building h2spec: %v\n%s", err, out)
	}
	s, err := edge.New(edge.Options{
		Handler: reading{}, GetCertificate: edgetest.GetCertificate,
		Listen: "127.0.0.1:0", SidecarListen: "127.0.0.1:0",
	}, edge.Protocols{HTTP1: h1.Serve, HTTP2: h2.Serve})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	for name, tc := range map[string]struct {
		addr net.Addr
		args []string
		// failed is the number of cases that do not apply. A listener that also serves HTTP/1.1 treats an
		// invalid preface as a malformed HTTP/1.1 request.
		failed int
	}{
		"TLS":             {bound.Secure, []string{"--tls", "--insecure"}, 0},
		"prior knowledge": {bound.Sidecar, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, port, _ := net.SplitHostPort(tc.addr.String())
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			args := append([]string{"--strict", "--timeout", "10", "--host", "127.0.0.1", "--port", port}, tc.args...)
			out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
			failures := string(out)
			if at := strings.Index(failures, "Failures:"); at >= 0 {
				failures = failures[at:]
			}
			summary := fmt.Sprintf("146 tests, %d passed, 0 skipped, %d failed", 146-tc.failed, tc.failed)
			if !strings.Contains(failures, summary) || tc.failed > 0 && !strings.Contains(failures, "Sends invalid connection preface") {
				t.Errorf("%v\n%s", err, failures)
			}
		})
	}
}
