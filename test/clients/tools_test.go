package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestCurlParallel fetches a hundred objects at once with one curl, which uses one connection.
func TestCurlParallel(t *testing.T) {
	g := startGateway(t)
	curl := installed(t, "curl", "curl")
	out := command(deadline(t), t, curl, "--http2", "--silent", "--show-error", "--cacert", kube.ServingCAFile(),
		"--parallel", "--parallel-max", "100", "--header", bearer(), "--output", filepath.Join(t.TempDir(), "#1"),
		"--write-out", "%{http_code} %{http_version} %{num_connects}\\n", g.URL()+maps+"/map-00[00-99]?resourceVersion=0")
	if many, first := strings.Count(out, "200 2 0\n"), strings.Count(out, "200 2 1\n"); many != 99 || first != 1 {
		t.Errorf("%d responses on an open connection and %d on a new one, want 99 and 1:\n%s", many, first, out)
	}
}

// TestNghttp reads a list through windows of 16 KiB with nghttp, and sends a body with all optional
// features.
func TestNghttp(t *testing.T) {
	nghttp := installed(t, "nghttp", "nghttp2-client")
	ctx, g := deadline(t), startGateway(t)
	checkList(t, command(ctx, t, nghttp, "--no-verify-peer", "--window-bits=14", "--connection-window-bits=14",
		"--header="+bearer(), g.URL()+maps+"?resourceVersion=0"))

	body := filepath.Join(t.TempDir(), "body")
	must(t, os.WriteFile(body, fmt.Appendf(nil, `{"metadata":{"name":"nghttp"},"data":{"text":%q}}`, strings.Repeat("x", 1000000)), 0o600))
	out := command(ctx, t, nghttp, "--no-verify-peer", "--verbose", "--null-out", "--expect-continue", "--trailer=x-checksum: none",
		"--header="+bearer(), "--header=:method: POST", "--header=content-type: application/json", "--data="+body, g.URL()+maps)
	for _, want := range []string{":status: 100", ":status: 201"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
}

// TestH2load sends as many requests as possible with h2load: for small responses with many streams,
// and for large ones through windows of 16 KiB, for which each half window is a WINDOW_UPDATE.
func TestH2load(t *testing.T) {
	h2load := installed(t, "h2load", "nghttp2-client")
	ctx, g := deadline(t), startGateway(t)
	for path, args := range map[string][]string{
		"/map-0001?resourceVersion=0": {"--requests=5000", "--clients=10", "--max-concurrent-streams=50"},
		"?resourceVersion=0":          {"--requests=8", "--clients=2", "--max-concurrent-streams=4", "--window-bits=14", "--connection-window-bits=14"},
	} {
		out := command(ctx, t, h2load, append(args, "--header="+bearer(), g.URL()+maps+path)...)
		n := strings.TrimPrefix(args[0], "--requests=")
		if !strings.Contains(out, n+" done, "+n+" succeeded, 0 failed, 0 errored, 0 timeout") ||
			!strings.Contains(out, "status codes: "+n+" 2xx, 0 3xx, 0 4xx, 0 5xx") || !strings.Contains(out, "Application protocol: h2\n") {
			t.Errorf("%s: %s", path, out)
		}
	}
}

func bearer() string { return "authorization: Bearer " + kube.Token(realkube.Admin) }

// command runs a program and returns its output.
func command(ctx context.Context, t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%.3000s", name, args, err, stderr.String(), out)
	}
	return string(out)
}
