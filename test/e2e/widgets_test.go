package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

//go:embed testdata/widgets.yaml
var widgetsYAML []byte

var (
	podsResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMapsResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secretsResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	accountsResource   = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	widgetsResource    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	definitions        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// createWidgetDefinition creates the tests' custom resource and waits until it is served.
func createWidgetDefinition(ctx context.Context) error {
	client, err := dynamic.NewForConfig(kube.AdminConfig())
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.Unmarshal(widgetsYAML, &content); err != nil {
		return err
	}
	if _, err := client.Resource(definitions).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return testbed.Poll(ctx, time.Minute, func() error {
		_, err := client.Resource(widgetsResource).List(ctx, metav1.ListOptions{})
		return err
	})
}

// directClients returns an administrator's clients of kube-apiserver itself.
func directClients(t *testing.T) (*kubernetes.Clientset, dynamic.Interface) {
	t.Helper()
	typed, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	generic, err := dynamic.NewForConfig(kube.AdminConfig())
	must(t, err)
	return typed, generic
}

// createNamespaces creates namespaces. At the end of the test it empties them instead of deleting
// them, because no controller finalizes namespaces in this cluster.
func createNamespaces(ctx context.Context, t *testing.T, names ...string) {
	t.Helper()
	typed, generic := directClients(t)
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := typed.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, name := range names {
			for _, resource := range []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource, secretsResource, accountsResource} {
				if err := empty(ctx, generic.Resource(resource).Namespace(name)); err != nil {
					t.Errorf("empty %s of %s: %v", resource.Resource, name, err)
				}
			}
		}
	})
}

// empty deletes every object of a collection, including objects with finalizers.
func empty(ctx context.Context, objects dynamic.ResourceInterface) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := objects.DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	left, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range left.Items {
		name := left.Items[i].GetName()
		if err := removeFinalizers(ctx, objects, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// emptyEverywhere deletes every object of a resource in all namespaces.
func emptyEverywhere(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) error {
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := empty(ctx, client.Resource(resource).Namespace(list.Items[i].GetNamespace())); err != nil {
			return err
		}
	}
	return nil
}
