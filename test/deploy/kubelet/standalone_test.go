//go:build linux

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestStandalone checks that a standalone without a volume reports that it waits for one. With a
// folder of the node, which belongs to root, its objects survive a new pod and a crash.
func TestStandalone(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	namespace(t, "objects", "restricted")
	notes := s.enter("helm install kubeweir-objects deploy/charts/kubeweir -n objects --set mode=standalone")
	s.reads("kubectl -n objects describe pods --show-events", "pod has unbound immediate PersistentVolumeClaims")
	localVolume(t, "objects", "8Gi", corev1.ReadWriteOnce)
	ready(t, "objects", 1)
	s.follow(notes)

	s.env = append(s.env, "OWN=kubeweir.kubeconfig")
	const kubeweir, forward = "KUBECONFIG=$OWN kubectl ", "kubectl -n objects port-forward service/kubeweir-objects 6443:443 &"
	stop := s.forward(forward)
	s.enter(kubeweir + "create configmap kept --from-literal=color=blue")
	stop()
	for _, end := range []func(){
		func() { s.enter("kubectl -n objects delete pod kubeweir-objects-0") },
		func() { must(t, engine.Kill("objects", "kubeweir-objects-0", "kubeweir")) },
	} {
		before := ready(t, "objects", 1)[0]
		end()
		eventually(t, func() error {
			for _, p := range pods(t, "objects") {
				if isReady(&p) && (p.UID != before.UID || p.Status.ContainerStatuses[0].RestartCount > 0) {
					return nil
				}
			}
			return fmt.Errorf("there is no new pod")
		})
		stop := s.forward(forward)
		if color := s.enter(kubeweir + "get configmap kept -o jsonpath={.data.color}"); color != "blue" {
			t.Errorf("the object is %q", color)
		}
		stop()
	}
	if codes := engine.Ended("objects", "kubeweir-objects-0", "kubeweir"); len(codes) != 2 || codes[0] != 0 {
		t.Errorf("the processes ended with %v", codes)
	}
}

// localVolume makes a folder of the node a volume for a claim in a namespace.
func localVolume(t *testing.T, namespace, size string, mode corev1.PersistentVolumeAccessMode) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "volume")
	must(t, os.Mkdir(folder, 0o755))
	claims, err := clients.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(claims.Items) != 1 {
		t.Fatalf("%s has %d claims", namespace, len(claims.Items))
	}
	_, err = clients.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			AccessModes:            []corev1.PersistentVolumeAccessMode{mode},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claims.Items[0].Name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{realkube.NodeName}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}
