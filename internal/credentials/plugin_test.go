package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hub is a server and a client of it whose plugin returns token-n at its n-th call. While dir
// contains a file called hold, the plugin does not return.
type hub struct {
	dir    string
	client *http.Client
	url    string

	mu      sync.Mutex
	seen    []string // Authorization headers
	rejects string   // the one that it rejects with 401
}

func newHub(t *testing.T, timeout time.Duration) *hub {
	t.Helper()
	h := &hub{dir: t.TempDir()}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	h.url = s.URL
	script := fmt.Sprintf(`cd %s; echo >> calls; while [ -e hold ]; do sleep 0.02; done
echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "token-'$(($(wc -l < calls)))'"}}'`, h.dir)
	var err error
	h.client, err = Client(&rest.Config{Host: s.URL, ExecProvider: &clientcmdapi.ExecConfig{
		Command: "sh", Args: []string{"-c", script}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}, timeout, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

// ServeHTTP implements http.Handler.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	with := r.Header.Get("Authorization")
	h.seen = append(h.seen, with)
	if with == h.rejects {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func (h *hub) request(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (h *hub) calls(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(content)
}

// TestStuck: a plugin that does not return is run once, delays nobody for longer than their
// timeout, and is used after it has returned.
func TestStuck(t *testing.T) {
	h := newHub(t, 50*time.Millisecond)
	hold := filepath.Join(h.dir, "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := h.client.Transport.(*transported).p
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.request(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has left: %v", err)
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := h.request(t.Context()); !errors.Is(err, ErrSilent) {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	for !p.Stuck() {
		time.Sleep(time.Millisecond)
	}
	if err := h.request(t.Context()); !errors.Is(err, ErrSilent) || len(h.seen) > 0 {
		t.Errorf("%v, %q", err, h.seen)
	}
	if n := h.calls(t); n != 1 {
		t.Errorf("the plugin was run %d times", n)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	for p.Stuck() {
		time.Sleep(time.Millisecond)
	}
	if err := h.request(t.Context()); err != nil || strings.Join(h.seen, " ") != "Bearer token-1" {
		t.Errorf("%v, %q", err, h.seen)
	}
}

// TestRejected: credentials that the upstream rejects are renewed once, for the next request; a
// request with its own credentials keeps them.
func TestRejected(t *testing.T) {
	h := newHub(t, time.Minute)
	for _, rejects := range []string{"", "Bearer token-1", "Bearer token-1", ""} {
		h.rejects = rejects
		if err := h.request(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequest(http.MethodGet, h.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer own")
	resp, err := h.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	want := "Bearer token-1 Bearer token-1 Bearer token-2 Bearer token-2 Bearer own"
	if got := strings.Join(h.seen, " "); got != want || h.calls(t) != 2 {
		t.Errorf("%s after %d calls", got, h.calls(t))
	}
}
