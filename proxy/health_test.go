package proxy

import (
	"errors"
	"testing"

	"github.com/kubeweir/kubeweir/api"
)

func TestHealth(t *testing.T) {
	h := NewHealth(
		Check{Name: "feeds", Ready: true, Err: func() error { return errors.New("pods are stale") }},
		Check{Name: "informer", Err: func() error { return nil }},
	)
	for _, c := range []struct {
		path, query string
		reasons     bool
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
		resp := h.Serve(&api.Request{Method: "GET", Path: c.path, RawQuery: c.query}, c.reasons)
		if resp == nil || resp.Status != c.status || string(resp.Body) != c.body {
			t.Errorf("%s?%s: %+v", c.path, c.query, resp)
		}
	}
	if h.Serve(&api.Request{Method: "GET", Path: "/api"}, false) != nil {
		t.Error("/api is not a health endpoint")
	}
}

// TestHealthNamesNoParts: who is told no reasons is not told either which clusters there are.
func TestHealthNamesNoParts(t *testing.T) {
	failing := Check{Name: "feeds", Ready: true, Err: func() error { return errors.New("pods are stale") }}
	bad := Part{"lab", NewHealth(failing)}
	some := NewHealthOf(func() []Part { return []Part{{"berlin", NewHealth()}, bad} })
	none := NewHealthOf(func() []Part { return []Part{bad} })
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
