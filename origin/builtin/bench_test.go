package builtin

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// benchmarkPod is the JSON of a pod of 6 KB, of the make of those that
// controllers create: two containers, probes, volumes, conditions and
// managedFields.
func benchmarkPod(tb testing.TB) []byte {
	tb.Helper()
	now := metav1.NewTime(time.Now().Add(-26 * time.Hour).Truncate(time.Second))
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "frontend-7d4b9c5f6d-x2x7k", Namespace: "shop", UID: "0b6a1e5e-3c1f-4a55-9d0e-2f4f7d8c9b10",
			ResourceVersion: "123456", CreationTimestamp: now,
			Labels:      map[string]string{"app": "frontend", "pod-template-hash": "7d4b9c5f6d", "tier": "web"},
			Annotations: map[string]string{"example.com/config": "4f6c8a", "example.com/team": "storefront"},
		},
		Spec:   corev1.PodSpec{NodeName: "worker-03", RestartPolicy: corev1.RestartPolicyAlways, ServiceAccountName: "frontend"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.3.17", PodIPs: []corev1.PodIP{{IP: "10.244.3.17"}}, StartTime: &now},
	}
	for _, name := range []string{"web", "proxy"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.example.com/shop/" + name + ":v1.2.3",
			Env: []corev1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", Value: "two"}},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, RestartCount: 1, Image: "registry.example.com/shop/" + name + ":v1.2.3",
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: now, FinishedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for i := range 3 {
		fields := `{"f:metadata":{"f:labels":{".":{}`
		for j := range 18 {
			fields += fmt.Sprintf(`,"f:some-field-of-some-length-%d":{"f:value":{}}`, j)
		}
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: fmt.Sprintf("manager-%d", i), Operation: "Update", APIVersion: "v1", Time: &now,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields + "}}}"),
		})
	}
	data, err := json.Marshal(&pod)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func BenchmarkPodRow(b *testing.B) {
	printer, ok := NewPrinters().For(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if !ok {
		b.Fatal("no printer for pods")
	}
	raw := benchmarkPod(b)
	b.SetBytes(int64(len(raw)))
	b.Run("template", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := printer.Row(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		row, err := printer.Row(raw)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		buf := make([]byte, 0, 4096)
		now := time.Now()
		for b.Loop() {
			buf = row.Append(buf[:0], now)
		}
		b.ReportMetric(float64(row.Size()), "bytes-kept")
	})
}
