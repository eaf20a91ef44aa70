package origintest_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/origin/origintest"
)

func client(t testing.TB, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// TestStart is what users' tests do: write, read, watch by informer.
func TestStart(t *testing.T) {
	began := time.Now()
	api := origintest.Start(t)
	t.Logf("started in %v", time.Since(began))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	k := client(t, api.Config())

	factory := informers.NewSharedInformerFactory(k, 0)
	added := make(chan string, 10)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { added <- o.(*corev1.Pod).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	for _, name := range []string{"a", "b"} {
		if _, err := k.CoreV1().Pods("default").Create(ctx, pod(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// A write is seen by the next read, whoever answers it.
		if _, err := k.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-added:
			if got != name {
				t.Errorf("informer saw %q", got)
			}
		case <-ctx.Done():
			t.Fatal("the informer saw nothing")
		}
	}
	list, err := k.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%d pods, %v", len(list.Items), err)
	}
}

// TestPermissions: RBAC counts for all but the administrator, and at once.
func TestPermissions(t *testing.T) {
	api := origintest.Start(t)
	admin, jane := client(t, api.Config()), client(t, api.ConfigFor("jane", "devs"))
	if _, err := jane.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		err.Error() != `configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"` {
		t.Errorf("without a right: %v", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "devs"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "devs"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "edit"},
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := jane.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	if err := admin.RbacV1().RoleBindings("default").Delete(t.Context(), "devs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := jane.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
}

// eventually waits for what follows a write through a watch.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	began := time.Now()
	for !what() {
		if time.Since(began) > 5*time.Second {
			t.Fatal("it does not come")
		}
	}
	t.Logf("after %v", time.Since(began))
}

func TestServiceAccounts(t *testing.T) {
	api := origintest.StartWith(t, origintest.Options{ServiceAccounts: true})
	k := client(t, api.Config())
	created, err := k.CoreV1().Pods("default").Create(t.Context(), pod("a"), metav1.CreateOptions{})
	if err != nil || created.Spec.ServiceAccountName != "default" || len(created.Spec.Volumes) != 1 {
		t.Errorf("a pod with the default service account: %+v, %v", created.Spec, err)
	}
	other := pod("b")
	other.Spec.ServiceAccountName = "nobody"
	if _, err := k.CoreV1().Pods("default").Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod without its service account: %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	api := origintest.Start(t)
	path := api.Kubeconfig()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := client(t, c).Discovery().ServerVersion(); err != nil || version.Minor != "37" || c.Host != api.URL() {
		t.Errorf("%+v, %v", version, err)
	}
}
