package fakenodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
)

func TestPodLifecycle(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "main", Image: "image"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	markRunning(pod, "10.244.0.1")
	s := &pod.Status
	if s.Phase != corev1.PodRunning || len(s.Conditions) != 5 || s.PodIP != "10.244.0.1" || s.PodIP != s.PodIPs[0].IP || s.StartTime == nil {
		t.Errorf("%+v", s)
	}
	if main := s.ContainerStatuses[0]; main.State.Running == nil || !main.Ready || !*main.Started || main.Image != "image" {
		t.Errorf("%+v", main)
	}
	if first, sidecar := s.InitContainerStatuses[0], s.InitContainerStatuses[1]; first.State.Terminated == nil || !first.Ready || sidecar.State.Running == nil {
		t.Errorf("%+v", s.InitContainerStatuses)
	}
	if !ofJob(pod) {
		t.Error("not of a Job")
	}
	markSucceeded(pod)
	if sidecar := s.InitContainerStatuses[1]; sidecar.State.Terminated == nil {
		t.Errorf("%+v", sidecar)
	}
	if main := s.ContainerStatuses[0]; s.Phase != corev1.PodSucceeded || len(s.Conditions) != 5 || main.State.Terminated == nil || main.Ready {
		t.Errorf("%+v", s)
	}
	for _, c := range s.Conditions {
		if want := c.Type != corev1.PodReady && c.Type != corev1.ContainersReady; (c.Status == corev1.ConditionTrue) != want {
			t.Errorf("%+v", c)
		}
	}
}

func TestReadinessGates(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.com/balanced"}}}}
	markRunning(pod, "10.244.0.1")
	if podutil.IsPodReady(pod) || !podutil.IsContainersReadyConditionTrue(pod.Status) {
		t.Errorf("%+v", pod.Status.Conditions)
	}
	if setReady(pod) {
		t.Error("changed without a reason")
	}
	setCondition(pod, "example.com/balanced", corev1.ConditionTrue, "")
	if !setReady(pod) || !podutil.IsPodReady(pod) {
		t.Errorf("%+v", pod.Status.Conditions)
	}
}

func TestOtherJobs(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", Controller: ptr.To(true)},
	}}}
	if ofJob(pod) {
		t.Error("a Job of another API group")
	}
}
