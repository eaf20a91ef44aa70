// Package controllers runs a cluster's controllers on a standalone kubeweir, as Kubernetes' own programs
// and in its process, and checks what users expect of a cluster: rollouts, garbage collection,
// namespaces, jobs.
package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	waitTimeout = 3 * time.Minute // bounds each wait for controllers
	nodes       = 10
	replicas    = 100
)

// eventually polls ready until it returns true.
func eventually(t *testing.T, what string, ready func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := ready(ctx)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, state)
		}
	}
}

// TestControllers uses Kubernetes' own programs, and kwok's nodes.
func TestControllers(t *testing.T) {
	server, client := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	controllers, err := realkube.StartControllers(ctx, realkube.ControllerOptions{
		Kubeconfig: server.Kubeconfig(), Dir: t.TempDir(),
		ServiceAccountKey: filepath.Join(server.DataDir(), "pki", "sa.key"), RootCA: filepath.Join(server.DataDir(), "pki", "ca.crt"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
				t.Logf("the end of %s's log:\n%s", name, end(controllers.Log(name)))
			}
		}
		controllers.Close()
	})
	for i := range nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testCluster(t, client)
}

// TestControllersInProcess has standalone be a whole cluster, with nodes that simulate Pods.
func TestControllersInProcess(t *testing.T) {
	server, client := start(t, "--controllers=*", "--scheduler", fmt.Sprintf("--fake-nodes=%d", nodes))
	testCluster(t, client)
	cfg, err := server.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	published, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil || strings.TrimSpace(published.Data["ca.crt"]) != strings.TrimSpace(string(cfg.CAData)) {
		t.Errorf("the CA is not published: %v, %v", published, err)
	}
	testLogs(t, client)
	testTokenSecret(t, client, cfg)
	testSigning(t, client, cfg)
}

// whoami returns the user of a client with the server's address and CA.
func whoami(ctx context.Context, server *rest.Config, credentials rest.TLSClientConfig, token string) (string, error) {
	cfg := rest.AnonymousClientConfig(server)
	cfg.CertData, cfg.KeyData, cfg.BearerToken = credentials.CertData, credentials.KeyData, token
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// testTokenSecret checks that serviceaccount-token fills a Secret with a token that the server accepts.
func testTokenSecret(t *testing.T, client kubernetes.Interface, server *rest.Config) {
	ctx, secrets := t.Context(), client.CoreV1().Secrets("default")
	_, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token", func(ctx context.Context) (bool, string) {
		secret, err := secrets.Get(ctx, "token", metav1.GetOptions{})
		if err != nil || len(secret.Data["token"]) == 0 || len(secret.Data["ca.crt"]) == 0 {
			return false, fmt.Sprint(err)
		}
		user, err := whoami(ctx, server, rest.TLSClientConfig{}, string(secret.Data["token"]))
		return user == "system:serviceaccount:default:default", fmt.Sprint(user, err)
	})
}

// testSigning checks that csrsigning signs a certificate that the server accepts.
func testSigning(t *testing.T, client kubernetes.Interface, server *rest.Config) {
	ctx, requests := t.Context(), client.CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	body, err := cert.MakeCSR(key, &pkix.Name{CommonName: "jane"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: body, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	if _, err := requests.UpdateApproval(ctx, "jane", request, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the certificate", func(ctx context.Context) (bool, string) {
		request, err := requests.Get(ctx, "jane", metav1.GetOptions{})
		if err != nil || len(request.Status.Certificate) == 0 {
			return false, fmt.Sprint(err)
		}
		user, err := whoami(ctx, server, rest.TLSClientConfig{CertData: request.Status.Certificate, KeyData: keyPEM}, "")
		return user == "jane", fmt.Sprint(user, err)
	})
}

// start starts standalone for a test.
func start(t *testing.T, args ...string) (*realkube.Standalone, kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	server, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir(), ExtraArgs: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of kubeweir's log:\n%s", end(server.Log()))
		}
		server.Close()
	})
	cfg, err := server.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func end(log string) string { return log[max(0, len(log)-5000):] }

func testCluster(t *testing.T, client kubernetes.Interface) {
	eventually(t, "service account default", func(ctx context.Context) (bool, string) {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	t.Run("deployment", func(t *testing.T) { testDeployment(t, client) })
	t.Run("job", func(t *testing.T) { testJob(t, client) })
	t.Run("quota", func(t *testing.T) { testQuota(t, client) })
	t.Run("namespace", func(t *testing.T) { testNamespace(t, client) })
	t.Run("garbage", func(t *testing.T) { testGarbage(t, client) })
}

// testLogs reads the logs of a simulated Pod.
func testLogs(t *testing.T, client kubernetes.Interface) {
	ctx, pods := t.Context(), client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: template("x").Spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the logs", func(ctx context.Context) (bool, string) {
		text, err := pods.GetLogs("alone", &corev1.PodLogOptions{}).DoRaw(ctx)
		return err == nil && strings.Contains(string(text), "simulated by kubeweir"), fmt.Sprintf("%s, %v", text, err)
	})
}

func node(i int) *corev1.Node {
	size := corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("kwok-%d", i), Labels: map[string]string{"type": "kwok"}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Status:     corev1.NodeStatus{Allocatable: size, Capacity: size},
	}
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// testDeployment rolls out, scales, updates, rolls back and deletes.
func testDeployment(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	deployments, pods := client.AppsV1().Deployments("default"), client.CoreV1().Pods("default")
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template("one"),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := func(n int32, image string) {
		t.Helper()
		began := time.Now()
		eventually(t, fmt.Sprintf("%d replicas of image %s", n, image), func(ctx context.Context) (bool, string) {
			d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			s := d.Status
			return s.ObservedGeneration == d.Generation && s.Replicas == n && s.ReadyReplicas == n && s.UpdatedReplicas == n && d.Spec.Template.Spec.Containers[0].Image == image, fmt.Sprintf("%+v", s)
		})
		t.Logf("%d replicas of image %s after %v", n, image, time.Since(began).Round(time.Millisecond))
	}
	ready(replicas, "one")
	patch := func(body string) {
		t.Helper()
		if _, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec":{"replicas":30}}`)
	ready(30, "one")
	patch(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"two"}]}}}}`)
	ready(30, "two")
	patch(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"one"}]}}}}`)
	ready(30, "one")
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deployment and its pods are gone", func(ctx context.Context) (bool, string) {
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		list, listErr := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		return apierrors.IsNotFound(err) && listErr == nil && len(list.Items) == 0, fmt.Sprint(err, listErr, len(list.Items))
	})
}

func testJob(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	spec := template("done").Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := client.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](5), Parallelism: ptr.To[int32](5), Template: corev1.PodTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is complete", func(ctx context.Context) (bool, string) {
		j, err := client.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 5, fmt.Sprint(err, j.Status)
	})
}

// testQuota fills a quota, checks that one more pod is rejected, and that deleting a pod makes
// room.
func testQuota(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	namespace(t, client, "quota")
	quotas := client.CoreV1().ResourceQuotas("quota")
	_, err := quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name string, dryRun ...string) error {
		_, err := client.CoreV1().Pods("quota").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template("x").Spec}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	// Admission follows quotas by a watch, so it knows this quota once it rejects a pod because of
	// it.
	eventually(t, "the quota is enforced", func(context.Context) (bool, string) {
		err := pod("none", metav1.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: q"), fmt.Sprint(err)
	})
	if _, err := quotas.Patch(ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":{"pods":"1"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first pod", func(context.Context) (bool, string) {
		err := pod("one")
		return err == nil, fmt.Sprint(err)
	})
	if err := pod("two"); !apierrors.IsForbidden(err) {
		t.Fatalf("a pod beyond the quota: %v", err)
	}
	if err := client.CoreV1().Pods("quota").Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod after the first one went", func(context.Context) (bool, string) {
		err := pod("two")
		return err == nil, fmt.Sprint(err)
	})
}

func namespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "service account of "+name, func(ctx context.Context) (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// testNamespace deletes a namespace with content.
func testNamespace(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	namespace(t, client, "full")
	for i := range 20 {
		if _, err := client.CoreV1().ConfigMaps("full").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Pods("full").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d", i)}, Spec: template("x").Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
		ns, err := client.CoreV1().Namespaces().Get(ctx, "full", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err, ns.Status)
	})
}

// testGarbage deletes an owner: its dependents are deleted, orphaned ones remain.
func testGarbage(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	owned := func(owner *corev1.ConfigMap, name string) {
		t.Helper()
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
		}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		policy metav1.DeletionPropagation
		stays  bool
	}{{metav1.DeletePropagationBackground, false}, {metav1.DeletePropagationForeground, false}, {metav1.DeletePropagationOrphan, true}} {
		name := fmt.Sprintf("owner-%t-%d", c.stays, len(c.policy))
		owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owned(owner, name+"-child")
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &c.policy}); err != nil {
			t.Fatal(err)
		}
		eventually(t, string(c.policy), func(ctx context.Context) (bool, string) {
			_, ownerErr := maps.Get(ctx, name, metav1.GetOptions{})
			child, err := maps.Get(ctx, name+"-child", metav1.GetOptions{})
			if c.stays {
				return apierrors.IsNotFound(ownerErr) && err == nil && len(child.OwnerReferences) == 0, fmt.Sprint(ownerErr, err)
			}
			return apierrors.IsNotFound(ownerErr) && apierrors.IsNotFound(err), fmt.Sprint(ownerErr, err)
		})
	}
}
