//go:build linux

package kubelet

import (
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCertManager checks that the pod waits for the Secret that cert-manager writes, says so, and
// starts once it exists.
func TestCertManager(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	namespace(t, "certs", "restricted")
	newSession(t).enter("kubectl apply -f " + root + "/test/deploy/charts/testdata/crds/cert-manager.yaml")
	// Helm requests the aggregated discovery once, which kube-apiserver updates later than that of
	// each group.
	eventually(t, func() error {
		_, lists, err := clients.Discovery().ServerGroupsAndResources()
		if err == nil && !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "cert-manager.io/v1" }) {
			err = errors.New("cert-manager.io/v1 is not served")
		}
		return err
	})
	notes := s.enter("helm install kubeweir-certs deploy/charts/kubeweir -n certs --set tls.source=certManager")
	s.reads("kubectl -n certs describe pods --show-events", `MountVolume.SetUp failed for volume "tls" : secret "kubeweir-certs-cert" not found`)
	serving, err := kube.IssueServingCert("kubeweir-certs.certs.svc", "localhost")
	must(t, err)
	s.enter("kubectl -n certs create secret generic kubeweir-certs-cert --type kubernetes.io/tls --from-file tls.crt=" + serving.CertFile +
		" --from-file tls.key=" + serving.KeyFile + " --from-file ca.crt=" + kube.ServingCAFile())
	ready(t, "certs", 2)
	s.follow(notes)
}
