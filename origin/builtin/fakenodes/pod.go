package fakenodes

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
)

// markRunning changes the status of a Pod to that of a running one with an address, on a fake node.
func markRunning(pod *corev1.Pod, ip string) {
	now, s := metav1.Now(), &pod.Status
	s.Phase, s.StartTime = corev1.PodRunning, &now
	host := hostAddress(pod.Spec.NodeName)
	s.HostIP, s.HostIPs = host, []corev1.HostIP{{IP: host}}
	s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	s.InitContainerStatuses = statuses(pod.Spec.InitContainers, true, func(c *corev1.Container) corev1.ContainerState {
		if podutil.IsRestartableInitContainer(c) {
			return runningSince(now)
		}
		return ended(now, now)
	})
	s.ContainerStatuses = statuses(pod.Spec.Containers, false, func(*corev1.Container) corev1.ContainerState { return runningSince(now) })
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
		setCondition(pod, kind, corev1.ConditionTrue, "")
	}
	setReady(pod)
}

// setReady sets the condition Ready of a running Pod: it is true if all readiness gates are. It reports
// whether the condition has changed.
func setReady(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if _, c := podutil.GetPodCondition(&pod.Status, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return setCondition(pod, corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady")
		}
	}
	return setCondition(pod, corev1.PodReady, corev1.ConditionTrue, "")
}

// markSucceeded changes the status of a running Pod to that of one whose containers have ended with code 0.
func markSucceeded(pod *corev1.Pod) {
	now, s := metav1.Now(), &pod.Status
	s.Phase = corev1.PodSucceeded
	state := func(*corev1.Container) corev1.ContainerState { return ended(ptr.Deref(s.StartTime, now), now) }
	s.InitContainerStatuses, s.ContainerStatuses = statuses(pod.Spec.InitContainers, true, state), statuses(pod.Spec.Containers, false, state)
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		setCondition(pod, kind, corev1.ConditionFalse, "PodCompleted")
	}
}

// statuses returns a status for each container. An init container that has ended is ready, any other one
// while it runs.
func statuses(containers []corev1.Container, init bool, state func(*corev1.Container) corev1.ContainerState) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range containers {
		c := &containers[i]
		s := state(c)
		running := s.Running != nil
		out = append(out, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "none://" + c.Name,
			State: s, Started: &running, Ready: running || init,
		})
	}
	return out
}

func runningSince(t metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: t}}
}

func ended(began, now metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: began, FinishedAt: now}}
}

func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) bool {
	return podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{Type: kind, Status: status, Reason: reason})
}

// ofJob reports whether a Job waits for the end of the Pod.
func ofJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.APIVersion == batchv1.SchemeGroupVersion.String() && owner.Kind == "Job"
}
