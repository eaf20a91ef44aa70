package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// aliceMayRead creates a namespace and lets alice read it, as the built-in role view would.
func aliceMayRead(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	// The role view is aggregated by a controller, which does not run here.
	_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"", rbacv1.GroupName}, Resources: []string{"namespaces", "nodes", "clusterroles"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: realkube.Alice}},
	}, metav1.CreateOptions{})
	must(t, err)
	for {
		if a := do(ctx, t, kube.URL(), kube.Token(realkube.Alice), "GET", "/api/v1/namespaces/"+namespace, ""); a.status == 200 {
			return
		}
		must(t, ctx.Err())
	}
}

// TestOneNamespaceIsNotAllNamespaces checks that a user who may read one namespace cannot list all
// namespaces, however the path is spelled. The gateway must respond to alice as kube-apiserver
// does.
func TestOneNamespaceIsNotAllNamespaces(t *testing.T) {
	ctx := deadline(t, time.Minute)
	aliceMayRead(ctx, t, "one-of-many")
	g := startGateway(t)
	const ns = "/api/v1/namespaces/one-of-many"
	// Fill the cache, so that it could serve the requests below.
	if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces?resourceVersion=0", ""); a.status != 200 {
		t.Fatal(a)
	}
	alice := kube.Token(realkube.Alice)
	if a := do(ctx, t, g.URL(), alice, "GET", ns+"?resourceVersion=0", ""); a.status != 200 {
		t.Fatalf("get of alice's own namespace: %s", a)
	}
	for _, path := range []string{
		ns + "/namespaces", ns + "/namespaces/one-of-many", ns + "/namespaces/kube-system", ns + "/namespaces/",
		"/api/v1/watch/namespaces/one-of-many/namespaces", "/api/v1/watch/namespaces/one-of-many/namespaces/kube-system",
		ns + "//namespaces", "/api/v1/namespaces//namespaces", "/api/v1//namespaces/one-of-many/namespaces",
		ns + "%2Fnamespaces", ns + "/nodes", ns + "/clusterroles", ns + "/status/namespaces",
	} {
		for _, query := range []string{"?watch=1&timeoutSeconds=1&resourceVersion=0", "?resourceVersion=0&timeoutSeconds=1", ""} {
			if query == "" && strings.Contains(path, "/watch/") {
				continue // the watch would not end
			}
			want := do(ctx, t, kube.URL(), alice, "GET", path+query, "")
			got := do(ctx, t, g.URL(), alice, "GET", path+query, "")
			if got.status != want.status || got.status == 200 || strings.Contains(got.body, "kube-public") {
				t.Errorf("%s%s: %s\nkube-apiserver: %s", path, query, got, want)
			}
		}
	}
}

// TestPathTailsAreTheClientsOwn checks that the gateway forwards requests with anything after the
// name of an object in the path unchanged, and never with its own credentials: proxies in between
// could resolve the path to another one.
func TestPathTailsAreTheClientsOwn(t *testing.T) {
	ctx := deadline(t, time.Minute)
	g := startGateway(t)
	for _, query := range []string{"", "?resourceVersion=0"} {
		const configMap = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
		for _, path := range []string{
			configMap + "//log", configMap + "//../../secrets", configMap + "/", configMap + "/.", configMap + "/../x", configMap + "//",
			"/api/v1/namespaces/kube-system/configmaps/..", "/api/v1/namespaces/../secrets", "/api/v1/namespaces/./configmaps",
			"/api/v1/namespaces/kube-system/configmaps/%2e%2e", "//api/v1/namespaces", "/api/v1/namespaces/kube-system/configmaps//",
		} {
			want := raw(t, kube.URL(), kube.AdminToken(), path+query)
			got := raw(t, g.URL(), kube.AdminToken(), path+query)
			if got.status != want.status {
				t.Errorf("%s%s: %s\nkube-apiserver: %s", path, query, got, want)
			}
		}
	}
	// All requests were forwarded with the client's credentials.
	m, err := g.Metrics(ctx)
	must(t, err)
	for _, source := range []string{"cached", "collapsed", "revalidated"} {
		if n := m.Sum("kubeweir_requests_total", map[string]string{"source": source}); n != 0 {
			t.Errorf("%v requests were %s", n, source)
		}
	}
}

// raw sends a GET over HTTP/1.1 with an unmodified path.
func raw(t *testing.T, url, token, target string) response {
	t.Helper()
	return roundTrip(t, dial(t, url, nil, "http/1.1"),
		fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", target, token))
}

// TestSelectorsThatAuthorizeAreThoseThatSelect checks that the field selector that authorizes a
// kubelet to list the pods of its own node is also the one that selects, whatever other parameters
// the request has.
func TestSelectorsThatAuthorizeAreThoseThatSelect(t *testing.T) {
	ctx := deadline(t, time.Minute)
	client, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	for _, node := range []string{"mine", "other"} {
		_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	g := startGateway(t)
	kubelet, err := kube.IssueClientCert("system:node:mine", "system:nodes")
	must(t, err)
	list := func(url, query string) response {
		return roundTrip(t, dial(t, url, &kubelet, "http/1.1"), "GET /api/v1/pods?"+query+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	}
	const own = "fieldSelector=spec.nodeName%3Dmine"
	if a := list(g.URL(), own); a.status != 200 || !strings.Contains(a.body, "on-mine") {
		t.Fatalf("list of a kubelet's own pods: %s", a)
	}
	for name, query := range map[string]string{
		"many parameters":           own + strings.Repeat("&a", 10_001),
		"many parameters, cached":   own + "&resourceVersion=0" + strings.Repeat("&a", 10_001),
		"many empty parameters":     own + strings.Repeat("&", 10_001),
		"some parameters":           own + strings.Repeat("&a", 200),
		"two selectors":             own + "&fieldSelector=",
		"two selectors, reversed":   "fieldSelector=&" + own,
		"semicolon":                 own + ";a=b",
		"bad escape":                own + "%zz",
		"fragment":                  "resourceVersion=0#&" + own,
		"a selector of many values": own + "&labelSelector=a+notin+%28" + strings.Repeat("v,", 500) + "v%29",
	} {
		want, got := list(kube.URL(), query), list(g.URL(), query)
		if got.status != want.status || strings.Contains(got.body, "on-other") {
			t.Errorf("%s: %s\nkube-apiserver: %s", name, got, want)
		}
	}
}
