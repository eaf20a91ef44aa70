package upstream

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestMissingRights: what the gateway may not do itself is said once, by the name of the
// right, however often it is tried, and once more when it may; a metric has it meanwhile.
func TestMissingRights(t *testing.T) {
	var code atomic.Int32
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if code.Load() == 200 {
			_, _ = io.WriteString(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		w.WriteHeader(int(code.Load()))
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"User \"the-gateway\" cannot","reason":"Forbidden","code":403}`)
	})
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	c := s.client(t, func(o *Options) {
		o.Logger, o.Registerer = slog.New(slog.NewTextHandler(&log, nil)), registry
	})
	ctx := testContext(t)
	reviews, err := kubernetes.NewForConfigAndClient(c.ClientGo())
	if err != nil {
		t.Fatal(err)
	}
	secrets := &source.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true}
	use := func() (errs []error) {
		for range 5 {
			_, list := c.Source().List(ctx, secrets, api.JSON, source.ListOptions{}, func([]byte) error { return nil })
			_, review := reviews.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{}, metav1.CreateOptions{})
			// Shared by many, as itself; then what a client of a sidecar sends, which is its own affair.
			finish(t, c.Forward(ctx, request("GET", "/api/v1/namespaces/a/secrets/s"), Credentials{As: AsGateway}))
			finish(t, c.Forward(ctx, request("DELETE", "/api/v1/namespaces/a/secrets/s"), Credentials{As: AsGateway, KeepImpersonation: true}))
			errs = append(errs, list, review)
		}
		return errs
	}
	count := func(text string) int { defer log.Reset(); return strings.Count(log.String(), text) }

	code.Store(403)
	for _, err := range use() {
		if err == nil || !strings.Contains(err.Error(), "the-gateway") {
			t.Fatalf("the refusal was not passed on: %v", err)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
	for _, want := range []string{"verb=list group=\"\" resource=secrets", "verb=create group=authentication.k8s.io resource=tokenreviews", "verb=get", "kubeweir rbac", "the-gateway"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
	if n := testutil.CollectAndCount(c.rights.gauge); n != 3 {
		t.Errorf("%d rights are missing in the metric", n)
	}
	log.Reset()

	code.Store(401)
	use()
	if n := count("does not know the gateway's credentials"); n != 1 {
		t.Errorf("told %d times of credentials", n)
	}
	code.Store(200)
	use()
	if n := count("it lacked"); n != 3 {
		t.Errorf("told %d times of rights that are there", n)
	}
	if n := testutil.CollectAndCount(c.rights.gauge); n != 0 || c.rights.lacking.Load() != 0 {
		t.Errorf("%d rights are missing in the metric", n)
	}
}

// TestMissingRightsAreBounded: names are the cluster's, but there may be any number.
func TestMissingRightsAreBounded(t *testing.T) {
	r := newRights(slog.New(slog.DiscardHandler))
	for i := range 3 * maxMissing {
		r.responded("GET", "/apis/g/v1/r"+strings.Repeat("x", i%2000), "", 403, nil)
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
				r := newRights(slog.New(slog.NewTextHandler(&log, nil)))
				for range 20 {
					r.responded("GET", c.rejected, "", 403, nil)
					if !c.ends {
						r.responded("GET", c.path, "", c.code, nil)
					}
				}
				if n := strings.Count(log.String(), "\n"); n != 1 {
					t.Errorf("%d lines:\n%s", n, log.String())
				}
				if c.ends {
					r.responded("GET", c.path, "", c.code, nil)
				} else {
					time.Sleep(lackFor) // nothing was refused for so long
					r.responded("GET", c.path, "", 200, nil)
				}
				if n := testutil.CollectAndCount(r.gauge); n != 0 || r.lacking.Load() != 0 {
					t.Errorf("%d rights are missing at the end", n)
				}
			})
		})
	}
}
