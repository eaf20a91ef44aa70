package conformance

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubeweir/kubeweir/test/seed"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

const (
	podsPerApp = 40 // web in alpha, db in beta: together more than the 128 KiB from which lists are compressed
	podNodes   = 4
)

// createPods creates pods in every state that kubectl displays differently.
func createPods(ctx context.Context, s *seed.Seeder) error {
	for _, app := range []struct{ name, namespace string }{{"web", "alpha"}, {"db", "beta"}} {
		for i := range podsPerApp {
			if err := s.Create(ctx, pod(app.name, app.namespace, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// changePods changes and deletes some pods, so that the store has a history of them.
func changePods(ctx context.Context, client dynamic.Interface, first *int64) error {
	alpha, beta := client.Resource(podResource).Namespace("alpha"), client.Resource(podResource).Namespace("beta")
	for i := range 5 {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"tier":"moved","round":"%d"}}}`, i)
		changed, err := alpha.Patch(ctx, fmt.Sprintf("web-%02d", i), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if *first, err = strconv.ParseInt(changed.GetResourceVersion(), 10, 64); err != nil {
			return err
		}
	}
	now := int64(0)
	for _, i := range []int{30, 31} {
		if err := beta.Delete(ctx, fmt.Sprintf("db-%02d", i), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return err
		}
	}
	// web-09 has a finalizer, so it stays, terminating.
	return alpha.Delete(ctx, "web-09", metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func pod(app, namespace string, i int) *unstructured.Unstructured {
	labels := map[string]any{"app": app}
	switch i % 3 {
	case 0:
		labels["tier"] = "front"
	case 1:
		labels["tier"] = "back"
	}
	metadata := map[string]any{
		"name": fmt.Sprintf("%s-%02d", app, i), "namespace": namespace, "labels": labels,
		"annotations": map[string]any{"note": "a < b && c > d", "padding": string(make240())},
	}
	if i == 9 && app == "web" {
		metadata["finalizers"] = []any{"conf.example.com/keep"}
	}
	container := map[string]any{"name": "c", "image": "registry.example/" + app + ":1"}
	spec := map[string]any{"containers": []any{container}, "terminationGracePeriodSeconds": int64(i % 2)}
	if i%podNodes != 3 {
		spec["nodeName"] = fmt.Sprintf("node-%d", i%podNodes+1)
	}
	switch i {
	case 11:
		spec["restartPolicy"], spec["schedulerName"], spec["serviceAccountName"] = "Never", "custom", "builder"
	case 12:
		spec["hostNetwork"] = true
	case 13:
		spec["readinessGates"] = []any{map[string]any{"conditionType": "example.com/gate"}}
	case 14:
		spec["initContainers"] = []any{map[string]any{"name": "init", "image": "registry.example/init:1"}}
	}
	out := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
	if status := podStatus(i); status != nil {
		out["status"] = status
	}
	return &unstructured.Unstructured{Object: out}
}

// make240 returns 240 letters as filler.
func make240() []byte {
	b := make([]byte, 240)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

const longAgo = "2024-01-01T00:00:00Z"

func podStatus(i int) map[string]any {
	running := map[string]any{"running": map[string]any{"startedAt": longAgo}}
	terminated := func(code int64, reason string) map[string]any {
		return map[string]any{"terminated": map[string]any{
			"exitCode": code, "reason": reason, "startedAt": longAgo, "finishedAt": "2024-01-01T00:05:00Z",
		}}
	}
	containerStatus := func(ready bool, restarts int64, state map[string]any) map[string]any {
		return map[string]any{"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": restarts, "state": state}
	}
	status := map[string]any{
		"phase": "Running", "startTime": longAgo, "hostIP": "192.0.2.1",
		"podIP": fmt.Sprintf("10.1.0.%d", i+10), "podIPs": []any{map[string]any{"ip": fmt.Sprintf("10.1.0.%d", i+10)}},
		"conditions":        []any{map[string]any{"type": "Ready", "status": "True", "lastProbeTime": nil, "lastTransitionTime": longAgo}},
		"containerStatuses": []any{containerStatus(true, 0, running)},
	}
	switch i % 8 {
	case 1:
		return nil // keep the initial phase Pending
	case 2:
		c := containerStatus(true, 7, running)
		c["lastState"] = terminated(137, "OOMKilled")
		status["containerStatuses"] = []any{c}
	case 3:
		status["phase"] = "Succeeded"
		status["containerStatuses"] = []any{containerStatus(false, 0, terminated(0, "Completed"))}
	case 4:
		status["phase"], status["reason"], status["message"] = "Failed", "Evicted", "no room"
		delete(status, "containerStatuses")
	case 5:
		status["containerStatuses"] = []any{containerStatus(false, 4, map[string]any{
			"waiting": map[string]any{"reason": "CrashLoopBackOff", "message": "back-off <5m0s>"}})}
	case 6:
		if i == 14 {
			status["phase"] = "Pending"
			status["initContainerStatuses"] = []any{containerStatus(false, 1, map[string]any{
				"waiting": map[string]any{"reason": "ImagePullBackOff"}})}
		}
	case 7:
		status["nominatedNodeName"] = "node-1"
	}
	return status
}
