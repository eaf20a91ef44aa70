package proxy

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestReadOnlyOfResource: a path that others may read differently is one of any resource.
func TestReadOnlyOfResource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Rules = []policy.Rule{
				{Match: policy.Match{Resources: []string{"configmaps"}}, Settings: policy.Settings{ReadOnly: policy.No}},
				{Match: policy.Match{Users: []string{"admin"}, Resources: []string{"secrets", "configmaps"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
			}
		})
		for line, rejected := range map[string]bool{
			"DELETE /api/v1/namespaces/a/secrets/b":     true,
			"DELETE /api/v1/namespaces/a//secrets/b":    true,
			"DELETE /api/v1/namespaces/a/./secrets/b":   true,
			"DELETE /api/v1/namespaces/a/configmaps/b":  false,
			"DELETE /api/v1/namespaces/a/configmaps//b": true,
			"DELETE /api/v1/namespaces/a/pods/b":        false,
		} {
			if status, body, _ := b.do(line); (status == 403) != rejected {
				t.Errorf("%s: %d %s", line, status, body)
			}
			if status, body, _ := b.do(line, "Authorization: Bearer jane"); status == 403 {
				t.Errorf("%s of somebody else: %d %s", line, status, body)
			}
		}
	})
}

// TestReadOnlyOfSameObjects: a rule for a resource is one for the same objects by another name.
func TestReadOnlyOfSameObjects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for resource, lines := range map[string][]string{
			"events":               {"DELETE /api/v1/namespaces/a/events/b", "DELETE /apis/events.k8s.io/v1/namespaces/a/events/b"},
			"events.events.k8s.io": {"DELETE /api/v1/namespaces/a/events/b", "DELETE /apis/events.k8s.io/v1/namespaces/a/events/b"},
			"pods":                 {"POST /api/v1/namespaces/a/pods/b/binding", "POST /api/v1/namespaces/a/bindings"},
			"bindings":             {"POST /api/v1/namespaces/a/bindings"},
		} {
			b := newGatewayBench(t, func(o *Options) {
				o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"admin"}, Resources: []string{resource}}, Settings: policy.Settings{ReadOnly: policy.Yes}}}
			})
			for _, line := range lines {
				if status, body, _ := b.do(line); status != 403 {
					t.Errorf("%s: %s: %d %s", resource, line, status, body)
				}
			}
			if status, body, _ := b.do("DELETE /apis/example.com/v1/namespaces/a/events/b"); status == 403 {
				t.Errorf("%s: others' events: %s", resource, body)
			}
		}
	})
}

// TestReadOnlyOfUndecided: who acts as one that may only read, may only read, though the upstream is to say whether they
// may act so.
func TestReadOnlyOfUndecided(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Rules = []policy.Rule{
				{Match: policy.Match{Users: []string{"agent"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
				{Match: policy.Match{Groups: []string{"system:nodes"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
			}
		})
		for _, allowed := range []bool{false, true} {
			b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
				return allowed || r.ResourceAttributes.Verb != "impersonate"
			}
			for as, rejected := range map[string]bool{"agent": true, "other": false, "system:node:a": true} {
				const line = "DELETE /api/v1/namespaces/a/pods/b"
				status, body, _ := b.do(line, "Authorization: Bearer jane", "Impersonate-User: "+as)
				if (status == 403) != rejected {
					t.Errorf("as %s, allowed %t: %d %s", as, allowed, status, body)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestReadOnly: who may read only gets nothing else through, in whichever words.
func TestReadOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) {
			o.Policy.Rules = []policy.Rule{
				{Match: policy.Match{Users: []string{"trusted"}}, Settings: policy.Settings{ReadOnly: policy.No}},
				{Match: policy.Match{Groups: []string{"system:authenticated"}}, Settings: policy.Settings{ReadOnly: policy.Yes}},
			}
		})
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		const pod, upgrade = "/api/v1/namespaces/default/pods/a", "Upgrade: websocket"
		for _, c := range []struct {
			line, header string
			rejected     bool
		}{
			{"GET " + pod, "", false},
			{"HEAD " + pod, "", false},
			{"GET " + pod + "?resourceVersion=0", "", false},
			{"GET " + pod + "/status", "", false},
			{"GET " + pod + "/log?follow=true&tailLines=1", "", false},
			{"GET /api/v1/pods", "", false},
			{"GET /api/v1/pods?watch=1&resourceVersion=0", "", false},
			{"GET /api/v1/pods?watch=1&resourceVersion=0", upgrade, false},
			{"GET /api/v1/watch/namespaces/default/pods/a", "", false},
			{"GET /apis/apps/v1/namespaces/default/deployments/a/scale", "", false},
			{"GET /apis/none.example.com/v1/things?unknown=1", "", false},
			{"GET /", "", false},
			{"GET /api", "", false},
			{"GET /apis/", "", false},
			{"GET /apis/apps/v1", "", false},
			{"GET /openapi/v3", "", false},
			{"GET /version", "", false},
			{"POST " + accessReviews, "", false},
			{"POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "", false},
			{"POST " + subjectReviews + "?pretty=true", "", false},

			{"POST /api/v1/namespaces/default/pods", "", true},
			{"POST /api/v1/namespaces/default/pods?dryRun=All", "", true},
			{"PUT " + pod, "", true},
			{"PATCH " + pod, "", true},
			{"DELETE " + pod, "", true},
			{"DELETE /api/v1/namespaces/default/pods", "", true},
			{"OPTIONS " + pod, "", true},
			{"FOO " + pod, "", true},
			{"POST " + pod + "/exec?command=sh", "", true},
			{"GET " + pod + "/exec?command=sh", upgrade, true},
			{"GET " + pod + "/exec?command=sh", "", true},
			{"GET " + pod + "/attach", upgrade, true},
			{"GET " + pod + "/portforward", upgrade, true},
			{"GET " + pod + "/proxy/", "", true},
			{"GET " + pod + "/proxy/shutdown", "", true},
			{"GET /api/v1/namespaces/default/services/https:a:443/proxy/x", "", true},
			{"GET /api/v1/nodes/a/proxy/run/default/a/c", "", true},
			{"GET /api/v1/proxy/namespaces/default/pods/a", "", true},
			{"GET /api/v1/watch/namespaces/default/pods/a/exec", upgrade, true},
			{"POST /api/v1/watch/pods", "", true},
			{"GET /apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/vnc", upgrade, true},
			{"GET " + pod + "//exec", "", true},
			{"GET /api/v1/namespaces/default/pods/../pods/a/exec", "", true},
			{"GET " + pod + "/log/..;/exec", "", true},
			{"GET " + pod + "/log", upgrade, true},
			{"GET /version", upgrade, true},
			{"GET " + pod, upgrade, true},
			{"POST " + pod + "/eviction", "", true},
			{"POST /api/v1/namespaces/default/serviceaccounts/a/token", "", true},
			{"POST /apis/authentication.k8s.io/v1/tokenreviews", "", true},
			{"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "", true},
			{"POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", "", true},
			{"POST " + accessReviews + "/", "", true},
			{"POST " + accessReviews, upgrade, true},
			{"PUT " + accessReviews, "", true},
			{"POST /metrics", "", true},
		} {
			for _, as := range []string{"X: y", "Impersonate-User: trusted"} {
				before := b.upstream.count()
				header := []string{as, "User-Agent: test"}
				if c.header != "" {
					header = append(header, c.header)
				}
				resp := b.gateway.Serve(t.Context(), request(c.line, header...))
				if resp.Stream != nil {
					resp.Stream.Stop()
				}
				resp.Done(0, nil)
				if rejected := resp.Status == 403; rejected != c.rejected || rejected && (b.upstream.count() > before || !strings.Contains(string(resp.Body), "restricts this client to reads")) {
					t.Errorf("%s %s as %q: %d %s", c.line, c.header, as, resp.Status, resp.Body)
				}
			}
			if status, body, _ := b.do(c.line, "Authorization: Bearer trusted"); c.rejected && status == 403 {
				t.Errorf("%s of somebody else: %s", c.line, body)
			}
		}
	})
}
