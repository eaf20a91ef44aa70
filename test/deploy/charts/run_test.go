package charts

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// client returns a client of the container that trusts the chart's CA and uses the Service's name.
func (c *container) client(list []*unstructured.Unstructured, token string) *kubernetes.Clientset {
	c.t.Helper()
	ca, _, _ := unstructured.NestedString(find(c.t, list, "ConfigMap", "kubeweir-ca").Object, "data", "ca.crt")
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: c.url, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(ca), ServerName: "kubeweir.kubeweir.svc"}})
	if err != nil {
		c.t.Fatal(err)
	}
	return clients
}

// TestGatewayRuns checks that the gateway serves with the rendered arguments, configuration,
// certificate and rights.
func TestGatewayRuns(t *testing.T) {
	list := render(t, "helm4", strings.ReplaceAll(valueSet(t, "gateway-config"), "[projects.example.com]", "[]"))
	admin, err := kubernetes.NewForConfig(kube.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	const own = "gateway-runs" // not a namespace in which another test creates objects
	ctx := t.Context()
	if _, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ServiceAccounts(own).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kubeweir"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for kind, into := range map[string]any{"ClusterRole": &role, "ClusterRoleBinding": &binding} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, list, kind, "kubeweir-gateway").Object, into); err != nil {
			t.Fatal(err)
		}
	}
	binding.Subjects[0].Namespace = own
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the objects have the names that Helm gives them
		_ = admin.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(ctx), binding.Name, metav1.DeleteOptions{})
		_ = admin.RbacV1().ClusterRoles().Delete(context.WithoutCancel(ctx), role.Name, metav1.DeleteOptions{})
	})
	token, err := admin.CoreV1().ServiceAccounts(own).CreateToken(ctx, "kubeweir", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, kube.URL(), kube.ServingCAFile(), token.Status.Token); err != nil {
		t.Fatal(err)
	}

	c := newContainer(t, list)
	c.start("--kubeconfig=" + kubeconfig) // in a pod it uses the service account instead
	for _, p := range []*corev1.Probe{c.spec.StartupProbe, c.spec.LivenessProbe, c.spec.ReadinessProbe} {
		c.probe(p)
	}
	clients := c.client(list, kube.AdminToken())
	found, err := clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(found.Items) < 4 {
		t.Errorf("%d namespaces, %v", len(found.Items), err)
	}
	if _, err := c.client(list, kube.Token(realkube.Alice)).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), `"alice"`) {
		t.Errorf("alice may list namespaces: %v", err)
	}
}

// TestStandaloneRuns checks that the standalone serves with the rendered files, that the
// administrator can log in with the generated token, and that a second instance with the same keys
// and a shared store accepts tokens of the first one.
func TestStandaloneRuns(t *testing.T) {
	values := fmt.Sprintf("mode: standalone\nreplicas: 2\nstandalone: {etcd: {servers: [%q], prefix: /charts}}\n", kube.EtcdURL())
	list := render(t, "helm3", values)
	token, err := base64.StdEncoding.DecodeString(find(t, list, "Secret", "kubeweir-admin").Object["data"].(map[string]any)["token"].(string))
	if err != nil {
		t.Fatal(err)
	}
	first, second := newContainer(t, list), newContainer(t, list)
	first.start()
	second.start()
	ctx := t.Context()
	for _, c := range []*container{first, second} {
		for _, p := range []*corev1.Probe{c.spec.StartupProbe, c.spec.LivenessProbe, c.spec.ReadinessProbe} {
			c.probe(p)
		}
		if _, err := c.client(list, string(token)).CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	admin := first.client(list, string(token))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	robot, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := second.client(list, robot.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:serviceaccount:default:robot" {
		t.Errorf("%v, %v", who, err)
	}
}

// TestStandaloneKeepsItsObjects checks that a standalone with its own store keeps objects and keys
// when the pod is replaced.
func TestStandaloneKeepsItsObjects(t *testing.T) {
	list := render(t, "helm4", valueSet(t, "standalone-defaults"))
	token, err := base64.StdEncoding.DecodeString(find(t, list, "Secret", "kubeweir-admin").Object["data"].(map[string]any)["token"].(string))
	if err != nil {
		t.Fatal(err)
	}
	c := newContainer(t, list)
	ctx := t.Context()
	c.start()
	if _, err := c.client(list, string(token)).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop()
	c.start()
	if _, err := c.client(list, string(token)).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestClustersRun checks that the gateway serves several clusters with the rendered files, with
// kubeconfigs from one Secret, and saves its state on the chart's volume.
func TestClustersRun(t *testing.T) {
	list := render(t, "helm4", `
upstream: {existingSecret: clusters}
state: {enabled: true, keySecret: sealing}
config:
  offline: {default: allow}
  clusters:
    - {name: berlin, hosts: [berlin.example], authentication: {clientCAFile: berlin-ca.crt}}
    - {name: lab, kubeconfig: shared.kubeconfig}
`)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, kube.URL(), kube.ServingCAFile(), kube.AdminToken()); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(kube.ServingCAFile())
	if err != nil {
		t.Fatal(err)
	}
	list = append(list,
		secret("clusters", map[string][]byte{"berlin.kubeconfig": kubeconfig, "shared.kubeconfig": kubeconfig, "berlin-ca.crt": ca}),
		secret("sealing", map[string][]byte{"key": []byte("0123456789abcdef0123456789abcdef")}))
	c := newContainer(t, list)
	c.start()
	for _, p := range []*corev1.Probe{c.spec.StartupProbe, c.spec.LivenessProbe, c.spec.ReadinessProbe} {
		c.probe(p)
	}
	url := c.url
	for _, name := range []string{"berlin", "lab"} {
		c.url = url + "/clusters/" + name
		if found, err := c.client(list, kube.AdminToken()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil || len(found.Items) < 4 {
			t.Errorf("%s: %d namespaces, %v", name, len(found.Items), err)
		}
		if saved, err := os.Stat(filepath.Join(c.root, "var/lib/kubeweir/state", name)); err != nil || !saved.IsDir() {
			t.Errorf("%s has no state folder: %v", name, err)
		}
	}
}

// secret returns a Secret that users create.
func secret(name string, data map[string][]byte) *unstructured.Unstructured {
	encoded := make(map[string]any)
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString(value)
	}
	s := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": encoded}}
	s.SetName(name)
	return s
}
