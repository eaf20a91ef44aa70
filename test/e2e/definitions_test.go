package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const definitionsNamespace = "definitions"

var gadgetsResource = schema.GroupVersionResource{Group: "e2e.example.com", Version: "v1", Resource: "gadgets"}

// gadgetDefinition returns a CustomResourceDefinition without printer columns and selectable
// fields.
func gadgetDefinition(kind, scope string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.e2e.example.com"},
		"spec": map[string]any{
			"group": "e2e.example.com", "scope": scope,
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"spec": map[string]any{
						"type": "object", "properties": map[string]any{"color": map[string]any{"type": "string"}},
					}},
				}},
			}},
		},
	}}
}

func gadget(kind, name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "e2e.example.com/v1", "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color},
	}}
}

// listVersion matches the version of a list or table, which is that of the server's cache.
var listVersion = regexp.MustCompile(`"metadata":\{"resourceVersion":"\d+"\}`)

// TestDefinitions creates, changes, deletes and recreates a custom resource while the gateway runs.
func TestDefinitions(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, definitionsNamespace)
	_, generic := directClients(t)
	crds, objects := generic.Resource(definitions), generic.Resource(gadgetsResource)
	g := startGateway(t)
	up, gw := direct(t, as(realkube.Admin)), through(t, g, as(realkube.Admin))
	const path = "/apis/e2e.example.com/v1/gadgets"
	same := func(step string, requests ...request) {
		t.Helper()
		for _, r := range requests {
			eventually(ctx, t, waitTimeout, func() error { return sameList(ctx, step, up, gw, r) })
		}
	}
	table, bySelector := request{path: path + "?resourceVersion=0", accept: typeTable}, request{path: path + "?resourceVersion=0&fieldSelector=spec.color%3Dred"}
	same("before", table)

	makeDefinition(ctx, t, crds, objects, gadgetDefinition("Gadget", "Namespaced"))
	_, err := objects.Namespace(definitionsNamespace).Create(ctx, gadget("Gadget", "one", "red"), metav1.CreateOptions{})
	must(t, err)
	same("made", table, bySelector, request{path: path + "?resourceVersion=0"}, request{path: "/apis/e2e.example.com/v1"})
	eventually(ctx, t, waitTimeout, func() error { return servedFromCache(ctx, g, gw, table) })
	first := gw.mustWatch(ctx, t, request{path: path + "?watch=true"}, 0, true)

	_, err = crds.Patch(ctx, "gadgets.e2e.example.com", types.JSONPatchType, []byte(`[
		{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"Color","type":"string","jsonPath":".spec.color"}]},
		{"op":"add","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".spec.color"}]}]`), metav1.PatchOptions{})
	must(t, err)
	same("changed", table, bySelector, request{path: path + "?resourceVersion=0&fieldSelector=spec.color%3Dblue"})
	// kube-apiserver and the gateway end the watches of a resource whose definition changes.
	must(t, first.await(10*time.Second))
	if first.ended != nil || first.status() != nil {
		t.Errorf("the watch of a changed resource ended with %v, %v", first.ended, first.status())
	}

	second := gw.mustWatch(ctx, t, request{path: path + "?watch=true", accept: typeTable}, 0, true)
	must(t, crds.Delete(ctx, "gadgets.e2e.example.com", metav1.DeleteOptions{}))
	same("deleted", table, bySelector, request{path: "/apis/e2e.example.com/v1"})
	must(t, second.await(10*time.Second))
	if key := definitionsNamespace + "/one"; !second.has(api.Deleted, key) {
		t.Errorf("the watch of a deleted resource received no deletions of its objects: %v", second.seen().Events)
	}

	makeDefinition(ctx, t, crds, objects, gadgetDefinition("Machine", "Cluster"))
	t.Cleanup(func() { _ = crds.Delete(context.Background(), "gadgets.e2e.example.com", metav1.DeleteOptions{}) })
	_, err = objects.Create(ctx, gadget("Machine", "two", "blue"), metav1.CreateOptions{})
	must(t, err)
	same("made anew", table, request{path: path + "?resourceVersion=0"}, request{path: path + "/two?resourceVersion=0"},
		request{path: "/apis/e2e.example.com/v1/namespaces/" + definitionsNamespace + "/gadgets?resourceVersion=0"})
	eventually(ctx, t, waitTimeout, func() error { return servedFromCache(ctx, g, gw, table) })
}

// makeDefinition creates a definition and waits until kube-apiserver serves its resource.
func makeDefinition(ctx context.Context, t *testing.T, crds, objects dynamic.ResourceInterface, crd *unstructured.Unstructured) {
	t.Helper()
	eventually(ctx, t, waitTimeout, func() error {
		_, err := crds.Create(ctx, crd, metav1.CreateOptions{}) // the previous definition may still be terminating
		return err
	})
	eventually(ctx, t, waitTimeout, func() error {
		_, err := objects.List(ctx, metav1.ListOptions{})
		return err
	})
}

// sameList compares two lists except for their versions.
func sameList(ctx context.Context, step string, up, gw *client, r request) error {
	want, err := up.send(ctx, r)
	if err != nil {
		return err
	}
	got, err := gw.send(ctx, r)
	if err != nil {
		return err
	}
	mask := func(a response) string { return listVersion.ReplaceAllString(a.body, "MASKED") }
	if got.status != want.status || mask(got) != mask(want) {
		return fmt.Errorf("%s: %s:\n gateway        %s\n kube-apiserver %s", step, r, got, want)
	}
	return nil
}

// servedFromCache sends a list and checks that it is counted as served from the cache.
func servedFromCache(ctx context.Context, g *realkube.Gateway, gw *client, r request) error {
	cached := map[string]string{"verb": "list", "resource": gadgetsResource.Resource, "source": "cached"}
	before, err := g.Metrics(ctx)
	if err != nil {
		return err
	}
	a, err := gw.send(ctx, r)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%s: %s", r, a)
	}
	after, err := g.Metrics(ctx)
	if err != nil {
		return err
	}
	if after.Sum("kubeweir_requests_total", cached) <= before.Sum("kubeweir_requests_total", cached) {
		return fmt.Errorf("%s: not served from the cache", r)
	}
	return nil
}
