package standalone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assets fills a folder as a user does.
func assets(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "assets")
	out, err := exec.CommandContext(ctx, tools(t).kubeweir, "envtest-assets", dir).Output()
	if err != nil || strings.TrimSpace(string(out)) != dir {
		t.Fatalf("%q, %v", out, err)
	}
	return dir
}

// startEnvironment starts an environment that ends with the test, and returns a client.
func startEnvironment(t *testing.T, env *envtest.Environment) *kubernetes.Clientset {
	t.Helper()
	began := time.Now()
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		began := time.Now()
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	})
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestEnvtest uses controller-runtime's envtest with kubeweir's assets, as its users do.
func TestEnvtest(t *testing.T) {
	ctx := t.Context()
	env := &envtest.Environment{BinaryAssetsDirectory: assets(ctx, t), CRDs: []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}}}
	env.ControlPlane.GetAPIServer().Configure().Set("feature-gates", "DeclarativeValidation=true")
	client := startEnvironment(t, env)

	generic, err := dynamic.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := generic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}).List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	user, err := env.AddUser(envtest.User{Name: "alice", Groups: []string{"team"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alice, err := kubernetes.NewForConfig(user.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alice.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("RBAC: %v", err)
	}
	checkToken(ctx, t, client, env.ControlPlane.GetAPIServer().SecureServing.URL("https", "/").String())
}

// checkToken checks that tokens of service accounts have envtest's issuer and are accepted.
func checkToken(ctx context.Context, t *testing.T, client *kubernetes.Clientset, issuer string) {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || len(review.Status.Audiences) != 1 || review.Status.Audiences[0] != issuer {
		t.Errorf("%v, %v; want audience %s", review, err, issuer)
	}
}

// TestEnvtestControllers checks that the controllers of KUBEWEIR_CONTROLLERS delete what is in a deleted
// namespace, and what a deleted object owns.
func TestEnvtestControllers(t *testing.T) {
	ctx := t.Context()
	t.Setenv("KUBEWEIR_CONTROLLERS", "namespace,garbagecollector")
	env := &envtest.Environment{BinaryAssetsDirectory: assets(ctx, t)}
	client := startEnvironment(t, env)
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	owner, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, owners := range map[string][]metav1.OwnerReference{
		"team": nil, "default": {{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object", OwnerReferences: owners}}
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := testbed.Poll(ctx, time.Minute, func() error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the deleted namespace: %v", err)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "object", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object whose owner is deleted: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestEnvtestOnDisk restarts kube-apiserver. With KUBEWEIR_STORE=disk, the objects are still there.
func TestEnvtestOnDisk(t *testing.T) {
	t.Setenv("KUBEWEIR_STORE", "disk")
	ctx := t.Context()
	env := &envtest.Environment{BinaryAssetsDirectory: assets(ctx, t)}
	client := startEnvironment(t, env)
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "remains"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server := env.ControlPlane.GetAPIServer()
	certs := t.TempDir() // the folder that envtest made goes with the process
	if err := os.CopyFS(certs, os.DirFS(server.CertDir)); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	server.CertDir = certs
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "remains", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestEnvtestSideBySide starts many environments at the same time: fifty in a soak.
func TestEnvtestSideBySide(t *testing.T) {
	dir, began := assets(t.Context(), t), time.Now()
	var all sync.WaitGroup
	for range soak.Cases(5, 50) {
		all.Go(func() {
			env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: 2 * time.Minute}
			cfg, err := env.Start()
			t.Cleanup(func() { _ = env.Stop() })
			if err != nil {
				t.Error(err)
				return
			}
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
			if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("all started in %s", time.Since(began).Round(time.Millisecond))
}

// TestEnvtestEndsWithItsParent kills a process that has started an API server.
func TestEnvtestEndsWithItsParent(t *testing.T) {
	ctx := t.Context()
	cmd := exec.CommandContext(ctx, "sh", "-c", assets(ctx, t)+"/etcd --data-dir "+t.TempDir()+" --listen-client-urls http://127.0.0.1:0 2>&1 & exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, url := bufio.NewScanner(out), ""
	for url == "" && lines.Scan() {
		if _, after, found := strings.Cut(lines.Text(), "ready on "); found {
			url, _, _ = strings.Cut(after, ",")
		}
	}
	health := func() error {
		resp, err := http.Get(url + "/health")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := health(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	if err := testbed.Poll(ctx, time.Minute, func() error {
		if health() == nil {
			return errors.New("etcd is still running")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

// TestEnvtestFlags compares the flags with those of kube-apiserver itself.
func TestEnvtestFlags(t *testing.T) {
	ctx := t.Context()
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`)
	list := func(program string) (names []string) {
		out, err := exec.CommandContext(ctx, program, "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flag.FindAllStringSubmatch(string(out), -1) {
			if m[1] != "help" && m[1] != "version" {
				names = append(names, m[1])
			}
		}
		slices.Sort(names)
		return names
	}
	if got, want := list(filepath.Join(assets(ctx, t), "kube-apiserver")), list(paths.KubeAPIServer); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
