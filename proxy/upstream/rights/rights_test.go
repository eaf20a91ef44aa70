package rights

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestMissingRightsAreBounded: names are the cluster's, but there may be any number.
func TestMissingRightsAreBounded(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	for i := range 3 * maxMissing {
		r.Responded("GET", "/apis/g/v1/r"+strings.Repeat("x", i%2000), "", 403, nil)
	}
	if n := len(r.mu.missing); n > maxMissing || int(r.lacking.Load()) != n {
		t.Errorf("%d rights, %d counted", n, r.lacking.Load())
	}
}

// TestMissingRightsDoNotFlap: what the cluster allows in another namespace, or for another
// name, or does not look at because it is busy, does not end a refusal; each change would
// be two lines of the log, and the metric would say that nothing is missing.
func TestMissingRightsDoNotFlap(t *testing.T) {
	const inA, inB, everywhere = "/api/v1/namespaces/a/configmaps/x", "/api/v1/namespaces/b/configmaps/x", "/api/v1/configmaps"
	for _, c := range []struct {
		name     string
		rejected string
		path     string
		code     int
		ends     bool
	}{
		{"the same", inA, inA, 200, true},
		{"the same, not there", inA, inA, 404, true},
		{"the same, busy", inA, inA, 429, false},
		{"the same, with a bad parameter", inA, inA, 400, false},
		{"the same, broken", inA, inA, 503, false},
		{"another name", inA, "/api/v1/namespaces/a/configmaps/y", 200, false},
		{"another namespace", inA, inB, 200, false},
		{"all", everywhere, everywhere, 200, true},
		{"all, then one namespace", everywhere, "/api/v1/namespaces/a/configmaps", 200, false},
		{"one namespace, then all", "/api/v1/namespaces/a/configmaps", everywhere, 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := New(slog.New(slog.NewTextHandler(&log, nil)))
				for range 20 {
					r.Responded("GET", c.rejected, "", 403, nil)
					if !c.ends {
						r.Responded("GET", c.path, "", c.code, nil)
					}
				}
				if n := strings.Count(log.String(), "\n"); n != 1 {
					t.Errorf("%d lines:\n%s", n, log.String())
				}
				if c.ends {
					r.Responded("GET", c.path, "", c.code, nil)
				} else {
					time.Sleep(lackFor) // nothing was refused for so long
					r.Responded("GET", c.path, "", 200, nil)
				}
				if n := testutil.CollectAndCount(r.gauge); n != 0 || r.lacking.Load() != 0 {
					t.Errorf("%d rights are missing at the end", n)
				}
			})
		})
	}
}
