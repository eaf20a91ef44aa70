package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"foos","singular":"foo","kind":"Foo"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{"size":{"type":"integer","minimum":1,"default":2}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// TestCustomResources: a definition, its resource, and what discovery and documents say.
func TestCustomResources(t *testing.T) {
	ctx, _, config := start(t)
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(definition), &crd.Object); err != nil {
		t.Fatal(err)
	}
	definitions := d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	w, err := definitions.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if body, err := e.Object.(*unstructured.Unstructured).MarshalJSON(); err == nil && strings.Contains(string(body), `"type":"Established"`) && strings.Contains(string(body), "the initial names have been accepted") {
			break
		}
	}
	foos := d.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "foos"}).Namespace("default")
	foo := func(name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Foo", "metadata": map[string]any{"name": name}, "spec": spec}}
	}
	var made *unstructured.Unstructured
	// A client that sees at once that a definition is established may be ahead of the server's own
	// watch, as with kube-apiserver.
	if err := retry.OnError(retry.DefaultBackoff, apierrors.IsNotFound, func() (err error) {
		made, err = foos.Create(ctx, foo("a", map[string]any{}), metav1.CreateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(made.Object, "spec", "size"); size != 2 || made.GetGeneration() != 1 {
		t.Errorf("made %v", made.Object)
	}
	if _, err := foos.Create(ctx, foo("b", map[string]any{"size": int64(0)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("below the minimum: %v", err)
	}
	applied, err := foos.Apply(ctx, "a", foo("a", map[string]any{"size": int64(5)}), metav1.ApplyOptions{FieldManager: "t", Force: true})
	if err != nil || applied.GetGeneration() != 2 {
		t.Errorf("applied: %v, %v", applied, err)
	}
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion("example.com/v1")
	if err != nil || len(resources.APIResources) != 2 {
		t.Errorf("discovery: %v, %v", resources, err)
	}
	if status, _, body := get(t, config, "/openapi/v3/apis/example.com/v1"); status != http.StatusOK || !strings.Contains(body, "com.example.v1.Foo") {
		t.Errorf("its document: %d", status)
	}
	if status, _, body := get(t, config, "/openapi/v2"); status != http.StatusOK || !strings.Contains(body, "com.example.v1.Foo") || !strings.Contains(body, "io.k8s.api.apps.v1.Deployment") {
		t.Errorf("the document of all: %d", status)
	}
}

// TestDiscovery: groups, aggregated discovery with its ETag, documents, version.
func TestDiscovery(t *testing.T) {
	_, _, config := start(t)
	_, resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for _, r := range resources {
		groups = append(groups, r.GroupVersion)
	}
	slices.Sort(groups)
	want := []string{
		"admissionregistration.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", "apps/v1", "authentication.k8s.io/v1",
		"authorization.k8s.io/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1", "certificates.k8s.io/v1", "coordination.k8s.io/v1",
		"discovery.k8s.io/v1", "events.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1", "networking.k8s.io/v1", "node.k8s.io/v1", "policy/v1",
		"rbac.authorization.k8s.io/v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1", "storagemigration.k8s.io/v1", "v1",
	}
	if !slices.Equal(groups, want) {
		t.Errorf("served: %q", groups)
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		status, header, _ := get(t, config, path, "Accept", aggregated)
		if status != http.StatusOK || header.Get("Content-Type") != aggregated || header.Get("ETag") == "" {
			t.Errorf("%s: %d %v", path, status, header)
		}
		if status, _, _ := get(t, config, path, "Accept", aggregated, "If-None-Match", header.Get("ETag")); status != http.StatusNotModified {
			t.Errorf("%s again: %d", path, status)
		}
	}
	for path, part := range map[string]string{
		"/version":                          `"gitVersion": "v1.37`,
		"/openapi/v2":                       `"BearerToken"`,
		"/openapi/v3":                       `"apis/apps/v1"`,
		"/openapi/v3/apis/apps/v1":          `"io.k8s.api.apps.v1.Deployment"`,
		"/.well-known/openid-configuration": `"jwks_uri"`,
		"/openid/v1/jwks":                   `"keys"`,
		"/apis/apps/v1":                     `"deployments/scale"`,
		"/apis/apps/v1/":                    `"storageVersionHash":"8aSe+NMegvE="`,
		"/apis/apiregistration.k8s.io/v1":   `"storageVersionHash":"InPBPD7+PqM="`,
		"/apis/apiextensions.k8s.io/v1":     `"storageVersionHash":"jfWCUB31mvA="`,
	} {
		if status, _, body := get(t, config, path); status != http.StatusOK || !strings.Contains(body, part) {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	if status, _, body := get(t, config, "/apis/nothing.example.com/v1/things"); status != http.StatusNotFound || body != "404 page not found\n" {
		t.Errorf("what there is not: %d %q", status, body)
	}
}

// TestPermissions: anonymous clients, service accounts, impersonation.
func TestPermissions(t *testing.T) {
	ctx, s, config := start(t)
	admin := client(t, config)
	anonymous := listen(t, s, nil)
	if status, _, _ := get(t, anonymous, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	if status, _, body := get(t, anonymous, "/api/v1/pods"); status != http.StatusForbidden || !strings.Contains(body, `pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope`) {
		t.Errorf("pods: %d %s", status, body)
	}
	if status, _, body := get(t, config, "/api/v1/pods", "Authorization", "Bearer wrong"); status != http.StatusUnauthorized {
		t.Errorf("a wrong token wins over the connection: %d %s", status, body)
	}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := rest.CopyConfig(anonymous)
	robot.BearerToken = token.Status.Token
	review, err := client(t, robot).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "system:serviceaccount:default:robot" {
		t.Errorf("%v, %v", review, err)
	}
	if _, err := client(t, robot).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v", err)
	}
	impersonating := rest.CopyConfig(config)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	if _, err := client(t, impersonating).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane"`) {
		t.Errorf("as jane: %v", err)
	}
	// Nobody gives what they do not have.
	_, err = client(t, robot).RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "up"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("escalation: %v", err)
	}
}
