package rbac

import (
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/discovery"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// A right is one verb on one resource; for non-resource URLs, resource is the path.
type right struct{ verb, group, resource string }

func (r right) String() string { return strings.TrimSuffix(r.verb+" "+r.resource+"."+r.group, ".") }

// rightsOf splits rules into rights.
func rightsOf(rules []rbacv1.PolicyRule) (all []right) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, right{verb, "path", path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all = append(all, right{verb, group, resource})
				}
			}
		}
	}
	return all
}

// rulesOf returns rules that grant the rights.
func rulesOf(rights []right) (rules []rbacv1.PolicyRule) {
	for _, r := range rights {
		rule := rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}}
		if r.group == "path" {
			rule = rbacv1.PolicyRule{Verbs: []string{r.verb}, NonResourceURLs: []string{r.resource}}
		}
		rules = append(rules, rule)
	}
	return rules
}

// without returns the rights that gone does not select.
func without(rights []right, gone func(right) bool) []right {
	return slices.DeleteFunc(slices.Clone(rights), gone)
}

// printed returns the rights that are printed for a configuration with custom resources.
func printed(t *testing.T, constrained bool) []right {
	t.Helper()
	rules, err := rbac.Rules(gatewayConfig(t), rbac.Options{
		Resources: []string{rbac.Default, "widgets." + widgetGroup}, UnconstrainedImpersonation: !constrained,
	})
	must(t, err)
	return rightsOf(rbac.Policy(rules))
}

// A served is a resource that can be cached, in its preferred version.
type served struct {
	group, resource, path string // path is that of the list, onePath that of an object that does not exist
	onePath               string
}

// servedResources returns the resources that kube-apiserver can list and watch.
func servedResources(t *testing.T) (all []served) {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(kube.AdminConfig()).ServerPreferredResources()
	if !discovery.IsGroupDiscoveryFailedError(err) { // the group of TestFollowedResources has no server
		must(t, err)
	}
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		root := "/apis/" + list.GroupVersion + "/"
		if !grouped {
			group, root = "", "/api/v1/"
		}
		for _, r := range list.APIResources {
			if group == takenGroup || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			one := root
			if r.Namespaced {
				one += "namespaces/default/"
			}
			all = append(all, served{group, r.Name, root + r.Name, one + r.Name + "/absent"})
		}
	}
	return all
}

// TestDefaultResources checks that the default contains exactly kube-apiserver's built-in resources
// except Secrets.
func TestDefaultResources(t *testing.T) {
	rules, err := rbac.Rules(config.Default(), rbac.Options{})
	must(t, err)
	var got, want []string
	for _, r := range rightsOf(rbac.Policy(rules)) {
		if r.verb == "watch" {
			got = append(got, r.resource+"."+r.group)
		}
	}
	for _, s := range servedResources(t) {
		if s.group != widgetGroup && s.resource != "secrets" {
			want = append(want, s.resource+"."+s.group)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("config/rbac/builtin.go has\n%q\nkube-apiserver\n%q", got, want)
	}
}

// TestCachedResources checks that without get, list or watch on a resource its reads are forwarded,
// with the same responses, while resources with these rights are served from the cache. The rights
// are numbered. For each bit of the numbers, one gateway lacks the rights with that bit set,
// another those without it. So for any two rights there is a gateway that lacks one and has the
// other, which shows that each is needed by itself.
func TestCachedResources(t *testing.T) {
	t.Parallel()
	resources := slices.DeleteFunc(servedResources(t), func(s served) bool {
		// Secrets are not printed; every service account may read trust bundles
		// (system:cluster-trust-bundle-discovery).
		return s.resource == "secrets" && s.group == "" || s.resource == "clustertrustbundles"
	})
	rights, removable := printed(t, false), removableOf(resources)
	for _, r := range removable {
		if !slices.Contains(rights, r) {
			t.Errorf("%v is not printed", r)
		}
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		readEach(t, startGateway(t, "cached-whole", rulesOf(rights), nil), resources, rights)
	})
	for bit := range bits.Len(uint(len(removable) - 1)) {
		for gone := range 2 {
			t.Run(fmt.Sprintf("%d/%d", bit, gone), func(t *testing.T) {
				t.Parallel()
				left := without(rights, func(r right) bool {
					i := slices.Index(removable, r)
					return i >= 0 && i>>bit&1 == gone
				})
				readEach(t, startGateway(t, fmt.Sprintf("cached-%d-%d", bit, gone), rulesOf(left), nil), resources, left)
			})
		}
	}
}

// removableOf returns the rights on cached resources, except those that the gateway itself needs,
// too (TestFollowedResources).
func removableOf(resources []served) (all []right) {
	for _, s := range resources {
		all = append(all, right{"get", s.group, s.resource})
		if !slices.Contains([]string{"apiextensions.k8s.io", "apiregistration.k8s.io", rbacv1.GroupName}, s.group) {
			all = append(all, right{"list", s.group, s.resource}, right{"watch", s.group, s.resource})
		}
	}
	return all
}

// readEach gets and lists each resource and checks that exactly the reads without a right are
// forwarded.
func readEach(t *testing.T, g *gateway, resources []served, rights []right) {
	t.Helper()
	alice := withToken(t, kube.Token(realkube.Alice))
	has := func(verb string, s served) bool { return slices.Contains(rights, right{verb, s.group, s.resource}) }
	for _, s := range resources {
		responds(404, "", alice, "GET", s.onePath)(t, g)
		responds(200, "", alice, "GET", s.path+"?resourceVersion=0")(t, g)
	}
	metrics := g.metrics(t)
	for _, s := range resources {
		checkSource(t, metrics, "get", s, "collapsed", has("get", s))
		checkSource(t, metrics, "list", s, "cached", has("list", s) && has("watch", s))
	}
}

// checkSource expects that the only read of a resource had the source, or was forwarded if may is
// false.
func checkSource(t *testing.T, metrics realkube.Metrics, verb string, s served, source string, may bool) {
	t.Helper()
	if !may {
		source = "forwarded"
	}
	if n := metrics.Sum("kubeweir_requests_total", map[string]string{
		"verb": verb, "group": s.group, "resource": s.resource, "source": source,
	}); n != 1 {
		t.Errorf("%s of %s.%s was not %s", verb, s.resource, s.group, source)
	}
}

// A removal is a right, and the effect of removing it.
type removal struct {
	right  right
	effect func(t *testing.T, g *gateway)
}

// responds returns an effect: the response to a request has a status and contains a text.
func responds(status int, text string, c *http.Client, method, path string, header ...string) func(*testing.T, *gateway) {
	return func(t *testing.T, g *gateway) {
		t.Helper()
		if got, body := send(t, c, method, g.url+path, header...); got != status || !strings.Contains(body, text) {
			t.Errorf("%s %s: %d %.300s, want %d with %q", method, path, got, body, status, text)
		}
	}
}

const (
	configMaps   = "/api/v1/namespaces/default/configmaps"
	notRequested = "cannot authenticate or authorize the request"
	notInName    = "cannot forward the request as its user: it lacks the right to impersonate"
	aConfigMap   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`
	dryRun       = "?dryRun=All"
)

// TestEachRight removes one right after the other, except those on cached resources
// (TestCachedResources) and followed ones (TestFollowedResources).
func TestEachRight(t *testing.T) {
	t.Parallel()
	token := withToken(t, kube.Token(realkube.Alice))
	certificate := withCertificate(t, carol)
	write := func(header ...string) func(*testing.T, *gateway) {
		return responds(503, notInName, certificate, "POST", configMaps+dryRun, append(header, aConfigMap)...)
	}
	removals := []removal{
		{right{"create", "authentication.k8s.io", "tokenreviews"}, responds(503, notRequested, token, "GET", configMaps)},
		{right{"create", "authorization.k8s.io", "subjectaccessreviews"}, responds(503, notRequested, token, "GET", configMaps+"?resourceVersion=0")},
		{right{"impersonate", "", "users"}, write()},
		{right{"impersonate", "", "groups"}, write()},
		{right{"impersonate", "", "serviceaccounts"}, write("Impersonate-User: system:serviceaccount:default:robot")},
		{right{"impersonate", "authentication.k8s.io", "uids"}, write("Impersonate-User: alice", "Impersonate-Uid: alice-uid")},
		{right{"impersonate", "authentication.k8s.io", "userextras/authentication.kubernetes.io/credential-id"}, write()},
	}
	tryRemovals(t, "each", printed(t, false), removals, func(r right) bool { return r.verb == "get" || r.verb == "list" || r.verb == "watch" })
}

// TestEachRightOfConstrainedImpersonation is TestEachRight for the rules of KEP-5284.
func TestEachRightOfConstrainedImpersonation(t *testing.T) {
	t.Parallel()
	certificate := withCertificate(t, carol)
	const who, group = "impersonate:user-info", "authentication.k8s.io"
	on := func(verb string) right { return right{"impersonate-on:user-info:" + verb, "*", "*"} }
	rejected := func(method, path string, header ...string) func(*testing.T, *gateway) {
		return responds(503, notInName, certificate, method, path, header...)
	}
	write := func(header ...string) func(*testing.T, *gateway) {
		return rejected("POST", configMaps+dryRun, append(header, aConfigMap)...)
	}
	const forwarded = "?unknown=1" // an unknown parameter makes the gateway forward the request
	removals := []removal{
		{right{who, group, "users"}, write()}, {right{who, group, "groups"}, write()},
		{right{who, group, "uids"}, write("Impersonate-User: alice", "Impersonate-Uid: alice-uid")},
		{right{who, group, "userextras/authentication.kubernetes.io/credential-id"}, write()},
		{on("create"), write()},
		{on("get"), rejected("GET", configMaps+"/c"+forwarded)}, {on("list"), rejected("GET", configMaps+forwarded)},
		{on("watch"), rejected("GET", configMaps+"?watch=1&unknown=1")},
		{on("update"), rejected("PUT", configMaps+"/kube-root-ca.crt"+dryRun, aConfigMap)},
		{on("patch"), rejected("PATCH", configMaps+"/c"+dryRun, "{}")},
		{on("delete"), rejected("DELETE", configMaps+"/c"+dryRun)}, {on("deletecollection"), rejected("DELETE", configMaps+dryRun)},
		{right{"impersonate-on:user-info:get", "path", "*"}, rejected("GET", "/metrics")},
	}
	all := printed(t, true)
	tryRemovals(t, "narrow", all, removals, func(r right) bool { return !strings.HasPrefix(r.verb, "impersonate") })

	t.Run("nothing taken away", func(t *testing.T) {
		g := startGateway(t, "narrow-whole", rulesOf(all), nil)
		for _, c := range []struct {
			method, path string
			status       int
			header       []string
		}{
			{"POST", configMaps + dryRun, 201, []string{aConfigMap}},
			{"POST", configMaps + dryRun, 201, []string{"Impersonate-User: alice", "Impersonate-Uid: alice-uid", aConfigMap}},
			{"GET", configMaps + "/c" + forwarded, 404, nil}, {"GET", configMaps + forwarded, 200, nil}, {"GET", configMaps + "?watch=1&unknown=1", 200, nil},
			{"PATCH", configMaps + "/c" + dryRun, 404, []string{"{}"}}, {"DELETE", configMaps + "/c" + dryRun, 404, nil}, {"DELETE", configMaps + dryRun, 200, nil},
			{"GET", "/metrics", 200, nil}, {"GET", "/version", 200, nil}, {"GET", "/openapi/v3", 200, nil}, {"GET", "/apis", 200, nil},
		} {
			if status, body := send(t, certificate, c.method, g.url+c.path, c.header...); status != c.status {
				t.Errorf("%s %s: %d %.300s, want %d", c.method, c.path, status, body, c.status)
			}
		}
		// Users that these rules do not allow to impersonate.
		for _, user := range []*http.Client{withCertificate(t, "root", "system:masters"), withCertificate(t, "system:node:n", "system:nodes")} {
			responds(503, notInName, user, "POST", configMaps+dryRun, aConfigMap)(t, g)
		}
	})
}

// tryRemovals starts a gateway without each right that elsewhere does not select. Each must be
// among removals.
func tryRemovals(t *testing.T, prefix string, rights []right, removals []removal, elsewhere func(right) bool) {
	for i, r := range rights {
		if elsewhere(r) {
			continue
		}
		at := slices.IndexFunc(removals, func(o removal) bool { return o.right == r })
		if at < 0 {
			t.Errorf("no removal covers %v", r)
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, fmt.Sprintf("%s-%d", prefix, i), rulesOf(without(rights, func(o right) bool { return o == r })), nil)
			removals[at].effect(t, g)
			if lines := strings.Count(g.log.String(), "kubeweir rbac"); lines != 1 {
				t.Errorf("the log names the command %d times", lines)
			}
		})
	}
	for _, r := range removals {
		if !slices.Contains(rights, r.right) {
			t.Errorf("%v is not printed", r.right)
		}
	}
}
