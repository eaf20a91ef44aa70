package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	allowedNamespace  = "permissions-yes"
	rejectedNamespace = "permissions-no"
	// revocationTime is how long a permission may outlive its binding.
	revocationTime = 2 * time.Second
)

// representations are all representations in which objects are read.
var representations = []string{typeJSON, typeProto, typeTable, typeMeta, typeMetaList, typeMetaPB, "application/yaml", ""}

// reads returns the ways to read ConfigMaps below a collection's path.
func reads(collection, name, version string) []request {
	var out []request
	for _, accept := range representations {
		for _, rv := range []string{"", "0", version} {
			q := ""
			if rv != "" {
				q = "resourceVersion=" + rv
			}
			out = append(out,
				request{path: collection + "?" + q, accept: accept},
				request{path: collection + "?watch=true&timeoutSeconds=1&" + q, accept: accept},
			)
			if name != "" {
				out = append(out, request{path: collection + "/" + name + "?" + q, accept: accept})
			}
		}
	}
	return out
}

func configMapsIn(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// TestPermissions checks that the gateway rejects every read that kube-apiserver would reject.
func TestPermissions(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, allowedNamespace, rejectedNamespace)
	typed, _ := directClients(t)
	version := ""
	for _, ns := range []string{allowedNamespace, rejectedNamespace} {
		for _, name := range []string{"one", "two"} {
			cm, err := typed.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"secret": "of " + ns},
			}, metav1.CreateOptions{})
			must(t, err)
			version = cm.ResourceVersion
		}
	}
	g := startGateway(t)
	t.Run("refused, not cached", func(t *testing.T) { testRejected(ctx, t, g, version) })
	t.Run("refused, cached", func(t *testing.T) {
		warmUp(ctx, t, g)
		testRejected(ctx, t, g, version)
	})
	t.Run("one namespace", func(t *testing.T) { testOneNamespace(ctx, t, g, version) })
	t.Run("one name", func(t *testing.T) { testOneName(ctx, t, g) })
	t.Run("revoked", func(t *testing.T) { testRevoked(ctx, t, g) })
	t.Run("revoked everywhere", func(t *testing.T) { testRevokedEverywhere(ctx, t, g) })
	t.Run("revoked by role", func(t *testing.T) { testRevokedByRole(ctx, t, g) })
}

// warmUp fills the cache with ConfigMaps, in both encodings.
func warmUp(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	t.Helper()
	admin := through(t, g, as(realkube.Admin))
	for _, accept := range []string{typeJSON, typeProto} {
		if a := admin.get(ctx, t, "/api/v1/configmaps?resourceVersion=0", accept); a.status != http.StatusOK {
			t.Fatalf("list: %s", a)
		}
	}
}

// testRejected compares the rejections for a user without any permissions.
func testRejected(ctx context.Context, t *testing.T, g *realkube.Gateway, version string) {
	up, gw := direct(t, as(realkube.Alice)), through(t, g, as(realkube.Alice))
	for _, r := range reads(configMapsIn(rejectedNamespace), "one", version) {
		sameResponse(ctx, t, up, gw, r, http.StatusForbidden)
	}
	for _, r := range reads("/api/v1/configmaps", "", version) {
		sameResponse(ctx, t, up, gw, r, http.StatusForbidden)
	}
	for _, path := range []string{
		configMapsIn(rejectedNamespace) + "/absent?resourceVersion=0",
		"/api/v1/namespaces/absent/configmaps?resourceVersion=0",
		"/apis/example.com/v1/widgets?resourceVersion=0",
		"/api/v1/nodes/absent?resourceVersion=0",
		configMapsIn(rejectedNamespace) + "?resourceVersion=0&limit=1",
		configMapsIn(rejectedNamespace) + "?resourceVersion=abc",
		configMapsIn(rejectedNamespace) + "?labelSelector=((",
		configMapsIn(rejectedNamespace) + "?fieldSelector=metadata.name%3Done&resourceVersion=0",
		"/api/v1/watch/configmaps?timeoutSeconds=1",
		"/metrics", "/logs",
	} {
		sameResponse(ctx, t, up, gw, request{path: path}, http.StatusForbidden)
	}
}

// testOneNamespace checks that a RoleBinding allows reads in its namespace only.
func testOneNamespace(ctx context.Context, t *testing.T, g *realkube.Gateway, version string) {
	newRights(t).inNamespace(ctx, allowedNamespace, "one-namespace", realkube.Alice, readers())
	up, gw := direct(t, as(realkube.Alice)), through(t, g, as(realkube.Alice))
	allowed := configMapsIn(allowedNamespace) + "?resourceVersion=0"
	awaitStatus(ctx, t, gw, allowed, http.StatusOK)
	var requests sync.WaitGroup // concurrently, because each watch takes a second
	for _, r := range reads(configMapsIn(allowedNamespace), "two", version) {
		requests.Go(func() { sameStatus(ctx, t, up, gw, r) })
	}
	requests.Wait()
	for _, accept := range []string{typeJSON, typeProto, typeMeta, typeMetaPB} {
		for _, rv := range []string{"", "?resourceVersion=0", "?resourceVersion=" + version} {
			sameResponse(ctx, t, up, gw, request{path: configMapsIn(allowedNamespace) + "/two" + rv, accept: accept}, http.StatusOK)
		}
	}
	for _, r := range reads(configMapsIn(rejectedNamespace), "one", version) {
		sameResponse(ctx, t, up, gw, r, http.StatusForbidden)
	}
	for _, r := range reads("/api/v1/configmaps", "", version) {
		sameResponse(ctx, t, up, gw, r, http.StatusForbidden)
	}
	// A field selector on the namespace does not make a cluster-wide list a list of the namespace.
	sameResponse(ctx, t, up, gw, request{path: "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3D" + allowedNamespace}, http.StatusForbidden)
	w := gw.mustWatch(ctx, t, request{path: configMapsIn(allowedNamespace) + "?watch=true"}, 0, true)
	eventually(ctx, t, waitTimeout, func() error {
		if !w.has(api.Added, allowedNamespace+"/one") {
			return fmt.Errorf("the watch received %v", w.seen().Events)
		}
		return nil
	})
}

// testOneName checks that resourceNames allow gets, and lists and watches of that name, only.
func testOneName(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	newRights(t).inNamespace(ctx, allowedNamespace, "one-name", realkube.Bob, readers("one"))
	up, gw := direct(t, as(realkube.Bob)), through(t, g, as(realkube.Bob))
	collection := configMapsIn(allowedNamespace)
	awaitStatus(ctx, t, gw, collection+"/one?resourceVersion=0", http.StatusOK)
	for path, want := range map[string]int{
		"/one":                               http.StatusOK,
		"/one?resourceVersion=0":             http.StatusOK,
		"/two":                               http.StatusForbidden,
		"/two?resourceVersion=0":             http.StatusForbidden,
		"?fieldSelector=metadata.name%3Done": http.StatusOK,
		"?fieldSelector=metadata.name%3Done&resourceVersion=0":  http.StatusOK,
		"?fieldSelector=metadata.name%3Dtwo&resourceVersion=0":  http.StatusForbidden,
		"?fieldSelector=metadata.name!%3Done&resourceVersion=0": http.StatusForbidden,
		"?resourceVersion=0":           http.StatusForbidden,
		"?watch=true&timeoutSeconds=1": http.StatusForbidden,
		"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dtwo":                         http.StatusForbidden,
		"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Done&resourceVersion=0":       http.StatusOK,
		"?labelSelector=a%3Db&resourceVersion=0":                                                 http.StatusForbidden,
		"?fieldSelector=metadata.name%3Done,metadata.namespace%3D" + allowedNamespace:            http.StatusOK,
		"?fieldSelector=metadata.name%3Done,metadata.name%3Dtwo&resourceVersion=0":               http.StatusOK,
		"?fieldSelector=metadata.name%3Done&resourceVersion=0&resourceVersionMatch=NotOlderThan": http.StatusOK,
	} {
		r := request{path: collection + path}
		if want == http.StatusForbidden {
			sameResponse(ctx, t, up, gw, r, want)
		} else {
			sameStatus(ctx, t, up, gw, r)
		}
	}
}

// testRevoked checks that lists are rejected and open watches end soon after a RoleBinding is
// deleted.
func testRevoked(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	r := newRights(t)
	r.inNamespace(ctx, allowedNamespace, "revoked", realkube.Jane, readers())
	checkRevocation(ctx, t, g, configMapsIn(allowedNamespace), func() { r.revoke(ctx, allowedNamespace, "revoked") })
}

func testRevokedEverywhere(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	r := newRights(t)
	r.everywhere(ctx, "e2e-revoked-everywhere", realkube.Jane, readers())
	checkRevocation(ctx, t, g, "/api/v1/configmaps", func() { r.revokeEverywhere(ctx, "e2e-revoked-everywhere") })
}

// testRevokedByRole removes the rule from the Role; the binding stays.
func testRevokedByRole(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	r := newRights(t)
	r.inNamespace(ctx, allowedNamespace, "emptied", realkube.Jane, readers())
	checkRevocation(ctx, t, g, configMapsIn(allowedNamespace), func() {
		roles := r.client.RbacV1().Roles(allowedNamespace)
		role, err := roles.Get(ctx, "emptied", metav1.GetOptions{})
		must(t, err)
		role.Rules = nil
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		must(t, err)
	})
}

// checkRevocation opens watches as Jane, revokes her permission, and measures how long lists
// succeed and watches stay open.
func checkRevocation(ctx context.Context, t *testing.T, g *realkube.Gateway, collection string, revoke func()) {
	t.Helper()
	jane := through(t, g, as(realkube.Jane))
	awaitStatus(ctx, t, jane, collection+"?resourceVersion=0", http.StatusOK)
	jane1 := newClient(t, "gateway", g.URL(), as(realkube.Jane), false)
	var watches []*stream
	for _, c := range []*client{jane, jane1} {
		for _, accept := range []string{typeJSON, typeProto, typeTable} {
			watches = append(watches, c.mustWatch(ctx, t, request{path: collection + "?watch=true", accept: accept}, 0, true))
		}
	}
	admin := through(t, g, as(realkube.Admin)).mustWatch(ctx, t, request{path: collection + "?watch=true"}, 0, true)
	eventually(ctx, t, waitTimeout, func() error {
		for _, w := range watches {
			if !w.has(api.Added, allowedNamespace+"/one") {
				return fmt.Errorf("%s received %v", w.request, w.seen().Events)
			}
		}
		return nil
	})

	revoke()
	began := time.Now()
	for _, accept := range representations[:3] {
		r := request{path: collection + "?resourceVersion=0", accept: accept}
		eventually(ctx, t, revocationTime, func() error {
			a, err := jane.send(ctx, r)
			if err != nil {
				return err
			}
			if a.status != http.StatusForbidden {
				return fmt.Errorf("%s: still %d", r, a.status)
			}
			return nil
		})
	}
	lists := time.Since(began)
	for _, w := range watches {
		if err := w.await(max(time.Millisecond, revocationTime-time.Since(began))); err != nil {
			t.Error(err)
		}
	}
	t.Logf("lists were rejected after %s, watches had ended after %s", lists.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if !admin.open() {
		t.Errorf("the administrator's watch ended, too: %v", admin.ended)
	}
}

// awaitStatus waits until a permission just granted is effective.
func awaitStatus(ctx context.Context, t *testing.T, c *client, path string, want int) {
	t.Helper()
	eventually(ctx, t, waitTimeout, func() error {
		a, err := c.send(ctx, request{path: path})
		if err != nil {
			return err
		}
		if a.status != want {
			return fmt.Errorf("%s %s: %s, want %d", c.name, path, a, want)
		}
		return nil
	})
}
