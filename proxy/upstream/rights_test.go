package upstream

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
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
	if n := testutil.CollectAndCount(c.rights.Metric()); n != 3 {
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
	if n := testutil.CollectAndCount(c.rights.Metric()); n != 0 {
		t.Errorf("%d rights are missing in the metric", n)
	}
}
