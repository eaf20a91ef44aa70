package proxy

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
)

const accessReviews, subjectReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// selfBench is a gateway that remembers self-reviews, before an upstream which takes a second
// for an answer that says who asks, how often it was asked, and when.
func selfBench(t *testing.T, change func(*Options)) *gatewayBench {
	b := newGatewayBench(t, func(o *Options) {
		o.Policy.RememberSelfReviews = true
		if change != nil {
			change(o)
		}
	})
	b.upstream.response = func(r *api.Request) *api.Response {
		n := b.upstream.count()
		time.Sleep(time.Second)
		h := api.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Audit-Id", Value: "upstream"}}
		return &api.Response{Status: 201, Header: h, Body: fmt.Appendf(nil,
			`{"metadata":{"creationTimestamp":"%s"},"spec":{"key":"\"time\":\"2020-01-01T00:00:00Z\""},"status":{"allowed":%v,"reason":"%s %d"}}`,
			time.Now().UTC().Format(time.RFC3339), !strings.Contains(r.RawQuery, "denied"), r.Header.Get("Authorization")+r.Header.Get("Impersonate-User"), n)}
	}
	return b
}

// post serves a POST with a body.
func (b *gatewayBench) post(target, body string, header ...string) (int, string, response.Source) {
	b.t.Helper()
	r := request("POST "+target, append([]string{"Content-Type: application/json"}, header...)...)
	r.Body, r.ContentLength = strings.NewReader(body), int64(len(body))
	before := b.upstream.count()
	resp := b.gateway.Serve(b.t.Context(), r)
	resp.Done(0, nil)
	from := response.FromCache
	if b.upstream.count() > before {
		from = response.FromUpstream
	}
	if id := resp.Header.Get("Audit-Id"); from == response.FromCache && (id == "" || id == "upstream") {
		b.t.Errorf("Audit-Id %q", id)
	}
	return resp.Status, string(resp.Body), from
}

const listPods = `{"kind":"SelfSubjectAccessReview","metadata":{"creationTimestamp":null},"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`

// TestSelfReviewsAreRemembered: the same question of the same user is answered by what the
// upstream said, until that is too old or an RBAC object changes.
func TestSelfReviewsAreRemembered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := selfBench(t, nil)
		status, first, from := b.post(accessReviews, listPods)
		if status != 201 || from != response.FromUpstream || !strings.Contains(first, `"reason":"Bearer admin 1"`) {
			t.Fatalf("%d %s", status, first)
		}
		time.Sleep(3 * time.Second)
		_, again, from := b.post(accessReviews, listPods)
		if from != response.FromCache || again != first {
			t.Errorf("remembered: %s\nwant %s", again, first)
		}
		b.gateway.Authorizer.Invalidate()
		if _, _, from := b.post(accessReviews, listPods); from != response.FromUpstream {
			t.Error("a change of an RBAC object leaves an answer")
		}
		time.Sleep(500 * time.Millisecond)
		if _, _, from := b.post(accessReviews, listPods); from != response.FromUpstream {
			t.Error("an answer to a question that was asked while the change settled is remembered")
		}
		time.Sleep(9 * time.Second)
		if _, _, from := b.post(accessReviews, listPods); from != response.FromCache {
			t.Error("forgotten")
		}
		time.Sleep(2 * time.Second)
		if _, _, from := b.post(accessReviews, listPods); from != response.FromUpstream {
			t.Error("remembered for longer than a permission")
		}
		b.post(subjectReviews+"?denied", listPods) // refuses nothing
		b.post(accessReviews+"?denied", listPods)
		time.Sleep(6 * time.Second)
		if _, _, from := b.post(subjectReviews+"?denied", listPods); from != response.FromCache {
			t.Error("who somebody is counts as a refusal")
		}
		if _, _, from := b.post(accessReviews+"?denied", listPods); from != response.FromUpstream {
			t.Error("remembered for longer than a refusal")
		}
	})
}

// TestSelfReviewsOfOthers: nobody is told what somebody else was, or what was asked otherwise.
func TestSelfReviewsOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := selfBench(t, nil)
		b.post(accessReviews, listPods)
		for _, other := range []struct{ target, body, header string }{
			{accessReviews, listPods, "Authorization: Bearer jane"},
			{accessReviews, listPods, "Impersonate-User: jane"},
			{accessReviews, listPods, "Accept: application/yaml"},
			{accessReviews, listPods, "User-Agent: k9s"},
			{accessReviews, listPods, "Origin: https://example.com"},
			{accessReviews + "?dryRun=All", listPods, "X: y"},
			{accessReviews, listPods + " ", "X: y"},
			{accessReviews, strings.Replace(listPods, "pods", "nodes", 1), "X: y"},
			{subjectReviews, listPods, "X: y"},
		} {
			_, text, from := b.post(other.target, other.body, other.header)
			if from != response.FromUpstream || strings.Contains(other.header, "jane") && !strings.Contains(text, "jane") {
				t.Errorf("%+v is answered with the answer to another: %s", other, text)
			}
			if _, _, from := b.post(other.target, other.body, other.header); from != response.FromCache {
				t.Errorf("%+v is not remembered", other)
			}
		}
		// Impersonation that only the upstream can decide on.
		b.upstream.allowed = nobodyImpersonates
		for range 2 {
			if _, _, from := b.post(accessReviews, listPods, "Impersonate-User: joe"); from != response.FromUpstream {
				t.Error("answered here, although only the upstream knows as whom")
			}
		}
	})
}

// TestUnusualSelfReviewsAreForwarded, with their whole body.
func TestUnusualSelfReviewsAreForwarded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := selfBench(t, nil)
		for _, c := range []struct{ target, body, header string }{
			{accessReviews, `{`, "X: y"},
			{accessReviews, `{"metadata":{"labels":{"a":"b"}}}`, "X: y"},
			{accessReviews, `{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`, "X: y"},
			{accessReviews, strings.Repeat(" ", maxReviewBody) + "{}", "X: y"},
			{accessReviews, listPods, "Content-Type: application/yaml"},
			{accessReviews, listPods, "Content-Type: application/vnd.kubernetes.protobuf"},
			{accessReviews, listPods, "Content-Encoding: gzip"},
			{accessReviews + "/", listPods, "X: y"},
			{strings.Replace(accessReviews, "v1", "v1beta1", 1), listPods, "X: y"},
			{"/apis/authorization.k8s.io/v1/subjectaccessreviews", listPods, "X: y"},
		} {
			for range 2 {
				if _, _, from := b.post(c.target, c.body, c.header); from != response.FromUpstream {
					t.Errorf("%+v is answered here", c)
				}
				last := b.upstream.forwarded[b.upstream.count()-1].request
				sent := make([]byte, len(c.body))
				if n, _ := last.Body.Read(sent); string(sent[:n]) != c.body {
					t.Errorf("%+v: %q is sent", c, sent[:n])
				}
			}
		}
		off := newGatewayBench(t, nil)
		for range 2 {
			if _, _, from := off.post(accessReviews, listPods); from != response.FromUpstream {
				t.Error("answered here although nobody said so")
			}
		}
	})
}

// TestSelfReviewsAreShared: who asks while an answer is under way shares the next one.
func TestSelfReviewsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := selfBench(t, nil)
		respond := b.upstream.response
		b.upstream.response = func(r *api.Request) *api.Response {
			resp := respond(r)
			resp.Status = 429 // which is shared, and not remembered
			return resp
		}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if status, _, _ := b.post(accessReviews, listPods); status != 429 {
					t.Errorf("status %d", status)
				}
			})
		}
		wg.Wait()
		if n := b.upstream.count(); n > 2 {
			t.Errorf("the upstream was asked %d times", n)
		}
		if _, _, from := b.post(accessReviews, listPods); from != response.FromUpstream {
			t.Error("a refusal to answer is remembered")
		}
	})
}

// TestSelfReviewsByRule: a rule says who is answered so.
func TestSelfReviewsByRule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := selfBench(t, func(o *Options) {
			o.Policy.RememberSelfReviews = false
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{SelfReviews: policy.Yes}}}
		})
		for who, want := range map[string]response.Source{"jane": response.FromCache, "joe": response.FromUpstream} {
			b.post(accessReviews, listPods, "Authorization: Bearer "+who)
			if _, _, from := b.post(accessReviews, listPods, "Authorization: Bearer "+who); from != want {
				t.Errorf("%s is answered %s", who, from)
			}
		}
	})
}

func nobodyImpersonates(spec *authorizationv1.SubjectAccessReviewSpec) bool {
	return spec.ResourceAttributes == nil || spec.ResourceAttributes.Verb != "impersonate"
}
