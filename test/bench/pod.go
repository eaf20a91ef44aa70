package bench

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// newPod returns the i-th pod: a web server and a sidecar, as a ReplicaSet creates them. With its
// status and the server's additions it is about 6 KB of JSON.
func newPod(i int) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:         podName(i),
			GenerateName: "checkout-7d4b9c6f58-",
			Labels: map[string]string{
				"app.kubernetes.io/name": "checkout", "pod-template-hash": "7d4b9c6f58",
				"shard": fmt.Sprint(i / seedNamespaces % seedShards), podLabel: fmt.Sprint(i),
			},
			Annotations: map[string]string{
				"checksum/config": fmt.Sprintf("%064x", 1_000_003*(i%97+1)),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-7d4b9c6f58",
				UID:        types.UID(fmt.Sprintf("5f0c2a1e-0000-4000-8000-%012d", i%seedNamespaces)),
				Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: corev1.PodSpec{
			NodeName:           nodeName(i),
			ServiceAccountName: "checkout",
			Containers:         []corev1.Container{webContainer(), sidecarContainer()},
			Volumes:            podVolumes(),
		},
	}
}

func webContainer() corev1.Container {
	return corev1.Container{
		Name: "web", Image: "registry.example.com/shop/checkout:2.41.0",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Env: []corev1.EnvVar{
			{Name: "DATABASE_URL", Value: "postgres://checkout.db.svc.cluster.local:5432/checkout"},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("512Mi")},
		},
		ReadinessProbe: httpProbe("/readyz", 5),
		LivenessProbe:  httpProbe("/livez", 10),
		VolumeMounts:   []corev1.VolumeMount{tokenMount()},
	}
}

func sidecarContainer() corev1.Container {
	return corev1.Container{
		Name: "log-forwarder", Image: "registry.example.com/infra/log-forwarder:1.9.3",
		Env: []corev1.EnvVar{{Name: "SINK", Value: "https://logs.example.com/ingest"}},
	}
}

func httpProbe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}},
		PeriodSeconds: period,
	}
}

func tokenMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: "kube-api-access-x2k4p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}
}

func podVolumes() []corev1.Volume {
	expiration := int64(3607)
	return []corev1.Volume{
		{Name: "kube-api-access-x2k4p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expiration, Path: "token"}},
			}}}},
	}
}

// newStatus returns the status that the kubelet writes for the i-th pod once it runs.
func newStatus(i int) corev1.PodStatus {
	started := metav1.NewTime(time.Date(2026, 5, 4, 8, i/60%60, i%60, 0, time.UTC))
	ip := fmt.Sprintf("10.%d.%d.%d", 64+i/65536, i/256%256, i%256)
	hostIP := fmt.Sprintf("192.0.2.%d", i%seedNodes)
	return corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: hostIP, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &started, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{
			condition(corev1.PodReady, started), condition(corev1.PodScheduled, started),
		},
		ContainerStatuses: []corev1.ContainerStatus{
			containerStatus(i, "web", "registry.example.com/shop/checkout:2.41.0", started),
			containerStatus(i, "log-forwarder", "registry.example.com/infra/log-forwarder:1.9.3", started),
		},
	}
}

func condition(t corev1.PodConditionType, at metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: at}
}

func containerStatus(i int, name, image string, at metav1.Time) corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{
		Name: name, Image: image, Ready: true, Started: &started,
		ImageID:     fmt.Sprintf("%s@sha256:%064x", image[:len(image)-len(":2.41.0")], len(name)),
		ContainerID: fmt.Sprintf("containerd://%064x", 7_919*(i+1)+len(name)),
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
	}
}
