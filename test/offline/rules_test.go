package offline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	kuberbac "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
)

// world generates random RBAC objects and requests from few words, so that they often match.
type world struct{ *rand.Rand }

func (w world) one(of ...string) string { return of[w.IntN(len(of))] }

func (w world) some(of ...string) (list []string) {
	for range w.IntN(3) {
		list = append(list, w.one(of...))
	}
	return list
}

func (w world) many(of ...string) []string { return append(w.some(of...), w.one(of...)) }

func (w world) rules() (rules []rbacv1.PolicyRule) {
	for range 1 + w.IntN(2) {
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: w.many("get", "list", "*"), APIGroups: w.many("", "apps", "*"),
			Resources:     w.many("pods", "pods/log", "*/log", "*", "deployments", "*/", "pods/*"),
			ResourceNames: w.some("a", "b", ""), NonResourceURLs: w.some("/healthz", "/healthz/*", "*", "/api*", ""),
		})
	}
	return rules
}

func (w world) subjects() (list []rbacv1.Subject) {
	for range 1 + w.IntN(3) {
		list = append(list, rbacv1.Subject{
			Kind:      w.one(rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind, "Robot"),
			Namespace: w.one("", "one", "two"), Name: w.one("jane", "dev", "ops", "robot", "system:serviceaccount:one:robot"),
		})
	}
	return list
}

func (w world) objects() (o rbac.Objects) {
	names, namespaces := []string{"x", "y"}, []string{"one", "two"}
	meta := func(namespace string, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	ref := func() rbacv1.RoleRef {
		return rbacv1.RoleRef{Kind: w.one("Role", "ClusterRole", "ClusterRole", "Other"), Name: w.one("x", "y", "none")}
	}
	for _, name := range names {
		o.ClusterRoles = append(o.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: w.rules()})
		if w.IntN(2) == 0 {
			o.ClusterRoleBindings = append(o.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", name), RoleRef: ref(), Subjects: w.subjects()})
		}
		for _, ns := range namespaces {
			o.Roles = append(o.Roles, &rbacv1.Role{ObjectMeta: meta(ns, name), Rules: w.rules()})
			o.RoleBindings = append(o.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta(ns, name), RoleRef: ref(), Subjects: w.subjects()})
		}
	}
	return o
}

func (w world) question() (user.Info, authz.Attributes) {
	u := &user.DefaultInfo{Name: w.one("jane", "joe", "system:serviceaccount:one:robot", "system:serviceaccount:two:robot"), Groups: w.many("dev", "ops")}
	if w.IntN(4) == 0 {
		return u, authz.Attributes{Verb: w.one("get", "post"), Path: w.one("/healthz", "/healthz/etcd", "/api", "/apis/apps")}
	}
	return u, authz.Attributes{
		ResourceRequest: true, Verb: w.one("get", "list", "delete"), APIGroup: w.one("", "apps"), APIVersion: "v1",
		Resource: w.one("pods", "deployments"), Subresource: w.one("", "", "log", "scale"),
		Namespace: w.one("", "one", "two"), Name: w.one("", "a", "b"),
	}
}

// TestRBACMatchesKubernetes compares the decisions of proxy/authz/rbac with kube-apiserver's own
// RBAC authorizer.
func TestRBACMatchesKubernetes(t *testing.T) {
	allowed, requested := 0, 0
	for seed := range uint64(400) {
		w := world{rand.New(rand.NewPCG(seed, 1))}
		o := w.objects()
		_, static := validation.NewTestRuleResolver(o.Roles, o.RoleBindings, o.ClusterRoles, o.ClusterRoleBindings)
		oracle := kuberbac.New(static, static, static, static)
		rules := rbac.New(o)
		for range 50 {
			u, a := w.question()
			decision, _, _ := oracle.Authorize(t.Context(), authorizer.AttributesRecord{
				User: u, Verb: a.Verb, APIGroup: a.APIGroup, APIVersion: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource,
				Namespace: a.Namespace, Name: a.Name, ResourceRequest: a.ResourceRequest, Path: a.Path,
			})
			want := decision == authorizer.DecisionAllow
			if got := rules.Allow(u, &a); got != want {
				t.Fatalf("allowed: %v, want %v: user %+v, request %+v, RBAC objects %s", got, want, u, a, fmt.Sprintf("%+v", o))
			}
			if names, everywhere := rules.Namespaces(u, &a, false); want && a.Namespace != "" && !everywhere && !slices.Contains(names, a.Namespace) {
				t.Fatalf("namespace %s is allowed but missing in %q: user %+v, request %+v, RBAC objects %+v", a.Namespace, names, u, a, o)
			}
			requested++
			if want {
				allowed++
			}
		}
	}
	if allowed < requested/50 || allowed > requested/2 {
		t.Errorf("%d of %d requests are allowed: the generated objects and requests rarely match", allowed, requested)
	}
}
