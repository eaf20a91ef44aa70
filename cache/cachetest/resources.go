package cachetest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Resources for most tests.
var (
	Pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Nodes   = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	Widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// PodResource describes pods.
func PodResource() *source.Resource {
	return &source.Resource{GroupVersionResource: Pods, Kind: "Pod", Namespaced: true, Schema: object.SchemaFor(Pods)}
}

// NodeResource describes nodes: cluster-scoped.
func NodeResource() *source.Resource {
	return &source.Resource{GroupVersionResource: Nodes, Kind: "Node", Schema: object.SchemaFor(Nodes)}
}

// WidgetResource describes a namespaced custom resource with the selectable field spec.color.
func WidgetResource() *source.Resource {
	return &source.Resource{
		GroupVersionResource: Widgets, Kind: "Widget", Namespaced: true, Custom: true,
		Schema: object.CustomSchema([]string{".spec.color"}),
	}
}

// Pod returns a pod with the given key ("namespace/name"), node and labels ("key=value").
func Pod(key, node string, labels ...string) *corev1.Pod {
	ns, name, _ := strings.Cut(key, "/")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labelMap(labels)},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// BigPod returns a Pod of about size bytes.
func BigPod(key, node string, size int, labels ...string) *corev1.Pod {
	p := Pod(key, node, labels...)
	p.Annotations = map[string]string{}
	for i := 0; size > 600; i++ {
		p.Annotations[fmt.Sprintf("example.com/padding-%d", i)] = strings.Repeat("x", 200)
		size -= 230
	}
	return p
}

// Node returns a node with labels ("key=value").
func Node(name string, labels ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelMap(labels)}}
}

// Widget returns a custom object with the given key ("namespace/name"), spec.color and labels
// ("key=value").
func Widget(key, color string, labels ...string) *unstructured.Unstructured {
	ns, name, _ := strings.Cut(key, "/")
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": color}}}
	u.SetNamespace(ns)
	u.SetName(name)
	u.SetLabels(labelMap(labels))
	return u
}

func labelMap(labels []string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		m[k] = v
	}
	return m
}
