package matrix

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/conformance"
)

const (
	widgetGroup = "matrix.example.com"
	// objectsEach is the number of objects of each resource in the first namespace. The second
	// namespace has one more.
	objectsEach = 40
	// padding is the size of an annotation of each object. A list then exceeds the 128 KiB from which
	// kube-apiserver compresses.
	padding = 4 << 10
)

const definitions = `
apiVersion: v1
kind: Namespace
metadata: {name: one}
---
apiVersion: v1
kind: Namespace
metadata: {name: two}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.` + widgetGroup + `}
spec:
  group: ` + widgetGroup + `
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Size, type: integer, jsonPath: .spec.size, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// contents is the part of the objects besides their metadata.
var contents = map[string]string{
	"pods": `apiVersion: v1
kind: Pod
spec: {containers: [{name: c, image: "registry.example/web:1", resources: {limits: {cpu: 100m, memory: 64Mi}}}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], containerStatuses: [{name: c, image: i, imageID: "", ready: true, restartCount: 3, state: {running: {startedAt: "2024-01-01T00:00:00Z"}}}]}
`,
	"configmaps": `apiVersion: v1
kind: ConfigMap
data: {key: value, html: "<b>&</b>", text: "line\nline \u2028 ünïcode"}
binaryData: {bytes: AAEC/w==}
`,
	"serviceaccounts": `apiVersion: v1
kind: ServiceAccount
secrets: [{name: one}, {name: two}]
`,
	"nodes": `apiVersion: v1
kind: Node
spec: {podCIDR: 10.1.0.0/24}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}], capacity: {cpu: "4", memory: 8Gi, pods: "110"}}
`,
	"widgets": `apiVersion: ` + widgetGroup + `/v1
kind: Widget
spec: {color: "a < b", size: 3, ratio: 0.25, big: 9007199254740993}
`,
}

// documents returns the objects of all resources as YAML.
func documents() []byte {
	var b strings.Builder
	b.WriteString(definitions)
	object := func(r resource, namespace string, i int) {
		fmt.Fprintf(&b, "---\n%smetadata:\n  name: object-%02d\n  labels: {odd: %q}\n  annotations: {padding: %q}\n",
			contents[r.name], i, []string{"no", "yes"}[i%2], strings.Repeat("padding ", padding/8))
		if r.namespaced {
			fmt.Fprintf(&b, "  namespace: %s\n", namespace)
		}
	}
	for _, r := range resources {
		for i := range objectsEach {
			object(r, "one", i)
		}
		if r.namespaced {
			object(r, "two", objectsEach)
		}
	}
	return []byte(b.String())
}

// seed creates the objects, and one more of each resource that change deletes.
func seed(ctx context.Context, cfg *rest.Config) error {
	if err := conformance.SeedDocuments(ctx, cfg, documents()); err != nil {
		return err
	}
	var gone strings.Builder
	for _, r := range resources {
		fmt.Fprintf(&gone, "---\n%smetadata: {name: gone", contents[r.name])
		if r.namespaced {
			gone.WriteString(", namespace: one")
		}
		gone.WriteString("}\n")
	}
	return conformance.SeedDocuments(ctx, cfg, []byte(gone.String()))
}

// change makes the changes that watches from a version receive: it labels two objects of each
// resource and deletes one.
func change(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for _, r := range resources {
		gvr := schema.GroupVersionResource{Version: "v1", Resource: r.name}
		if r.custom {
			gvr.Group = widgetGroup
		}
		objects := dynamic.ResourceInterface(client.Resource(gvr))
		if r.namespaced {
			objects = client.Resource(gvr).Namespace("one")
		}
		for _, name := range []string{"object-03", "object-30"} {
			if _, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		now := int64(0)
		if err := objects.Delete(ctx, "gone", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return err
		}
	}
	return nil
}
