package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const coldNamespace = "cold"

// TestListThenWatch starts as kubectl and many clients do: it lists without a version and watches
// from the version of the list. In a cluster this version advances all the time, and the gateway
// may not have cached the resource before.
func TestListThenWatch(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, coldNamespace)
	defer writeElsewhere(ctx, t)()
	typed, _ := directClients(t)
	_, err := typed.CoreV1().Secrets(coldNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = typed.CoreV1().Secrets(coldNamespace).Delete(context.Background(), "one", metav1.DeleteOptions{})
	})
	for _, accept := range []string{typeJSON, typeProto, typeTable} {
		for _, flags := range []string{"--consistency=strict", "--consistency=session"} {
			t.Run(accept+" "+flags, func(t *testing.T) {
				g := startGateway(t, flags)
				c := through(t, g, as(realkube.Admin))
				const path = "/api/v1/namespaces/" + coldNamespace + "/secrets"
				var list metav1.PartialObjectMetadataList
				must(t, json.Unmarshal([]byte(c.get(ctx, t, path, typeMetaList).body), &list))
				from, err := api.ParseResourceVersion(list.ResourceVersion)
				must(t, err)
				w := c.mustWatch(ctx, t, request{path: path + "?watch=true&resourceVersion=" + list.ResourceVersion, accept: accept}, from, false)
				_, err = typed.CoreV1().Secrets(coldNamespace).Patch(ctx, "one", types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, rand.Uint32()), metav1.PatchOptions{})
				must(t, err)
				eventually(ctx, t, waitTimeout, func() error {
					if !w.has(api.Modified, coldNamespace+"/one") {
						return fmt.Errorf("the watch from the list's version received %v; it is open: %t, %v", w.seen().Events, w.open(), w.status())
					}
					return nil
				})
			})
		}
	}
	t.Run("kubectl", func(t *testing.T) {
		g := startGateway(t)
		k := newKubectl(ctx, t, g)
		out := &output{}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := k.command(ctx, k.configs[1], "get", "secrets", "-n", coldNamespace, "-w")
		cmd.Stdout, cmd.Stderr = out, out
		must(t, cmd.Start())
		defer func() {
			cancel()
			_ = cmd.Wait() // it was killed
		}()
		awaitOutput(ctx, t, out, "one", 1)
		_, err = typed.CoreV1().Secrets(coldNamespace).Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"a":"Yg=="}}`), metav1.PatchOptions{})
		must(t, err)
		awaitOutput(ctx, t, out, "one", 2)
	})
}

func awaitOutput(ctx context.Context, t *testing.T, out *output, text string, n int) {
	t.Helper()
	eventually(ctx, t, waitTimeout, func() error {
		if got := strings.Count(out.String(), text); got < n {
			return fmt.Errorf("got %d, want %d times %q in %q", got, n, text, out)
		}
		return nil
	})
}

// writeElsewhere writes other resources continuously until stop is called.
func writeElsewhere(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ws := newWriters(t, soak.Seed(t), []schema.GroupVersionResource{configMapsResource}, []string{coldNamespace}, kube.AdminConfig())
	var running sync.WaitGroup
	running.Go(func() { _ = ws.write(ctx, 1<<30) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}
