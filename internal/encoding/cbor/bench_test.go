package cbor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
)

// samplePod is a pod as clusters have them: about 6 KB of JSON.
func samplePod(t testing.TB) []byte {
	t.Helper()
	created := metav1.NewTime(time.Date(2024, 5, 17, 12, 30, 0, 0, time.UTC))
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "app-7c9fd5b8d6-00001", GenerateName: "app-7c9fd5b8d6-", Namespace: "team-1", UID: "6f1a6d2c-58a3-4c5e-9d0f-000000000001",
			ResourceVersion: "1000001", CreationTimestamp: created,
			Labels:          map[string]string{"app.kubernetes.io/name": "app", "pod-template-hash": "7c9fd5b8d6", "tier": "backend", "topology.kubernetes.io/zone": "zone-1"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "note": "quotes \" and <angle> & \\ backslash\nline"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app-7c9fd5b8d6", UID: "4f0d7c7e-0b3f-4f1c-8a55-1d1f2a0c9b11"}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", RestartPolicy: "Always", SchedulerName: "default-scheduler", ServiceAccountName: "default", DNSPolicy: "ClusterFirst"},
		Status: corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1", HostIP: "192.168.0.1", StartTime: &created, QOSClass: "Burstable"},
	}
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Update", APIVersion: "v1", Time: &created, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:tier":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"4f0d7c7e-0b3f-4f1c-8a55-1d1f2a0c9b11\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{}}}`),
		})
	}
	for c := range 3 {
		name := fmt.Sprintf("container-%d", c)
		container := corev1.Container{
			Name: name, Image: "registry.example.com/shop/" + name + ":v1.2.3", ImagePullPolicy: "IfNotPresent",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
			},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for e := range 5 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "some value of a setting"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: container.Image, ImageID: "sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
			ContainerID: "containerd://4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
		})
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func BenchmarkAppend(b *testing.B) {
	text := samplePod(b)
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var err error
		if dst, err = cbor.Append(dst[:0], text, cbor.Untyped); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(dst))/float64(len(text)), "CBOR/JSON")
}

// BenchmarkAppendByApimachinery decodes and encodes instead.
func BenchmarkAppendByApimachinery(b *testing.B) {
	text := samplePod(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var v any
		if err := utiljson.Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
		if _, err := direct.Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodeByApimachinery is what kube-apiserver does once it has the object.
func BenchmarkEncodeByApimachinery(b *testing.B) {
	text := samplePod(b)
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		b.Fatal(err)
	}
	scheme := builtInTypes(b)
	encoder := serializer.NewSerializer(scheme, scheme)
	var out bytes.Buffer
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		out.Reset()
		if err := encoder.EncodeNondeterministic(&pod, &out); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	text := samplePod(b)
	item, err := cbor.Append(nil, text, cbor.Untyped)
	if err != nil {
		b.Fatal(err)
	}
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(item)))
	for b.Loop() {
		if dst, err = cbor.AppendJSON(dst[:0], item, cbor.Untyped); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAppendAllocates nothing for a pod, but what dst grows by.
func TestAppendAllocates(t *testing.T) {
	text := samplePod(t)
	dst := make([]byte, 0, 2*len(text))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := cbor.Append(dst, text, cbor.Untyped); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
