package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// visibleBench is a gateway whose upstream allows what the RBAC objects do, as they are at the moment.
type visibleBench struct {
	*gatewayBench
	reviews []authorizationv1.SubjectAccessReviewSpec // guarded by upstream.mu
	objects rbac.Objects                              // guarded by upstream.mu
	denied  string                                    // a namespace that another authorizer denies; guarded by upstream.mu
}

func rbacResource(i int, kind string) *source.Resource {
	gvr := rbac.GroupVersionResources()[i]
	return &source.Resource{GroupVersionResource: gvr, Kind: kind, Namespaced: i < 2, Schema: object.SchemaFor(gvr)}
}

func newVisibleBench(t testing.TB, change func(*Options)) *visibleBench {
	t.Helper()
	return newVisibleBenchFrom(t, func(s *cachetest.Source) source.Source { return s }, change)
}

// newVisibleBenchFrom has another source, made of that in memory.
func newVisibleBenchFrom(t testing.TB, from func(*cachetest.Source) source.Source, change func(*Options)) *visibleBench {
	t.Helper()
	others := []*source.Resource{
		{GroupVersionResource: route.Namespaces, Kind: "Namespace", Schema: object.SchemaFor(route.Namespaces)},
		rbacResource(0, "Role"), rbacResource(1, "RoleBinding"), rbacResource(2, "ClusterRole"), rbacResource(3, "ClusterRoleBinding"),
	}
	b := &visibleBench{gatewayBench: newGatewayBenchFrom(t, others, from, func(o *Options) {
		o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"jane", "eve"}}, Settings: policy.Settings{VisibleLists: policy.Yes}}}
		o.Policy.Limits.Resumed = 4
		if change != nil {
			change(o)
		}
	})}
	b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
		b.reviews = append(b.reviews, *r)
		return b.allows(r)
	}
	for _, gvr := range rbac.GroupVersionResources() { // as rbac.Follow does
		res, ok := b.gateway.Resources.Lookup(gvr)
		if !ok {
			t.Fatalf("no %s", gvr.Resource)
		}
		if _, err := b.gateway.Manager.Collection(t.Context(), res, api.JSON); err != nil {
			t.Fatal(err)
		}
	}
	b.create(2, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}}}})
	return b
}

// allows decides as kube-apiserver does.
func (b *visibleBench) allows(r *authorizationv1.SubjectAccessReviewSpec) bool {
	a := r.ResourceAttributes
	if a.Namespace != "" && a.Namespace == b.denied {
		return false
	}
	return rbac.New(b.objects).Allow(&user.DefaultInfo{Name: r.User, Groups: r.Groups}, &authz.Attributes{
		ResourceRequest: true, Verb: a.Verb, APIGroup: a.Group, APIVersion: a.Version, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name,
	})
}

// create makes an RBAC object, of which the gateway hears a moment later.
func (b *visibleBench) create(i int, o cachetest.Object) {
	b.upstream.mu.Lock()
	switch o := o.(type) {
	case *rbacv1.Role:
		b.objects.Roles = append(b.objects.Roles, o)
	case *rbacv1.RoleBinding:
		b.objects.RoleBindings = append(b.objects.RoleBindings, o)
	case *rbacv1.ClusterRole:
		b.objects.ClusterRoles = append(b.objects.ClusterRoles, o)
	case *rbacv1.ClusterRoleBinding:
		b.objects.ClusterRoleBindings = append(b.objects.ClusterRoleBindings, o)
	}
	b.upstream.mu.Unlock()
	b.source.Create(rbac.GroupVersionResources()[i], o)
}

func binding(namespace, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: subjects,
	}
}

var jane = rbacv1.Subject{Kind: rbacv1.UserKind, Name: "jane"}

// grant lets subjects view what is in namespaces.
func (b *visibleBench) grant(subject rbacv1.Subject, in ...string) {
	for _, namespace := range in {
		one := binding(namespace, "view", subject)
		one.Name = subject.Name
		b.create(1, one)
	}
	b.changed()
}

// revoke takes the rights of a user in a namespace.
func (b *visibleBench) revoke(user, namespace string) {
	b.upstream.mu.Lock()
	b.objects.RoleBindings = slices.DeleteFunc(b.objects.RoleBindings, func(r *rbacv1.RoleBinding) bool {
		return r.Namespace == namespace && r.Name == user
	})
	b.upstream.mu.Unlock()
	b.source.Delete(rbac.GroupVersionResources()[1], namespace+"/"+user)
	b.changed()
}

// changed is what rbac.Follow does.
func (b *visibleBench) changed() {
	time.Sleep(10 * time.Millisecond)
	b.gateway.Authorizer.Invalidate()
}

// fill makes namespaces, with n pods in each.
func (b *visibleBench) fill(n int, namespace ...string) {
	for _, ns := range namespace {
		b.source.Create(route.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		for i := range n {
			b.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("%s/%s%d", ns, ns, i), "node", "n="+ns))
		}
	}
}

// reviewed is how many reviews there have been.
func (b *visibleBench) reviewed() int {
	b.upstream.mu.Lock()
	defer b.upstream.mu.Unlock()
	return len(b.reviews)
}

const asJane = "Authorization: Bearer jane"

// TestVisibleLists: who may not list all namespaces is shown those that they may list, in every way to read.
func TestVisibleLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(2, "a", "a-b", "b", "c")
		b.grant(jane, "a", "a-b", "c")
		const pods, all = "GET /api/v1/pods", "a-b0 a-b1 a0 a1 c0 c1"
		for _, c := range []struct{ line, want string }{
			{pods, all},
			{pods + "?resourceVersion=0", all},
			{pods + "?resourceVersion=1", all},
			{pods + "?limit=500", all},
			{pods + "?fieldSelector=metadata.name=a1", "a1"},
			{pods + "?fieldSelector=metadata.namespace=a", "a0 a1"},
			{pods + "?fieldSelector=metadata.namespace=a,metadata.name=a1", "a1"},
			{pods + "?labelSelector=n", all},
			{pods + "?labelSelector=n%20in%20(a,b)", "a0 a1"},
			{pods + "?sortBy=-.metadata.name&where=.metadata.namespace!=c", "a1 a0 a-b1 a-b0"},
			{pods + "?" + wholeShard, all},
			{"GET /api/v1/namespaces", "a a-b c"},
			{"GET /api/v1/namespaces?resourceVersion=0", "a a-b c"},
			{"GET /api/v1/namespaces?fieldSelector=metadata.name=c", "c"},
			{"GET /api/v1/namespaces/a/pods?resourceVersion=0", "a0 a1"},
		} {
			status, body, h := b.do(c.line, asJane)
			if status != 200 || names(t, body) != c.want {
				t.Errorf("%s: %d %s\nwant %s", c.line, status, body, c.want)
				continue
			}
			n := 3
			if strings.Contains(c.line, "metadata.namespace=") || strings.Contains(c.line, "metadata.name=c") {
				n = 1
			}
			want := fmt.Sprintf(`299 kubeweir "only %d namespaces that you may list"`, n)
			if n == 1 {
				want = `299 kubeweir "only 1 namespace that you may list"`
			}
			if strings.Contains(c.line, "/namespaces/") {
				want = ""
			}
			if got := h.Get("Warning"); got != want {
				t.Errorf("%s: Warning %q, want %q", c.line, got, want)
			}
		}
		for _, line := range []string{
			pods + "?fieldSelector=metadata.namespace=b", "GET /api/v1/namespaces?fieldSelector=metadata.name=b", "GET /api/v1/namespaces/b/pods?resourceVersion=0",
		} {
			if status, body, _ := b.do(line, asJane); status != 403 {
				t.Errorf("%s: %d %s", line, status, body)
			}
		}
		if status, body, h := b.do(pods+"?resourceVersion=0", "Authorization: Bearer eve"); status != 403 || h.Get("Warning") != "" || !strings.Contains(body, `cannot list resource \"pods\" in API group \"\" at the cluster scope"`) {
			t.Errorf("nothing is visible: %d %s", status, body)
		}
		b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, "b")
		if status, body, _ := b.do(pods+"?resourceVersion=0", "Authorization: Bearer joe"); status != 403 {
			t.Errorf("without a rule: %d %s", status, body)
		}
		if n := b.upstream.count(); n != 0 {
			t.Errorf("%d requests went to the upstream", n)
		}
	})
}

// TestVisiblePages: the pages show one set, and their counts are of it; a set that has changed is 410.
func TestVisiblePages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(3, "a", "a-b", "b", "c")
		b.grant(jane, "a", "a-b", "c")
		for _, query := range []string{"", "sortBy=.metadata.uid&", "resourceVersion=1&resourceVersionMatch=NotOlderThan&"} {
			var got []string
			left, token := 9, ""
			for token != "" || left == 9 {
				line := "GET /api/v1/pods?" + query + "limit=2"
				if token != "" {
					line = "GET /api/v1/pods?" + strings.TrimPrefix(query, "resourceVersion=1&resourceVersionMatch=NotOlderThan&") + "limit=2&continue=" + token
				}
				status, body, _ := b.do(line, asJane)
				if status != 200 {
					t.Fatalf("%s: %d %s", line, status, body)
				}
				meta := listMeta(t, body)
				left -= 2
				if remaining := meta.RemainingItemCount; (left > 0) != (remaining != nil) || remaining != nil && *remaining != int64(left) {
					t.Errorf("%s: remaining %v, want %d", line, remaining, left)
				}
				got = append(got, strings.Fields(names(t, body))...)
				token = meta.Continue
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != "a-b0 a-b1 a-b2 a0 a1 a2 c0 c1 c2" {
				t.Errorf("%q: %s", query, text)
			}
		}
		b.expireAfter("revoked", func() { b.revoke("jane", "c") })
		b.expireAfter("granted", func() { b.grant(jane, "b") })
		b.expireAfter("all", func() {
			b.create(3, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{jane}})
			b.changed()
		})
	})
}

// expireAfter checks that the pages of lists that were begun before a change cannot be had after it.
func (b *visibleBench) expireAfter(name string, change func()) {
	b.t.Helper()
	var next []string
	for _, line := range []string{"GET /api/v1/pods?limit=2", "GET /api/v1/pods?limit=2&sortBy=.metadata.name"} {
		status, body, _ := b.do(line, asJane)
		if status != 200 {
			b.t.Fatalf("%s: %d %s", name, status, body)
		}
		next = append(next, line+"&continue="+listMeta(b.t, body).Continue)
	}
	change()
	for _, line := range next {
		if status, body, _ := b.do(line, asJane); status != 410 || !strings.Contains(body, `"reason":"Expired"`) || !strings.Contains(body, "namespaces that you may list have changed") {
			b.t.Errorf("%s: %s: %d %s", name, line, status, body)
		}
	}
}

func listMeta(t testing.TB, list string) metav1.ListMeta {
	t.Helper()
	var l struct{ Metadata metav1.ListMeta }
	if err := json.Unmarshal([]byte(list), &l); err != nil {
		t.Fatalf("%v: %.200s", err, list)
	}
	return l.Metadata
}

// TestVisibleReviews: a set costs a review for each of its namespaces, once, with the attributes of a list of just that.
func TestVisibleReviews(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a", "b", "c", "d")
		b.grant(jane, "a", "b", "c")
		b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, "d")
		time.Sleep(2 * time.Second) // changes have settled
		read := func(line string, want int) {
			t.Helper()
			before := b.reviewed()
			if status, body, _ := b.do(line, asJane); status != 200 {
				t.Errorf("%s: %d %s", line, status, body)
			}
			if n := b.reviewed() - before; n != want {
				t.Errorf("%s: %d reviews, want %d: %+v", line, n, want, b.reviews[before:])
			}
		}
		const pods = "GET /api/v1/pods?resourceVersion=0"
		read(pods, 1+3)
		read(pods, 0)
		read("GET /api/v1/namespaces/a/pods?resourceVersion=0", 0) // what was confirmed counts for it, too
		b.grant(jane, "d")
		read(pods, 1+1) // the whole, and what is new; the others are as good as before
		b.revoke("jane", "a")
		read(pods, 1)
		time.Sleep(4 * time.Second)
		before := b.reviewed()
		b.do("GET /api/v1/pods?resourceVersion=0&labelSelector=x%3Dy&fieldSelector=spec.nodeName%3Dn", asJane)
		for _, r := range b.reviews[before:] {
			a := r.ResourceAttributes
			if a.Verb != "list" || a.Version != "v1" || a.Resource != "pods" || a.LabelSelector == nil || a.FieldSelector == nil || a.Name != "" {
				t.Errorf("%+v", a)
			}
		}
		time.Sleep(10 * time.Second)
		read(pods, 1+3) // nothing is believed for longer than a decision
		b.upstream.mu.Lock()
		b.denied = "b" // by another authorizer
		b.upstream.mu.Unlock()
		time.Sleep(10 * time.Second)
		_, body, _ := b.do(pods, asJane)
		if got := names(t, body); got != "c0 d0" {
			t.Errorf("what another authorizer denies is shown: %s", got)
		}
	})
}

// TestVisibleNames: a Namespace is shown to who may get it: by its own name, by a role of the cluster that names it, or by one
// for all of them that allows no list.
func TestVisibleNames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(0, "a", "b", "c")
		getter := func(name string, names ...string) {
			b.create(2, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: names}}})
			b.create(3, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{jane}})
			b.changed()
		}
		getter("named", "b", "not-there")
		list := func(want string) {
			t.Helper()
			status, body, _ := b.do("GET /api/v1/namespaces?resourceVersion=0", asJane)
			if status != 200 || names(t, body) != want {
				t.Errorf("%d %s\nwant %s", status, body, want)
			}
		}
		list("b")
		if status, _, _ := b.do("GET /api/v1/namespaces?watch=1", asJane); status != 403 {
			t.Errorf("a watch by a right to get: %d", status)
		}
		if status, _, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 403 {
			t.Errorf("pods by a right to namespaces: %d", status)
		}
		b.grant(jane, "c")
		list("b c")
		getter("every")
		list("a b c")
		_, body, _ := b.do("GET /api/v1/namespaces?limit=2", asJane)
		next := "GET /api/v1/namespaces?limit=2&continue=" + listMeta(t, body).Continue
		if status, body, _ := b.do(next, asJane); status != 200 || names(t, body) != "c" {
			t.Errorf("the next page: %d %s", status, body)
		}
		b.fill(0, "d")
		time.Sleep(10 * time.Millisecond)
		if status, body, _ := b.do(next, asJane); status != 410 {
			t.Errorf("the next page, with another namespace: %d %s", status, body)
		}
		list("a b c d")
		b.source.Delete(route.Namespaces, "b")
		time.Sleep(10 * time.Millisecond)
		list("a c d")
	})
}

// TestVisibleWatch: a watch shows the changes in the visible namespaces, and ends with 410 when these become others.
func TestVisibleWatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.gateway.Revocation.Run(ctx)
		}()
		defer func() { stop(); <-done }()
		b.fill(1, "a", "b", "c")
		b.grant(jane, "a", "c")
		time.Sleep(2 * time.Second)
		for _, c := range []struct {
			name, target string
			change       func()
			within       time.Duration
		}{
			{"revoked", "pods", func() { b.revoke("jane", "c") }, 2 * time.Second},
			{"granted", "pods", func() { b.grant(jane, "c") }, 2 * time.Second},
			{"revoked", "namespaces", func() { b.revoke("jane", "c") }, 2 * time.Second},
			{"granted", "namespaces", func() { b.grant(jane, "c") }, 2 * time.Second},
			{"watch revoked, get left", "namespaces", func() {
				b.revoke("jane", "c")
				b.create(2, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "get"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}}})
				b.create(1, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "get"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "get"}, Subjects: []rbacv1.Subject{jane}})
				b.changed()
			}, 2 * time.Second},
			{"granted", "namespaces", func() { b.grant(jane, "c") }, 2 * time.Second},
			{"granted all", "namespaces", func() {
				b.create(2, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"watch"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}}})
				b.create(3, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}, Subjects: []rbacv1.Subject{jane}})
				b.changed()
			}, 2 * time.Second},
			{"denied by another authorizer", "pods", func() { b.upstream.mu.Lock(); b.denied = "c"; b.upstream.mu.Unlock() }, 75 * time.Second},
		} {
			w := b.watch("GET /api/v1/"+c.target+"?watch=1", asJane)
			if got := w.text(); strings.Contains(got, `"name":"b`) || !strings.Contains(got, `"name":"a`) || !strings.Contains(got, `"name":"c`) && c.name != "granted" {
				t.Errorf("%s: begins with %s", c.name, got)
			}
			before := b.reviewed()
			b.source.Create(cachetest.Pods, cachetest.Pod("b/hidden", ""))
			b.source.Create(cachetest.Pods, cachetest.Pod("a/seen", ""))
			b.grant(rbacv1.Subject{Kind: rbacv1.UserKind, Name: "joe"}, "b")
			time.Sleep(5 * time.Second)
			got := w.text()
			if strings.Contains(got, "hidden") || strings.Contains(got, "seen") != (c.target == "pods") || w.ended() {
				t.Errorf("%s: goes on with %s", c.name, got)
			}
			if n := b.reviewed() - before; n != 0 {
				t.Errorf("%s: %d reviews for what concerns somebody else", c.name, n)
			}
			c.change()
			time.Sleep(c.within - 20*time.Millisecond)
			if got := w.text(); !w.ended() || !strings.Contains(got, `"reason":"Expired"`) || !strings.Contains(got, `"code":410`) {
				t.Errorf("%s: after %v it has %s", c.name, c.within, got)
			}
			w.leave()
			b.source.Delete(cachetest.Pods, "b/hidden")
			b.source.Delete(cachetest.Pods, "a/seen")
			b.revoke("joe", "b")
			time.Sleep(time.Minute) // the next watch confirms all anew
		}
	})
}

// TestVisibleBadInput: what the cache does not answer is refused, and nothing of it is asked with the rights of the gateway.
func TestVisibleBadInput(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a", "b")
		b.grant(jane, "a")
		b.source.NoTimeouts()
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 403, Body: []byte("upstream")} }
		other := api.ContinueToken{ResourceVersion: 100, Start: "b/a\x00"}
		others := other
		others.Within = object.NewNamespaces([]string{"a", "b"}, false).ID()
		gone := other
		gone.ResourceVersion, gone.Within = 3, object.NewNamespaces([]string{"a"}, false).ID()
		for line, want := range map[string]int{
			"GET /api/v1/pods?limit=1&continue=" + other.Encode():           410,
			"GET /api/v1/pods?limit=1&continue=" + others.Encode():          410,
			"GET /api/v1/pods?limit=1&continue=" + gone.Encode():            410,
			"GET /api/v1/pods?limit=1&continue=x":                           400,
			"GET /api/v1/pods?resourceVersion=99999":                        504,
			"GET /api/v1/pods?resourceVersion=3&resourceVersionMatch=Exact": 410,
			"GET /api/v1/pods?watch=1&resourceVersion=3":                    200, // and an ERROR event

			"GET /api/v1/pods?resourceVersion=100&limit=1&fieldSelector=metadata.name=a0": 410,
			"GET /api/v1/pods?resourceVersion=00":                                         403,
			"GET /api/v1/pods?resourceVersion=0&fieldSelector=spec.foo=x":                 403,
			"GET /api/v1/pods?resourceVersion=0&unknown=1":                                403,
			"GET /api/v1/pods?sortBy=.metadata.name&watch=1":                              400,
			"DELETE /api/v1/pods":                                                         403,
			"DELETE /api/v1/namespaces/b/pods":                                            403,
			"HEAD /api/v1/pods":                                                           403,
			"GET /api/v1/nodes?resourceVersion=0":                                         403,
			"GET /api/v1/pods/x?resourceVersion=0":                                        403,
			"GET /api/v1/namespaces/b/pods/b0?x":                                          403,
			"POST /api/v1/namespaces/b/pods":                                              403,
			"GET /api/v1/watch/pods?resourceVersion=0":                                    200,
		} {
			if status, body, h := b.do(line, asJane); status != want || strings.Contains(body, `"b0"`) || status >= 400 && h.Get("Warning") != "" {
				t.Errorf("%s: %d %s, want %d", line, status, body, want)
			}
		}
	})
}

// TestVisibleMany: a user with 10,000 namespaces is answered, and their other requests meanwhile.
func TestVisibleMany(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		rights := binding("n0", "view", jane)
		all := make([]string, 10_000)
		for i := range all {
			all[i] = fmt.Sprintf("n%d", i)
			one := rights.DeepCopy()
			one.Namespace = all[i]
			b.source.Create(rbac.GroupVersionResources()[1], one)
		}
		b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool {
			return r.User == "jane" && r.ResourceAttributes.Namespace != ""
		}
		b.source.Create(cachetest.Pods, cachetest.Pod("n77/a", ""))
		b.source.Create(cachetest.Pods, cachetest.Pod("other/a", ""))
		b.changed()
		status, body, h := b.do("GET /api/v1/pods?resourceVersion=0", asJane)
		if status != 200 || names(t, body) != "a" || !strings.Contains(h.Get("Warning"), "only 10000 namespaces") {
			t.Errorf("%d %s %v", status, body, h)
		}
	})
}

// TestVisibleBounds: who may list in more namespaces than there is room for is refused.
func TestVisibleBounds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, func(o *Options) { o.VisibleNamespaces = 4 * (32 + 4) })
		b.fill(1, "a", "b", "c", "d")
		b.grant(jane, "a", "b", "c")
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		w := b.watch("GET /api/v1/pods?watch=1", asJane)
		if status, body, _ := b.do("GET /api/v1/pods?watch=1&labelSelector=x", asJane); status != 429 {
			t.Errorf("a watch too many: %d %s", status, body)
		}
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 200 {
			t.Errorf("a list that is not remembered: %d %s", status, body)
		}
		w.leave()
		b.watch("GET /api/v1/pods?watch=1&labelSelector=x", asJane).leave()
		b.grant(jane, "d")
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", asJane); status != 403 || !strings.Contains(body, "more than 3") {
			t.Errorf("%d %s", status, body)
		}
	})
}

// visibleWatch is an open watch and what it has sent.
type visibleWatch struct {
	stream api.Stream
	done   func(int64, error)

	mu     sync.Mutex
	got    strings.Builder
	closed bool
}

func (b *visibleBench) watch(line string, header ...string) *visibleWatch {
	b.t.Helper()
	resp := b.gateway.Serve(b.t.Context(), request(line, header...))
	if resp.Status != 200 || resp.Stream == nil {
		b.t.Fatalf("%s: %d %s", line, resp.Status, resp.Body)
	}
	w := &visibleWatch{stream: resp.Stream, done: resp.Done}
	w.stream.Start(w)
	return w
}

func (w *visibleWatch) WriteFrames(frames [][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range frames {
		w.got.Write(f)
	}
	return nil
}

func (w *visibleWatch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *visibleWatch) Abort() { w.Close() }

// text is what came since it was asked for last.
func (w *visibleWatch) text() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.got.Reset()
	return w.got.String()
}

func (w *visibleWatch) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// leave is the client's.
func (w *visibleWatch) leave() {
	w.stream.Stop()
	w.done(0, nil)
}

// TestVisibleWatchFromBeforeHistory: it cannot be forwarded, and is served from the cache once the history reaches back.
func TestVisibleWatchFromBeforeHistory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newVisibleBench(t, nil)
		b.fill(1, "a", "b")
		b.grant(jane, "a")
		from := b.source.Revision()
		b.source.Create(cachetest.Pods, cachetest.Pod("b/hidden", ""))
		b.source.Create(cachetest.Pods, cachetest.Pod("a/seen", ""))
		b.source.Bump(1)
		b.do("GET /api/v1/pods?resourceVersion=0", asJane)
		w := b.watch(fmt.Sprintf("GET /api/v1/pods?watch=1&resourceVersion=%d", from), asJane)
		if got := w.text(); strings.Contains(got, "hidden") || !strings.Contains(got, `"name":"seen"`) || strings.Contains(got, "ERROR") {
			t.Errorf("%s", got)
		}
		w.leave()
	})
}
