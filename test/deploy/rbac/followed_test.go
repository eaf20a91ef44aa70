package rbac

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestFollowedResources removes list and watch on each resource that the gateway follows for
// itself.
func TestFollowedResources(t *testing.T) {
	rights := printed(t, false)
	for _, verb := range []string{"get", "list", "watch"} {
		rights = append(rights, right{verb, takenGroup, "gadgets"})
	}
	claimGroup(t)
	for _, c := range []struct {
		group, resource string
		change          func(*config.Gateway)
		// works checks the effect of the right or, if lacking, what happens without it.
		works func(t *testing.T, g *gateway, lacking bool)
	}{
		{"apiextensions.k8s.io", "customresourcedefinitions", nil, customAreCached},
		{"apiregistration.k8s.io", "apiservices", nil, takenGroupIsForwarded},
		{rbacv1.GroupName, "clusterrolebindings", hourLong, revoked(clusterRoleBindingGone)},
		{rbacv1.GroupName, "clusterroles", hourLong, revoked(clusterRoleEmpty)},
		{rbacv1.GroupName, "rolebindings", hourLong, revoked(roleBindingGone)},
		{rbacv1.GroupName, "roles", hourLong, revoked(roleEmpty)},
	} {
		for _, verb := range []string{"list", "watch", ""} {
			t.Run(strings.TrimRight(c.resource+"/"+verb, "/"), func(t *testing.T) {
				gone := right{verb, c.group, c.resource}
				if verb != "" && !slices.Contains(rights, gone) {
					t.Fatalf("%v is not printed", gone)
				}
				g := startGateway(t, strings.TrimRight("followed-"+c.resource+"-"+verb, "-"), rulesOf(without(rights, func(r right) bool { return r == gone })), c.change)
				if ready := g.ready(t); !strings.Contains(ready, "readyz check passed") {
					t.Errorf("not ready:\n%s", ready)
				}
				c.works(t, g, verb != "")
				missing, logged := g.metrics(t).Sum("kubeweir_upstream_missing_rights", nil), strings.Count(g.log.String(), "kubeweir rbac")
				if want := len(verb) > 0; (missing == 1) != want || (logged == 1) != want {
					t.Errorf("%v rights are missing, the log names the command %d times", missing, logged)
				}
			})
		}
	}
	known := []string{"customresourcedefinitions", "apiservices", "clusterrolebindings", "clusterroles", "rolebindings", "roles"}
	for _, r := range rights {
		if strings.HasSuffix(r.group, ".k8s.io") && (r.group == rbacv1.GroupName || strings.HasPrefix(r.group, "api")) && !slices.Contains(known, r.resource) {
			t.Errorf("no case covers %v", r)
		}
	}
}

func customAreCached(t *testing.T, g *gateway, lacking bool) {
	source := "cached"
	if lacking {
		source = "forwarded"
	}
	readFrom(t, g, "/apis/"+widgetGroup+"/v1/widgets?resourceVersion=0", 200, "widgets", source)
}

// readFrom reads as alice and checks the status and the source of the response.
func readFrom(t *testing.T, g *gateway, path string, status int, resource, source string) {
	t.Helper()
	if got, body := send(t, withToken(t, kube.Token(realkube.Alice)), "GET", g.url+path); got != status {
		t.Errorf("%s: %d %.200s, want %d", path, got, body, status)
	}
	if n := g.metrics(t).Sum("kubeweir_requests_total", map[string]string{"resource": resource, "source": source}); n == 0 {
		t.Errorf("%s was not %s", path, source)
	}
}

const takenGroup = "taken.example.com"

// claimGroup creates a custom resource in a group version that an APIService has assigned to
// another server, which does not exist.
func claimGroup(t *testing.T) {
	t.Helper()
	services, err := aggregator.NewForConfig(kube.AdminConfig())
	must(t, err)
	_, err = services.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistration.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + takenGroup},
		Spec: apiregistration.APIServiceSpec{
			Group: takenGroup, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistration.ServiceReference{Namespace: "default", Name: "nobody"},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	definitions, err := apiextensions.NewForConfig(kube.AdminConfig())
	must(t, err)
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition("gadgets", takenGroup), metav1.CreateOptions{})
	must(t, err)
	must(t, poll(t.Context(), func() error {
		d, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "gadgets."+takenGroup, metav1.GetOptions{})
		if err == nil && (len(d.Status.Conditions) < 2 || d.Status.AcceptedNames.Plural == "") {
			err = fmt.Errorf("not established: %v", d.Status)
		}
		return err
	}))
}

// takenGroupIsForwarded checks that clients do not get that custom resource's objects.
func takenGroupIsForwarded(t *testing.T, g *gateway, lacking bool) {
	alice := withToken(t, kube.Token(realkube.Alice))
	path := "/apis/" + takenGroup + "/v1/gadgets?resourceVersion=0"
	status, body := send(t, alice, "GET", g.url+path)
	if lacking {
		// Without the right, the gateway tries to cache it.
		if g.metrics(t).Sum("kubeweir_cache_feed_restarts_total", map[string]string{"resource": "gadgets"}) == 0 {
			t.Errorf("the gateway did not try to cache the resource of another server: %d %.200s", status, body)
		}
		return
	}
	if status != http.StatusServiceUnavailable {
		t.Errorf("%d %.200s", status, body)
	}
	if g.metrics(t).Sum("kubeweir_cache_feed_restarts_total", map[string]string{"resource": "gadgets"}) != 0 {
		t.Error("the gateway tried to cache the resource of another server")
	}
}

// hourLong caches permissions for longer than the test takes.
func hourLong(c *config.Gateway) {
	c.Authorization.AllowedTTL, c.Authorization.WatchRecheckPeriod = time.Hour, time.Hour
}

// revoked grants Bob a right in a namespace of its own, waits until the gateway caches that, and
// revokes it by changing one kind of object. Without the right to follow that kind the gateway
// keeps the cached decision.
func revoked(revoke func(ctx context.Context, name string) error) func(*testing.T, *gateway, bool) {
	return func(t *testing.T, g *gateway, lacking bool) {
		ctx, name := t.Context(), "revoked-"+strings.ToLower(strings.NewReplacer("/", "-").Replace(t.Name()))
		t.Cleanup(func() { forget(name) })
		must(t, grant(ctx, name))
		bob := withToken(t, kube.Token(realkube.Bob))
		path := g.url + "/api/v1/namespaces/kube-public/" + "endpoints?resourceVersion=0"
		if strings.Contains(t.Name(), "cluster") {
			path = g.url + "/api/v1/persistentvolumes?resourceVersion=0"
		}
		must(t, poll(ctx, func() error {
			if status, body := send(t, bob, "GET", path); status != 200 {
				return fmt.Errorf("%d %.200s", status, body)
			}
			return nil
		}))
		settled(t, g)
		if status, _ := send(t, bob, "GET", path); status != 200 {
			t.Fatal(status)
		}
		must(t, revoke(ctx, name))
		must(t, poll(ctx, func() error { return deniedUpstream(ctx, strings.Contains(t.Name(), "cluster")) }))
		if lacking {
			for range 10 {
				if status, body := send(t, bob, "GET", path); status != 200 {
					t.Fatalf("the gateway saw a change that it may not see: %d %.200s", status, body)
				}
			}
			return
		}
		must(t, poll(ctx, func() error {
			if status, _ := send(t, bob, "GET", path); status != 403 {
				return fmt.Errorf("still %d", status)
			}
			return nil
		}))
	}
}

// settled waits until the gateway caches decisions for their full TTL again: for one second after a
// change of RBAC objects, or after its start, it does not.
func settled(t *testing.T, g *gateway) {
	t.Helper()
	last, since := g.metrics(t).Sum("kubeweir_authorization_invalidations_total", nil), time.Now()
	must(t, poll(t.Context(), func() error {
		if now := g.metrics(t).Sum("kubeweir_authorization_invalidations_total", nil); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 1200*time.Millisecond {
			return fmt.Errorf("decisions were dropped %v ago", time.Since(since))
		}
		return nil
	}))
}

func deniedUpstream(ctx context.Context, cluster bool) error {
	attributes := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "endpoints", Namespace: "kube-public"}
	if cluster {
		attributes = &authorizationv1.ResourceAttributes{Verb: "list", Resource: "persistentvolumes"}
	}
	review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: realkube.Bob, ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	if err == nil && review.Status.Allowed {
		err = fmt.Errorf("kube-apiserver still allows it")
	}
	return err
}

// grant lets Bob list persistentvolumes, and endpoints in kube-public.
func grant(ctx context.Context, name string) error {
	meta := metav1.ObjectMeta{Name: name}
	rule := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{resource}}}
	}
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: realkube.Bob}}
	client := admin.RbacV1()
	if _, err := client.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rule("persistentvolumes")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.Roles("kube-public").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rule("endpoints")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RoleBindings("kube-public").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	return err
}

// forget undoes grant.
func forget(name string) {
	ctx := context.Background()
	_ = admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
	_ = admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
	_ = admin.RbacV1().RoleBindings("kube-public").Delete(ctx, name, metav1.DeleteOptions{})
	_ = admin.RbacV1().Roles("kube-public").Delete(ctx, name, metav1.DeleteOptions{})
}

func clusterRoleBindingGone(ctx context.Context, name string) error {
	return admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
}

func clusterRoleEmpty(ctx context.Context, name string) error {
	_, err := admin.RbacV1().ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	return err
}

func roleBindingGone(ctx context.Context, name string) error {
	return admin.RbacV1().RoleBindings("kube-public").Delete(ctx, name, metav1.DeleteOptions{})
}

func roleEmpty(ctx context.Context, name string) error {
	_, err := admin.RbacV1().Roles("kube-public").Update(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	return err
}
