package healthz

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestHealth(t *testing.T) {
	h := New(
		Check{Name: "feeds", ReadyOnly: true, Err: func() error { return errors.New("pods are stale") }},
		Check{Name: "informer", Err: func() error { return nil }},
	)
	for _, c := range []struct {
		path, query string
		details     bool
		status      int
		body        string
	}{
		{"/livez", "", false, 200, "ok"},
		{"/livez", "verbose", false, 200, "[+]ping ok\n[+]informer ok\nlivez check passed\n"},
		{"/readyz", "", false, 500, "[+]ping ok\n[-]feeds failed: reason withheld\n[+]informer ok\nreadyz check failed\n"},
		{"/readyz", "", true, 500, "[+]ping ok\n[-]feeds failed: pods are stale\n[+]informer ok\nreadyz check failed\n"},
		{"/readyz", "exclude=feeds&verbose", false, 200, "[+]ping ok\n[+]feeds excluded: ok\n[+]informer ok\nreadyz check passed\n"},
		{"/readyz/ping", "", false, 200, "ok"},
		{"/readyz/feeds", "", false, 500, "internal server error: reason withheld\n"},
		{"/readyz/none", "", false, 404, "404 page not found\n"},
	} {
		resp := h.Serve(&api.Request{Method: "GET", Path: c.path, RawQuery: c.query}, c.details)
		if resp == nil || resp.Status != c.status || string(resp.Body) != c.body {
			t.Errorf("%s?%s: %+v", c.path, c.query, resp)
		}
	}
	if h.Serve(&api.Request{Method: "GET", Path: "/api"}, false) != nil {
		t.Error("/api is not a health endpoint")
	}
}

// TestHealthHidesParts: without details, responses do not name the clusters.
func TestHealthHidesParts(t *testing.T) {
	failing := Check{Name: "feeds", ReadyOnly: true, Err: func() error { return errors.New("pods are stale") }}
	bad := Part{"lab", New(failing)}
	some := NewOfParts(func() []Part { return []Part{{"berlin", New()}, bad} })
	none := NewOfParts(func() []Part { return []Part{bad} })
	for _, c := range []struct {
		health      *Health
		path, query string
		status      int
		body        string
	}{
		{some, "/readyz", "", 200, "ok"},
		{some, "/readyz", "verbose", 200, "[+]ping ok\n[+]clusters ok\nreadyz check passed\n"},
		{some, "/readyz", "exclude=berlin", 200, "ok"},
		{some, "/readyz/clusters", "", 200, "ok"},
		{some, "/readyz/berlin", "", 404, "404 page not found\n"},
		{some, "/readyz/lab/feeds", "", 404, "404 page not found\n"},
		{none, "/readyz", "", 500, "[+]ping ok\n[-]clusters failed: reason withheld\nreadyz check failed\n"},
		{none, "/readyz", "verbose&exclude=clusters", 200, "[+]ping ok\n[+]clusters excluded: ok\nreadyz check passed\n"},
		{none, "/livez", "verbose", 200, "[+]ping ok\n[+]clusters ok\nlivez check passed\n"},
	} {
		resp := c.health.Serve(&api.Request{Method: "GET", Path: c.path, RawQuery: c.query}, false)
		if resp.Status != c.status || string(resp.Body) != c.body {
			t.Errorf("%s?%s: %d %s", c.path, c.query, resp.Status, resp.Body)
		}
	}
}

// TestHealthOfParts: a Health of parts passes while one of them does.
func TestHealthOfParts(t *testing.T) {
	down := errors.New("down")
	state := map[string]error{"a": nil, "b": nil}
	part := func(name string) Part {
		return Part{name, New(Check{Name: "feeds", ReadyOnly: true, Err: func() error { return state[name] }})}
	}
	parts := []Part{part("a"), part("b")}
	h := NewOfParts(func() []Part { return parts })
	get := func(path, query string) (int, string) {
		resp := h.Serve(&api.Request{Method: "GET", Path: path, RawQuery: query}, true)
		return resp.Status, string(resp.Body)
	}
	expect := func(path, query string, code int, lines ...string) {
		t.Helper()
		got, body := get(path, query)
		if got != code {
			t.Errorf("%s?%s: %d\n%s", path, query, got, body)
		}
		for _, line := range lines {
			if !slices.Contains(strings.Split(body, "\n"), line) {
				t.Errorf("%s?%s lacks %q:\n%s", path, query, line, body)
			}
		}
	}
	expect("/readyz", "", 200, "ok")
	expect("/readyz", "verbose", 200, "[+]ping ok", "[+]a/feeds ok", "[+]b/feeds ok", "readyz check passed")
	state["a"] = down
	expect("/readyz", "verbose", 200, "[-]a/feeds failed: down", "[+]b/feeds ok", "readyz check passed")
	expect("/readyz/a", "", 500, "[-]feeds failed: down")
	expect("/readyz/a/feeds", "", 500)
	expect("/readyz/b", "", 200)
	expect("/readyz/b/feeds", "", 200, "ok")
	expect("/readyz/c", "", 404)
	expect("/readyz", "exclude=b", 500, "[-]a/feeds failed: down", "[+]b excluded: ok")
	expect("/readyz", "exclude=a/feeds", 200)
	expect("/readyz", "exclude=b,feeds", 200, "ok")
	state["b"] = down
	expect("/readyz", "", 500, "[-]a/feeds failed: down", "[-]b/feeds failed: down", "readyz check failed")
	expect("/livez", "verbose", 200)
	parts = nil
	expect("/readyz", "", 200)
}
