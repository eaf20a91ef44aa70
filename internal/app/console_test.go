package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy/console"
)

// TestConsole: the console of a standalone shows what there is, by the documents of all its
// pages, and only that.
func TestConsole(t *testing.T) {
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen, c.Shutdown.Drain = "127.0.0.1:0", "127.0.0.1:0", 0
	c.Admission.DisablePlugins = []string{"ServiceAccount"}
	s, err := NewStandalone(t.Context(), c, StandaloneOptions{NoDataDir: true, UserAgent: "kubeweir/test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := "http://" + s.AdminAddr().String()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, page := get("/"); code != 200 || !strings.Contains(page, "<html") {
		t.Errorf("%d %.100s", code, page)
	}
	if code, _ := get("/metrics"); code != 200 {
		t.Errorf("metrics: %d", code)
	}
	var session console.Session
	_, body := get("/console/api/session")
	if err := json.Unmarshal([]byte(body), &session); err != nil || session.Mode != console.Standalone || session.Actions || len(session.Clusters) != 0 {
		t.Fatalf("%s: %v", body, err)
	}
	for _, page := range session.Pages {
		if page == "explain" {
			continue
		}
		if code, body := get("/console/api/" + page); code != 200 || !json.Valid([]byte(body)) || strings.Contains(body, "PRIVATE KEY") {
			t.Errorf("%s: %d %.200s", page, code, body)
		}
	}
	var store console.Store
	_, body = get("/console/api/store")
	if err := json.Unmarshal([]byte(body), &store); err != nil || !store.Available || store.Revision < 1 || store.Keys < 1 || len(store.Types) < 5 {
		t.Errorf("%s: %v", body, err)
	}
}
