package kustomize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// folders are the folders that users apply, each with the Pod Security Standard of its namespace.
var folders = map[string]string{
	"front": "restricted", "node": "privileged", "sidecar": "restricted", "dashboard": "restricted", "standalone": "restricted",
}

// build returns the output of `kubectl kustomize` for a folder of deploy/kustomize.
func build(ctx context.Context, t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	return buildPath(ctx, t, filepath.Join(root, "deploy", "kustomize", folder))
}

func buildPath(ctx context.Context, t *testing.T, path string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := kube.Kubectl(ctx, os.DevNull, "kustomize", path)
	must(t, err)
	for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		must(t, err)
		objects = append(objects, o)
	}
}

// overlay builds a user's kustomization, in which DEPLOY stands for deploy/kustomize.
func overlay(ctx context.Context, t *testing.T, files map[string]string) []*unstructured.Unstructured {
	t.Helper()
	// The folder is inside the repository, because bases need relative paths.
	cache := filepath.Join(root, ".cache")
	must(t, os.MkdirAll(cache, 0o755))
	dir, err := os.MkdirTemp(cache, "overlay-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, content := range files {
		content = strings.ReplaceAll(content, "DEPLOY", "../../deploy/kustomize")
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return buildPath(ctx, t, dir)
}

// find returns the only object of a kind and name; "" matches any name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && (name == "" || o.GetName() == name)
	})
	if i < 0 {
		t.Fatalf("no %s %s was built", kind, name)
	}
	return objects[i]
}

// podTemplate returns the pod template of the only workload, with the volumes of a StatefulSet's
// claims.
func podTemplate(t *testing.T, objects []*unstructured.Unstructured) *corev1.PodTemplateSpec {
	t.Helper()
	for _, o := range objects {
		switch o.GetKind() {
		case "Deployment", "DaemonSet", "StatefulSet":
			var workload appsv1.Deployment // the other kinds have the template at the same path
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &workload))
			claims, _, err := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
			must(t, err)
			for _, claim := range claims {
				name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
				workload.Spec.Template.Spec.Volumes = append(workload.Spec.Template.Spec.Volumes,
					corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
			}
			return &workload.Spec.Template
		}
	}
	t.Fatal("there is no workload")
	return nil
}

// TestEveryFolderIsTested fails if a new folder is not in folders.
func TestEveryFolderIsTested(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(root, "deploy", "kustomize"))
	must(t, err)
	for _, entry := range entries {
		if _, tested := folders[entry.Name()]; entry.IsDir() && !tested && entry.Name() != "components" {
			t.Errorf("%s is missing from folders", entry.Name())
		}
	}
}

// TestOverlay checks that an overlay can change what the comments and the README say.
func TestOverlay(t *testing.T) {
	ctx := deadline(t)
	objects := overlay(ctx, t, map[string]string{
		"kustomization.yaml": `
namespace: weir
resources: [DEPLOY/front]
components: [DEPLOY/front/cert-manager]
images: [{name: ghcr.io/kubeweir/kubeweir, newName: registry.example.com/kubeweir, newTag: v9}]
configMapGenerator: [{name: kubeweir, behavior: replace, files: [gateway.yaml]}]
replicas: [{name: kubeweir, count: 5}]
`,
		"gateway.yaml": "listen: :8443\n",
	})
	template := podTemplate(t, objects)
	if image := template.Spec.Containers[0].Image; image != "registry.example.com/kubeweir:v9" {
		t.Errorf("image %s", image)
	}
	settings := find(t, objects, "ConfigMap", "")
	if text, _, _ := unstructured.NestedString(settings.Object, "data", "gateway.yaml"); text != "listen: :8443\n" {
		t.Errorf("settings %q", text)
	}
	if used := template.Spec.Volumes[0].Projected.Sources[0].ConfigMap.Name; used != settings.GetName() || used == "kubeweir" {
		t.Errorf("the pod has %s of %s", used, settings.GetName())
	}
	for _, o := range objects {
		if namespaced := o.GetNamespace() != ""; namespaced && o.GetNamespace() != "weir" {
			t.Errorf("%s %s is in %s", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
	binding := find(t, objects, "ClusterRoleBinding", "")
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	if subject := subjects[0].(map[string]any); subject["namespace"] != "weir" || subject["name"] != template.Spec.ServiceAccountName {
		t.Errorf("the role is bound to %v", subject)
	}
}

// TestServersOnEtcd builds the README's example of several servers, which a kube-apiserver accepts.
func TestServersOnEtcd(t *testing.T) {
	ctx := deadline(t)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", "README.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(text), "### Several servers on etcd\n")
	files := map[string]string{}
	for _, file := range fileBlock.FindAllStringSubmatch(section, -1) {
		files[file[1]] = strings.ReplaceAll(file[2], "https://github.com/kubeweir/kubeweir//deploy/kustomize/standalone?ref=v0.1.0", "DEPLOY/standalone")
	}
	objects := overlay(ctx, t, files)
	set := find(t, objects, "StatefulSet", "")
	if n, _, _ := unstructured.NestedFieldNoCopy(set.Object, "spec", "replicas"); fmt.Sprint(n) != "3" {
		t.Errorf("%v replicas", n)
	}
	if claims, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates"); len(claims) > 0 {
		t.Errorf("volumes for objects that are in etcd: %v", claims)
	}
	settings := find(t, objects, "ConfigMap", "")
	if text, _, _ := unstructured.NestedString(settings.Object, "data", "standalone.yaml"); !strings.Contains(text, "etcd.example.com") {
		t.Errorf("settings %q", text)
	}
	mounted := map[string]bool{}
	for _, m := range podTemplate(t, objects).Spec.Containers[0].VolumeMounts {
		mounted[m.MountPath] = true
	}
	for _, path := range []string{"/var/lib/kubeweir", "/var/lib/kubeweir/pki/sa.key", "/etc/kubeweir", "/etc/kubeweir-etcd"} {
		if !mounted[path] {
			t.Errorf("%s is not mounted", path)
		}
	}
	newJudge(t, kube.AdminConfig()).apply(ctx, t, objects)
}

// TestSidecarIsAddedToAnything checks that the component works for workloads with and without
// environment, mounts and init containers, and leaves these unchanged.
func TestSidecarIsAddedToAnything(t *testing.T) {
	objects := overlay(deadline(t), t, map[string]string{
		"kustomization.yaml": "resources: [apps.yaml]\ncomponents: [DEPLOY/components/sidecar]\n",
		"apps.yaml": `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: bare}
spec:
  template:
    spec: {containers: [{name: app, image: app}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: full}
spec:
  template:
    spec:
      initContainers: [{name: first, image: first}]
      containers:
      - name: app
        image: app
        env: [{name: A, value: "1"}]
        volumeMounts: [{name: data, mountPath: /data}]
      - {name: other, image: other}
      volumes: [{name: data, emptyDir: {}}]
`,
	})
	if len(objects) != 2 {
		t.Fatalf("%d objects", len(objects))
	}
	for _, o := range objects {
		spec := podTemplate(t, []*unstructured.Unstructured{o}).Spec
		if spec.InitContainers[0].Name != "kubeweir" {
			t.Errorf("%s: the gateway is not the first init container: %v", o.GetName(), spec.InitContainers)
		}
		app := spec.Containers[0]
		env := make(map[string]string)
		for _, e := range app.Env {
			env[e.Name] = e.Value
		}
		i := slices.IndexFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == serviceAccountFolder })
		if env["KUBERNETES_SERVICE_HOST"] != "127.0.0.1" || env["KUBERNETES_SERVICE_PORT"] != "19443" || i < 0 || app.VolumeMounts[i].Name != "kubeweir-service-account" {
			t.Errorf("%s: %+v", o.GetName(), app)
		}
		if o.GetName() == "full" && (env["A"] != "1" || len(app.VolumeMounts) != 2 || len(spec.InitContainers) != 2 ||
			len(spec.Containers) != 2 || spec.Containers[1].Env != nil || len(spec.Volumes) != 4) {
			t.Errorf("%+v", spec)
		}
	}
}
