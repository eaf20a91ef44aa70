package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

// next reads one event of a type.
func next(t *testing.T, ctx context.Context, w watch.Interface, want watch.EventType) *corev1.ConfigMap {
	t.Helper()
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before %s", want)
			}
			if e.Type == watch.Bookmark {
				continue
			}
			object, ok := e.Object.(*corev1.ConfigMap)
			if e.Type != want || !ok {
				t.Fatalf("%s %v, want %s", e.Type, e.Object, want)
			}
			return object
		case <-ctx.Done():
			t.Fatalf("no %s", want)
		}
	}
}

// TestVerbs takes one object through its life.
func TestVerbs(t *testing.T) {
	ctx, _, config := start(t)
	maps := client(t, config).CoreV1().ConfigMaps("default")

	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	if dry, err := maps.Create(ctx, configMap("x"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || dry.UID == "" {
		t.Errorf("dry run: %v", err)
	}
	if _, err := maps.Get(ctx, "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	created, err := maps.Create(ctx, configMap("x"), metav1.CreateOptions{FieldManager: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	if fields := created.ManagedFields; len(fields) != 1 || fields[0].Manager != "tester" || fields[0].FieldsV1 == nil ||
		string(fields[0].FieldsV1.GetRawBytes()) != `{"f:data":{".":{},"f:a":{}}}` {
		t.Errorf("managed fields %v", created.ManagedFields)
	}
	if got := next(t, ctx, w, watch.Added); got.UID != created.UID {
		t.Errorf("added %v", got)
	}
	if _, err := maps.Create(ctx, configMap("x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: %v", err)
	}
	same, err := maps.Update(ctx, created, metav1.UpdateOptions{FieldManager: "tester"})
	if err != nil || same.ResourceVersion != created.ResourceVersion {
		t.Errorf("an update of nothing: %v, version %s was %s", err, same.ResourceVersion, created.ResourceVersion)
	}
	for _, p := range []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"add","path":"/data/b","value":"2"}]`},
		{types.MergePatchType, `{"data":{"c":"3"}}`},
		{types.StrategicMergePatchType, `{"data":{"a":null}}`},
	} {
		if _, err := maps.Patch(ctx, "x", p.kind, []byte(p.body), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", p.kind, err)
		}
		next(t, ctx, w, watch.Modified)
	}
	stale := created.DeepCopy()
	stale.Data = map[string]string{"z": ""}
	if _, err := maps.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	got, err := maps.Get(ctx, "x", metav1.GetOptions{})
	if err != nil || len(got.Data) != 2 || got.Data["b"] != "2" || got.Data["c"] != "3" {
		t.Errorf("patched to %v, %v", got.Data, err)
	}
	testApply(t, ctx, maps)
	next(t, ctx, w, watch.Modified)
	if err := maps.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		t.Errorf("deletion of another: %v", err)
	}
	if err := maps.Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	before := number(t, got.ResourceVersion)
	if last := next(t, ctx, w, watch.Deleted); number(t, last.ResourceVersion) <= before {
		t.Errorf("deleted at %s, changed at %d", last.ResourceVersion, before)
	}
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testApply applies one change to x, after a conflict.
func testApply(t *testing.T, ctx context.Context, maps typedcorev1.ConfigMapInterface) {
	t.Helper()
	apply := applycorev1.ConfigMap("x", "default").WithData(map[string]string{"b": "two"})
	if _, err := maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier"}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".data.b") {
		t.Errorf("apply to what another manages: %v", err)
	}
	forced, err := maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier", Force: true})
	if err != nil || forced.Data["b"] != "two" || forced.Data["c"] != "3" {
		t.Fatalf("forced: %v, %v", forced, err)
	}
	again, err := maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "applier", Force: true})
	if err != nil || again.ResourceVersion != forced.ResourceVersion {
		t.Errorf("applied again: %v", err)
	}
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: containers()},
		},
	}
}

func containers() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

// TestSubresources: status, scale, binding, eviction, finalize.
func TestSubresources(t *testing.T) {
	ctx, _, config := start(t)
	k := client(t, config)
	deployments := k.AppsV1().Deployments("default")
	d, err := deployments.Create(ctx, deployment(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Generation != 1 || *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		t.Errorf("defaults: %+v", d)
	}
	d.Status.ReadyReplicas, d.Status.Replicas, d.Spec.Paused = 1, 1, true
	d, err = deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err != nil || d.Status.ReadyReplicas != 1 || d.Spec.Paused || d.Generation != 1 {
		t.Errorf("status: %+v, %v", d, err)
	}
	scale, err := deployments.UpdateScale(ctx, "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3},
	}, metav1.UpdateOptions{})
	if err != nil || scale.Spec.Replicas != 3 || scale.Status.Selector != "app=web" {
		t.Errorf("scale: %+v, %v", scale, err)
	}
	testPod(t, ctx, k)
	testFinalize(t, ctx, k)
}

func testPod(t *testing.T, ctx context.Context, k kubernetes.Interface) {
	t.Helper()
	if _, err := k.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pods := k.CoreV1().Pods("default")
	p, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: containers()}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("binding: %v", err)
	}
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "m"}}, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("binding twice: %v", err)
	}
	if bound, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n"}); err != nil || len(bound.Items) != 1 {
		t.Errorf("%d pods on the node, %v", len(bound.Items), err)
	}
	if err := k.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: "default"}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
	}); err != nil {
		t.Errorf("eviction: %v", err)
	}
	if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after eviction: %v", err)
	}
}

func testFinalize(t *testing.T, ctx context.Context, k kubernetes.Interface) {
	t.Helper()
	namespaces := k.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.CoreV1().ConfigMaps("gone").Create(ctx, configMap("x"), metav1.CreateOptions{}); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("in a namespace that ends: %v", err)
	}
	ending, err := namespaces.Get(ctx, "gone", metav1.GetOptions{})
	if err != nil || ending.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("%v, %v", ending, err)
	}
	ending.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ending, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("finalized: %v", err)
	}
}

// TestServices: cluster IPs and node ports are handed out once and given back.
func TestServices(t *testing.T) {
	ctx, _, config := start(t)
	k := client(t, config)
	services := k.CoreV1().Services("default")
	service := func(name string, nodePort int32, ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}},
		}}
	}
	a, err := services.Create(ctx, service("a", 0, ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port, ip := a.Spec.Ports[0].NodePort, a.Spec.ClusterIP
	if port < 30000 || port > 32767 || !strings.HasPrefix(ip, "10.0.0.") {
		t.Errorf("allocated %s and %d", ip, port)
	}
	if _, err := k.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, taken := range []*corev1.Service{service("b", port, ""), service("b", 0, ip), service("b", 1, ""), service("b", 0, "192.168.0.1")} {
		if _, err := services.Create(ctx, taken, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%+v: %v", taken.Spec, err)
		}
	}
	if err := services.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Create(ctx, service("b", port, ip), metav1.CreateOptions{}); err != nil {
		t.Errorf("what was given back: %v", err)
	}
}

// TestWarnings: unknown fields are told of, or refused.
func TestWarnings(t *testing.T) {
	ctx, _, config := start(t)
	core := client(t, config).CoreV1().RESTClient()
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"dta":{}}`
	post := func(validation string) (int, []string, error) {
		result := core.Post().Namespace("default").Resource("configmaps").Param("fieldValidation", validation).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx)
		var status int
		var warnings []string
		for _, w := range result.StatusCode(&status).Warnings() {
			warnings = append(warnings, w.Text)
		}
		return status, warnings, result.Error()
	}
	if status, _, err := post("Strict"); status != http.StatusBadRequest || !strings.Contains(err.Error(), `unknown field "dta"`) {
		t.Errorf("strict: %d %v", status, err)
	}
	if status, warnings, err := post("Warn"); status != http.StatusCreated || err != nil || len(warnings) != 1 || warnings[0] != `unknown field "dta"` {
		t.Errorf("warn: %d %q %v", status, warnings, err)
	}
}
