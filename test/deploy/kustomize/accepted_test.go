package kustomize

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// A judge creates objects in the way of `kubectl create --validate=strict`.
type judge struct {
	dynamic dynamic.Interface
	typed   kubernetes.Interface
	mapper  meta.RESTMapper
}

func newJudge(t *testing.T, config *rest.Config) *judge {
	t.Helper()
	j := &judge{}
	var err error
	j.dynamic, err = dynamic.NewForConfig(config)
	must(t, err)
	j.typed, err = kubernetes.NewForConfig(config)
	must(t, err)
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	must(t, err)
	j.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	return j
}

func strict(dryRun bool) metav1.CreateOptions {
	o := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}

func (j *judge) create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions) error {
	mapping, err := j.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = j.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = j.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	_, err = client.Create(ctx, o, options)
	return err
}

// apply creates all objects in kustomize's order, which is namespaces first. It leaves existing
// objects unchanged.
func (j *judge) apply(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		if err := j.create(ctx, o, strict(false)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// pod creates a pod from a template: Pod Security is not enforced for workloads.
func (j *judge) pod(ctx context.Context, namespace string, template *corev1.PodTemplateSpec) error {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "try"
	_, err := j.typed.CoreV1().Pods(namespace).Create(ctx, pod, strict(true))
	return err
}

func judges(t *testing.T) map[string]*judge {
	// The standalone has the cluster's users.
	config := kube.AdminConfig()
	config.Host = origin.URL()
	return map[string]*judge{"kube-apiserver": newJudge(t, kube.AdminConfig()), "standalone": newJudge(t, config)}
}

// TestAPIServersAcceptObjects checks that both API servers accept every object with strict field
// validation, and the pods under the Pod Security Standard of the folder's namespace.
func TestAPIServersAcceptObjects(t *testing.T) {
	ctx := deadline(t)
	for server, judge := range judges(t) {
		for folder, level := range folders {
			objects := build(ctx, t, folder)
			judge.apply(ctx, t, objects)
			namespace := find(t, objects, "Namespace", "")
			if enforced := namespace.GetLabels()["pod-security.kubernetes.io/enforce"]; enforced != level {
				t.Errorf("%s: the namespace enforces %q, want %q", folder, enforced, level)
			}
			if err := judge.pod(ctx, namespace.GetName(), podTemplate(t, objects)); err != nil {
				t.Errorf("%s: %s: %v", server, folder, err)
			}
		}
	}
}

// TestJudgesReject checks that the judges of TestAPIServersAcceptObjects reject invalid objects.
func TestJudgesReject(t *testing.T) {
	ctx := deadline(t)
	objects := build(ctx, t, "front")
	for server, judge := range judges(t) {
		judge.apply(ctx, t, objects)
		mistyped := find(t, objects, "Deployment", "").DeepCopy()
		mistyped.SetName("mistyped")
		must(t, unstructured.SetNestedField(mistyped.Object, "RollingUpdat", "spec", "template", "spec", "restartPolic"))
		if err := judge.create(ctx, mistyped, strict(true)); err == nil || !strings.Contains(err.Error(), `unknown field "spec.template.spec.restartPolic"`) {
			t.Errorf("%s: a mistyped field: %v", server, err)
		}
		lax := podTemplate(t, objects)
		lax.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		if err := judge.pod(ctx, "kubeweir", lax); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest": allowPrivilegeEscalation`) {
			t.Errorf("%s: a pod that may become root: %v", server, err)
		}
		// Except for its host port, the pod of the folder node is as restricted as the others.
		node := podTemplate(t, build(ctx, t, "node"))
		if err := judge.pod(ctx, "kubeweir", node); err == nil || !strings.Contains(err.Error(), "hostPort") {
			t.Errorf("%s: a host port in a restricted namespace: %v", server, err)
		}
		node.Spec.Containers[0].Ports[0].HostPort, node.Spec.Containers[0].Ports[0].HostIP = 0, ""
		if err := judge.pod(ctx, "kubeweir", node); err != nil {
			t.Errorf("%s: without the host port: %v", server, err)
		}
	}
}
