package encodingtest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns the i-th realistic pod: about 6 KB of JSON, 5 labels, two managers.
func Pod(i int) *corev1.Pod {
	created := metav1.NewTime(time.Date(2024, 5, 17, 12, 30, i%60, 0, time.UTC))
	app := fmt.Sprintf("app-%d", i%50)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s-7c9fd5b8d6-%05d", app, i),
			GenerateName:      app + "-7c9fd5b8d6-",
			Namespace:         fmt.Sprintf("team-%d", i%20),
			UID:               types.UID(fmt.Sprintf("6f1a6d2c-58a3-4c5e-9d0f-%012d", i)),
			ResourceVersion:   fmt.Sprint(1000000 + i),
			CreationTimestamp: created,
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7c9fd5b8d6",
				"tier": "backend", "topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3),
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
				"kubectl.kubernetes.io/restartedAt": "2024-05-17T12:00:00Z",
				"note":                              "quotes \" and <angle> & \\ backslash\nline",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7c9fd5b8d6", UID: "4f0d7c7e-0b3f-4f1c-8a55-1d1f2a0c9b11"}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i%200), RestartPolicy: "Always", SchedulerName: "default-scheduler",
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", DNSPolicy: "ClusterFirst",
		},
		Status: corev1.PodStatus{
			Phase: "Running", PodIP: fmt.Sprintf("10.0.%d.%d", i/250%250, i%250), HostIP: "192.168.0.1", StartTime: &created, QOSClass: "Burstable",
		},
	}
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
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
	for _, condition := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: "True", LastTransitionTime: created})
	}
	return pod
}

// PodList returns n pods of roughly size bytes each, with content that is difficult to scan.
func PodList(n, size int) *corev1.PodList {
	list := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "abc"},
	}
	for i := range n {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%d", i), Namespace: "default", ResourceVersion: fmt.Sprint(i + 1),
				Annotations: map[string]string{"awkward": `\"}]{[` + "\\", "unicode": "\u2028é", "filler": strings.Repeat(`a "quoted" word, `, size/24)},
			},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "registry/image:v1"}}},
		})
	}
	return list
}

// RealisticPods returns n pods of some 6 KB with the short strings and the nesting of real ones.
func RealisticPods(n int) *corev1.PodList {
	list := PodList(n, 0)
	for i := range list.Items {
		pod := &list.Items[i]
		pod.Annotations = map[string]string{}
		pod.Labels = map[string]string{"app": "web", "pod-template-hash": "7c5ddbdf54", "tier": "frontend"}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:tier":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}`),
		}}
		container := corev1.Container{
			Name: "c", Image: "registry.example.com/team/image:v1.2.3", Command: []string{"/bin/server", "--listen", ":8080"},
			Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 8080, Protocol: "TCP"}},
		}
		for j := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", j), Value: "some value"})
		}
		pod.Spec.Containers = []corev1.Container{container, container, container}
		for j := range 5 {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "True", Reason: fmt.Sprint(j)})
		}
	}
	return list
}
