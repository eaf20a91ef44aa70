package rbac

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kubeweir/kubeweir/config"
)

// short writes a rule as "verbs group: resources".
func short(rule rbacv1.PolicyRule) string {
	s := strings.Join(rule.Verbs, ",") + " " + strings.Join(rule.APIGroups, ",") + ": " + strings.Join(rule.Resources, ",")
	if len(rule.NonResourceURLs) > 0 {
		s += "paths " + strings.Join(rule.NonResourceURLs, ",")
	}
	return s
}

func TestRules(t *testing.T) {
	const (
		crds     = "list,watch apiextensions.k8s.io: customresourcedefinitions"
		services = "list,watch apiregistration.k8s.io: apiservices"
		decides  = "list,watch rbac.authorization.k8s.io: clusterrolebindings,clusterroles,rolebindings,roles"
		tokens   = "create authentication.k8s.io: tokenreviews"
		access   = "create authorization.k8s.io: subjectaccessreviews"
		pods     = "get,list,watch : pods"
	)
	for _, c := range []struct {
		name      string
		change    func(*config.Gateway)
		resources []string
		wide      bool
		want      []string
	}{
		{"tokens", func(*config.Gateway) {}, []string{"pods"}, false, []string{pods, crds, services, decides, tokens, access}},
		{"sidecar", func(c *config.Gateway) { c.Listen, c.InsecureListen = "", "127.0.0.1:8080" }, []string{"pods"}, false,
			[]string{pods, crds, services}},
		{"sidecar with a CA that nobody is asked by", func(c *config.Gateway) {
			c.Listen, c.InsecureListen, c.Authentication.ClientCAFile = "", "127.0.0.1:8080", "ca.crt"
		}, []string{"pods"}, false, []string{pods, crds, services}},
		{"sidecar with a token", func(c *config.Gateway) { c.ServiceAccountDir = "sa" }, []string{"pods"}, false,
			[]string{pods, crds, services}},
		{"servers found by slices", func(c *config.Gateway) { c.UpstreamServers = []string{"endpointslices"} }, []string{"pods"}, false,
			[]string{pods, crds, services, "list,watch discovery.k8s.io: endpointslices", decides, tokens, access}},
		{"certificates", func(c *config.Gateway) { c.Authentication.ClientCAFile = "ca.crt" }, []string{"pods"}, true,
			[]string{pods, crds, services, decides, tokens, access,
				"impersonate : groups,serviceaccounts,users", "impersonate authentication.k8s.io: uids," + credentialID}},
		{"proxies", func(c *config.Gateway) { c.Authentication.RequestHeader.CAFile = "ca.crt" }, []string{"pods"}, true,
			[]string{pods, crds, services, decides, tokens, access,
				"impersonate : groups,serviceaccounts,users", "impersonate authentication.k8s.io: *"}},
		{"constrained", func(c *config.Gateway) { c.Authentication.ClientCAFile = "ca.crt" }, []string{"pods"}, false,
			[]string{pods, crds, services, decides, tokens, access,
				"impersonate:user-info authentication.k8s.io: groups,users,uids," + credentialID,
				"impersonate-on:user-info:get,impersonate-on:user-info:list,impersonate-on:user-info:watch,impersonate-on:user-info:create," +
					"impersonate-on:user-info:update,impersonate-on:user-info:patch,impersonate-on:user-info:delete,impersonate-on:user-info:deletecollection *: *",
				"impersonate-on:user-info:get : paths *"}},
		{"everything", func(*config.Gateway) {}, []string{"*"}, false, []string{"get,list,watch *: *", tokens, access}},
		{"all of a group that is followed", func(*config.Gateway) {}, []string{"*.rbac.authorization.k8s.io"}, false,
			[]string{"get,list,watch rbac.authorization.k8s.io: *", crds, services, tokens, access}},
		{"some of what is followed", func(*config.Gateway) {}, []string{"roles.rbac.authorization.k8s.io"}, false,
			[]string{crds, services, "get,list,watch rbac.authorization.k8s.io: roles",
				"list,watch rbac.authorization.k8s.io: clusterrolebindings,clusterroles,rolebindings", tokens, access}},
		{"an aggregated group", func(c *config.Gateway) { c.CacheAggregatedGroups = []string{"projects.example.com"} }, []string{"pods"}, false,
			[]string{pods, "get,list,watch projects.example.com: *", crds, services, decides, tokens, access}},
	} {
		cfg := config.Default()
		c.change(cfg)
		rules, err := Rules(cfg, Options{Resources: c.resources, UnconstrainedImpersonation: c.wide})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, rule := range Policy(rules) {
			got = append(got, short(rule))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestNoRightTwice: a right that two rules give is one too many, and none is a
// wildcard, or of Secrets, that was not asked for.
func TestNoRightTwice(t *testing.T) {
	cfg := config.Default()
	cfg.Authentication.ClientCAFile = "ca.crt"
	for _, resources := range [][]string{nil, {"default", "pods", "pods"}, {"default", "widgets.example.com"}} {
		rules, err := Rules(cfg, Options{Resources: resources, UnconstrainedImpersonation: true})
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[[3]string]bool)
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					right := [3]string{verb, rule.APIGroups[0], resource}
					if seen[right] || resource == "*" || resource == "secrets" || len(rule.APIGroups) != 1 {
						t.Errorf("%q: %v", resources, right)
					}
					seen[right] = true
				}
			}
		}
	}
}

func TestParseResources(t *testing.T) {
	for _, c := range []struct {
		name, want string // want is part of the error, "" for none
	}{
		{"pods", ""}, {"deployments.apps", ""}, {"*.cert-manager.io", ""}, {"certificates.cert-manager.io", ""}, {"secrets", ""},
		{"default", ""}, {"*", ""}, {"v1things.example.com", ""},
		{"pod", `did you mean pods?`},
		{"deployments", `did you mean deployments.apps?`},
		{"event.events.k8s.io", `did you mean events or events.events.k8s.io?`},
		{"widgets", `"widgets": the core group has no such resource`},
		{"deployment.v1.apps", `write deployment.apps`},
		{"pods.v1", `write pods`},
		{"apps/v1", "without version or subresource"}, {"pods/log", "without version or subresource"},
		{"Pods", `"Pods" is not a resource`}, {"", `"" is not a resource`}, {"po ds", "is not a resource"}, {"*.", "is not a resource"},
		{"secrets*", "is not a resource"}, {"a..b", "is not a resource"},
	} {
		_, err := ParseResources([]string{c.name})
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %q", c.name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: more than one line", c.name)
		}
	}
	def, err := ParseResources(nil)
	if err != nil {
		t.Fatal(err)
	}
	named, err := ParseResources([]string{Default})
	if err != nil || !reflect.DeepEqual(def, named) || def.Secrets() || !def.has("apps", "deployments") {
		t.Errorf("%v %v", def, err)
	}
}
