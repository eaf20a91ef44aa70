package proxy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/reason"
)

// noReviews answers no review.
type noReviews struct{ err error }

func (n noReviews) Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	return nil, n.err
}

// TestRefusalsAreCounted has a request for each reason for which this package refuses.
func TestRefusalsAreCounted(t *testing.T) {
	denied := func(*authorizationv1.SubjectAccessReviewSpec) bool { return false }
	full := func(g *limiter) { g.max = 1; g.acquire("other", 1) }
	for _, c := range []struct {
		why     reason.Refusal
		line    string
		header  string
		options func(*Options)
		before  func(*gatewayBench)
	}{
		{why: reason.UnidentifiedLimit, line: anyPods, before: func(b *gatewayBench) {
			b.gateway.unidentified.max = 1
			b.gateway.unidentified.acquire()
		}},
		{why: reason.Unauthenticated, line: anyPods, header: "Authorization: Bearer bad"},
		{why: reason.ReviewUnavailable, line: anyPods, options: func(o *Options) {
			o.Authorizer = identity.NewAuthorizer(identity.AuthorizerOptions{AccessReviewer: noReviews{errors.New("away")}})
		}},
		{why: reason.ReviewRefused, line: anyPods, options: func(o *Options) {
			o.Authorizer = identity.NewAuthorizer(identity.AuthorizerOptions{AccessReviewer: noReviews{apierrors.NewBadRequest("no such field")}})
		}},
		{why: reason.ShortLimit, line: anyPods, before: func(b *gatewayBench) { full(b.gateway.inFlight) }},
		{why: reason.ShortShare, line: anyPods, before: func(b *gatewayBench) {
			b.gateway.inFlight.max = 2
			b.gateway.inFlight.acquire("admin", 1)
		}},
		{why: reason.LongLimit, line: anyPods + "&watch=true", before: func(b *gatewayBench) { full(b.gateway.longRunning) }},
		{why: reason.LongShare, line: anyPods + "&watch=true", before: func(b *gatewayBench) {
			b.gateway.longRunning.max = 2
			b.gateway.longRunning.acquire("admin", 1)
		}},
		{why: reason.BytesLimit, line: anyPods + "&watch=true", header: "X-Long: " + strings.Repeat("x", 8<<10), before: func(b *gatewayBench) { full(b.gateway.heldBytes) }},
		{why: reason.BytesShare, line: anyPods + "&watch=true", header: "X-Long: " + strings.Repeat("x", 8<<10), before: func(b *gatewayBench) {
			b.gateway.heldBytes.max = 5 << 10
			b.gateway.heldBytes.acquire("admin", 1)
		}},
		{why: reason.ImpersonationInvalid, line: anyPods, header: "Impersonate-Group: a"},
		{why: reason.ShardUnknown, line: anyPods + "&shardSelector=x&unknown=1"},
		{why: reason.QueryUnanswered, line: anyPods + "&offset=1&unknown=1"},
		{why: reason.Forbidden, line: anyPods, before: func(b *gatewayBench) { b.upstream.allowed = denied }},
	} {
		t.Run(c.why.String(), func(t *testing.T) {
			registry := prometheus.NewRegistry()
			b := newGatewayBench(t, func(o *Options) {
				o.Registerer = registry
				if c.options != nil {
					c.options(o)
				}
			})
			if c.before != nil {
				c.before(b)
			}
			status, body, _ := b.do(c.line, "X-Test: 1", orElse(c.header, "X-Test: 1"))
			if want := c.why.Entry().Code; status != want {
				t.Errorf("answered %d, want %d: %s", status, want, body)
			}
			if got := countedRefusals(t, registry); got != c.why.String() {
				t.Errorf("counted %q", got)
			}
		})
	}
}

// countedRefusals are the reasons of refusals that were counted, each once.
func countedRefusals(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != "kubeweir_refusals_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for range int(m.GetCounter().GetValue()) {
				out = append(out, m.GetLabel()[0].GetValue())
			}
		}
	}
	return strings.Join(out, " ")
}
