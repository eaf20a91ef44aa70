package kustomize

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// inCluster returns what rest.InClusterConfig returns in a container. It reads the same variables
// and files, whose path cannot be changed.
func (p *pod) inCluster(c *corev1.Container) *rest.Config {
	p.t.Helper()
	env := make(map[string]string)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	folder := p.mounted(c, serviceAccountFolder)
	address := p.address(net.JoinHostPort(env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]))
	return &rest.Config{
		Host:            "https://" + address,
		BearerToken:     string(read(p.t, filepath.Join(folder, "token"))),
		BearerTokenFile: filepath.Join(folder, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(folder, "ca.crt")},
	}
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

// podWatches returns the number of watches of all pods by kube-apiserver's own metrics.
func podWatches(ctx context.Context) (float64, error) {
	m, err := kube.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return m.Sum("apiserver_longrunning_requests", map[string]string{"verb": "WATCH", "resource": "pods", "scope": "cluster"}), nil
}

// TestSidecar checks that programs without any configuration for kubeweir read through the gateway
// in their pod, as their service account, and cost the cluster one watch. They continue when the
// gateway is killed and restarted.
func TestSidecar(t *testing.T) {
	ctx := deadline(t)
	before, err := podWatches(ctx)
	must(t, err)
	p := newPod(ctx, t, "sidecar", nil)
	gateway := p.start(ctx)
	config := p.inCluster(p.container("example"))
	if namespace := read(t, filepath.Join(p.mounted(p.container("example"), serviceAccountFolder), "namespace")); string(namespace) != p.namespace {
		t.Errorf("namespace %q", namespace)
	}
	who, err := client(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	if name := who.Status.UserInfo.Username; name != "system:serviceaccount:kubeweir-sidecar:example" {
		t.Errorf("the program is %s", name)
	}

	var rejected atomic.Pointer[error] // an error that no program may get
	var lists []cache.Indexer
	for range 5 {
		factory := informers.NewSharedInformerFactory(client(t, config), 0)
		informer := factory.Core().V1().Pods().Informer()
		must(t, informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || err != nil && strings.Contains(err.Error(), "x509") {
				rejected.Store(&err)
			}
		}))
		factory.StartWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("an informer did not sync")
		}
		lists = append(lists, informer.GetIndexer())
	}
	must(t, oneMore(ctx, before))
	arrives(ctx, t, p, lists, "first")

	ca, token := read(t, config.CAFile), read(t, config.BearerTokenFile)
	gateway.Kill()
	must(t, gateway.Start(ctx))
	if string(read(t, config.CAFile)) != string(ca) || string(read(t, config.BearerTokenFile)) != string(token) {
		t.Error("after a restart programs would have to trust another CA, or present another token")
	}
	arrives(ctx, t, p, lists, "second")
	if err := rejected.Load(); err != nil {
		t.Error(*err)
	}
	if printed := read(t, filepath.Join(p.dir, "kubeweir.log")); strings.Contains(string(printed), string(token)) {
		t.Error("the token is in the log")
	}
}

func oneMore(ctx context.Context, before float64) error {
	now, err := podWatches(ctx)
	if err == nil && now != before+1 {
		err = fmt.Errorf("kube-apiserver serves %v watches of pods, %v before", now, before)
	}
	return err
}

// arrives creates a pod in the cluster and waits until all lists contain it.
func arrives(ctx context.Context, t *testing.T, p *pod, lists []cache.Indexer, name string) {
	t.Helper()
	created := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.namespace}, Spec: p.spec}
	_, err := client(t, kube.AdminConfig()).CoreV1().Pods(p.namespace).Create(ctx, created, metav1.CreateOptions{})
	must(t, err)
	for _, list := range lists {
		eventually(ctx, t, func() error {
			if _, there, err := list.GetByKey(p.namespace + "/" + name); err != nil || !there {
				return fmt.Errorf("%s has not arrived: %v", name, err)
			}
			return nil
		})
	}
}

// TestSidecarToken checks that the sidecar's token is valid only at this gateway, and that the
// gateway accepts no other token.
func TestSidecarToken(t *testing.T) {
	ctx := deadline(t)
	p := newPod(ctx, t, "sidecar", nil)
	p.start(ctx)
	config := p.inCluster(p.container("example"))
	list := func(c *rest.Config) error {
		// Without retries, even if the response has a Retry-After header.
		return client(t, c).CoreV1().RESTClient().Get().Resource("pods").MaxRetries(0).Do(ctx).Error()
	}
	must(t, list(config))
	with := func(change func(*rest.Config)) error {
		other := rest.CopyConfig(config)
		other.BearerTokenFile = ""
		change(other)
		return list(other)
	}
	if err := with(func(c *rest.Config) { c.Host, c.CAFile = kube.URL(), kube.ServingCAFile() }); !apierrors.IsUnauthorized(err) {
		t.Errorf("at kube-apiserver: %v", err)
	}
	if err := with(func(c *rest.Config) { c.BearerToken = "" }); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a token: %v", err)
	}
	// Other tokens need a review, which this service account may not create, so that nobody can log
	// in with one.
	if err := with(func(c *rest.Config) { c.BearerToken = kube.AdminToken() }); err == nil {
		t.Error("a token that the gateway cannot review was accepted")
	}
	// A client that impersonates a user with fewer rights must not be served with its own rights.
	err := with(func(c *rest.Config) { c.Impersonate.UserName = "bob" })
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"system:serviceaccount:kubeweir-sidecar:example" cannot impersonate`) {
		t.Errorf("as bob: %v", err)
	}
}

// TestSidecarNeedsNoRights checks that the sidecar needs no rights of its own: with the program's
// rights in one namespace, or none, it serves what the cluster would.
func TestSidecarNeedsNoRights(t *testing.T) {
	ctx := deadline(t)
	namespace := find(t, build(ctx, t, "sidecar"), "Namespace", "").GetName()
	p := newPod(ctx, t, "sidecar", func(spec *corev1.PodSpec) {
		narrowAccount(ctx, t, namespace) // the namespace exists now
		spec.ServiceAccountName = "narrow"
	})
	p.start(ctx)
	program := client(t, p.inCluster(p.container("example")))
	if _, err := program.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `User "system:serviceaccount:kubeweir-sidecar:narrow" cannot list resource "configmaps" in API group "" at the cluster scope`) {
		t.Errorf("everywhere: %v", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(program, 0, informers.WithNamespace(p.namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer of one namespace did not sync")
	}
	made, err := program.CoreV1().ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
	must(t, err)
	eventually(ctx, t, func() error {
		if _, there, err := informer.GetIndexer().GetByKey(p.namespace + "/" + made.Name); err != nil || !there {
			return errors.Join(os.ErrNotExist, err)
		}
		return nil
	})
}

// narrowAccount creates the service account of TestSidecarNeedsNoRights.
func narrowAccount(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	admin := client(t, kube.AdminConfig())
	_, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create"}}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "narrow"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "narrow"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "narrow", Namespace: namespace}}}, metav1.CreateOptions{})
	must(t, err)
}
