package browser

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// badName is a user or program name with which an attacker tries to run a script in the browser of
// the console's reader.
const badName = `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>`

// A load is a set of clients that list, watch and write.
type load struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup
}

// stop ends the clients and waits for them.
func (l *load) stop() {
	l.cancel()
	l.clients.Wait()
}

// startLoad starts clients of a gateway that run until they are stopped or the test ends: one
// writes a ConfigMap, two watch, one lists, and one with a malicious name lists without permission.
func startLoad(ctx context.Context, t *testing.T, g *realkube.Gateway) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	t.Cleanup(l.stop)
	good, bad := clientOf(t, g, "load/1", ""), clientOf(t, g, badName, badName)
	named := clientOf(t, g, badName, "")
	_, err := good.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "moving"}}, metav1.CreateOptions{})
	must(t, err)
	for _, c := range []*kubernetes.Clientset{good, named} {
		w, err := c.CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{})
		must(t, err)
		l.clients.Go(func() {
			defer w.Stop()
			for range w.ResultChan() { // ends with ctx
			}
		})
	}
	_, err = bad.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
	if err == nil {
		t.Fatal("a user without rights can list Secrets")
	}
	const pace = 20 * time.Millisecond
	for _, do := range []func(i int){
		func(i int) {
			data := map[string]string{"n": strconv.Itoa(i)}
			_, _ = good.CoreV1().ConfigMaps("default").Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "moving"}, Data: data}, metav1.UpdateOptions{})
		},
		func(int) { _, _ = named.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"}) },
	} {
		l.clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				do(i)
				testbed.Wait(ctx, pace)
			}
		})
	}
	return l
}

// clientOf returns a client of the administrator or, if user is set, of an impersonated user.
func clientOf(t *testing.T, g *realkube.Gateway, agent, user string) *kubernetes.Clientset {
	t.Helper()
	cfg := g.AdminConfig()
	cfg.UserAgent, cfg.Impersonate = agent, rest.ImpersonationConfig{UserName: user}
	c, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	return c
}
