package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A judge is an API server that validates objects with dry-run requests.
type judge struct {
	name   string
	client dynamic.Interface
}

// judges returns kube-apiserver and a standalone kubeweir, with the definitions of the custom
// resources that the chart uses and the namespaces that it is rendered for.
func judges(t *testing.T) []judge {
	t.Helper()
	standalone, err := origin.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	var all []judge
	for _, server := range []struct {
		name   string
		config *rest.Config
	}{{"kube-apiserver", kube.AdminConfig()}, {"standalone", standalone}} {
		server.config.WarningHandler = rest.NoWarnings{}
		client, err := dynamic.NewForConfig(server.config)
		if err != nil {
			t.Fatal(err)
		}
		j := judge{server.name, client}
		if err := j.prepare(t.Context()); err != nil {
			t.Fatalf("%s: %v", j.name, err)
		}
		all = append(all, j)
	}
	return all
}

var (
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// levels returns the Pod Security level that each namespace enforces.
func levels() map[string]string {
	return map[string]string{namespace: "restricted", "elsewhere": "restricted", "34": "restricted", "monitoring": "restricted", "privileged": "privileged"}
}

func (j *judge) prepare(ctx context.Context) error {
	for name, level := range levels() {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		ns.SetName(name)
		ns.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest"})
		if _, err := j.client.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	files, err := filepath.Glob("testdata/crds/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		list, err := objects(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, o := range list {
			if _, err := j.client.Resource(definitions).Create(ctx, o, metav1.CreateOptions{}); err != nil {
				return err
			}
			if err := j.established(ctx, o.GetName()); err != nil {
				return err
			}
		}
	}
	return nil
}

// established waits until a definition is served.
func (j *judge) established(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		o, err := j.client.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%s is not established: %w", name, err)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if slices.ContainsFunc(conditions, func(c any) bool {
			m, _ := c.(map[string]any)
			return m["type"] == "Established" && m["status"] == "True"
		}) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is not established: %w", name, ctx.Err())
		}
	}
}

// plurals returns the resources of the kinds in the chart. A kind that is missing here fails the
// test.
func plurals() map[string]string {
	return map[string]string{
		"BackendTLSPolicy": "backendtlspolicies", "Certificate": "certificates", "ClusterRole": "clusterroles",
		"ClusterRoleBinding": "clusterrolebindings", "ConfigMap": "configmaps", "DaemonSet": "daemonsets", "Deployment": "deployments",
		"HTTPRoute": "httproutes", "HorizontalPodAutoscaler": "horizontalpodautoscalers", "Ingress": "ingresses", "Issuer": "issuers",
		"NetworkPolicy": "networkpolicies", "Pod": "pods", "PodDisruptionBudget": "poddisruptionbudgets", "PodMonitor": "podmonitors",
		"PrometheusRule": "prometheusrules", "Role": "roles", "RoleBinding": "rolebindings", "Secret": "secrets", "Service": "services", "ServiceAccount": "serviceaccounts",
		"ServiceMonitor": "servicemonitors", "StatefulSet": "statefulsets", "TLSRoute": "tlsroutes",
	}
}

// accepts checks with a dry run that an object would be created. Unknown and duplicate fields are
// errors.
func (j *judge) accepts(ctx context.Context, o *unstructured.Unstructured) error {
	plural, ok := plurals()[o.GetKind()]
	if !ok {
		return errors.New("the test does not know the kind")
	}
	var resource dynamic.ResourceInterface = j.client.Resource(o.GroupVersionKind().GroupVersion().WithResource(plural))
	if o.GetNamespace() != "" {
		resource = j.client.Resource(o.GroupVersionKind().GroupVersion().WithResource(plural)).Namespace(o.GetNamespace())
	}
	_, err := resource.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// pod returns the pod that a Deployment, DaemonSet or StatefulSet would create, or nil for other
// kinds. Volume claim templates become volumes of the pod.
func pod(o *unstructured.Unstructured) *unstructured.Unstructured {
	template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		return nil
	}
	p := &unstructured.Unstructured{Object: template}
	p.SetAPIVersion("v1")
	p.SetKind("Pod")
	p.SetName(o.GetName() + "-0")
	p.SetNamespace(o.GetNamespace())
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(p.Object, "spec", "volumes")
	for _, claim := range claims {
		name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
		volumes = append(volumes, map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name}})
	}
	_ = unstructured.SetNestedSlice(p.Object, volumes, "spec", "volumes")
	return p
}

// TestAPIServersAcceptObjects checks that kube-apiserver and a standalone kubeweir accept every
// object rendered from every value set without unknown fields. They must accept the pods in a
// namespace that enforces the restricted Pod Security level, unless the value set declares another
// level.
func TestAPIServersAcceptObjects(t *testing.T) {
	servers := judges(t)
	for _, set := range valueSets(t) {
		text := valueSet(t, set)
		list := render(t, "helm4", text)
		for _, o := range slices.Clone(list) {
			if p := pod(o); p != nil {
				list = append(list, p)
			}
		}
		level := setting(text, "security", "restricted")
		for _, j := range servers {
			for _, o := range list {
				o = o.DeepCopy()
				if o.GetNamespace() == namespace && level != "restricted" {
					if err := j.accepts(t.Context(), o); o.GetKind() == "Pod" && err == nil {
						t.Errorf("%s: %s: Pod Security admits it, remove the security setting from the value set", set, j.name)
					}
					o.SetNamespace(level)
				}
				if err := j.accepts(t.Context(), o); err != nil {
					t.Errorf("%s: %s: %s: %v", set, j.name, describe(o), err)
				}
			}
		}
	}
}
