package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	fanoutNamespace = "fanout"
	socketNamespace = "sockets"
	plainWatches    = 900
	labelWatches    = 100
	// watchesPerConnection is the number of watches per HTTP/2 connection. Every tenth watch has an
	// HTTP/1.1 connection of its own.
	watchesPerConnection = 90
)

// TestOneUpstreamWatch opens 1,000 watches of one resource. kube-apiserver must serve only one
// watch, and all clients must receive an event.
func TestOneUpstreamWatch(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, fanoutNamespace)
	before, err := upstreamWatches(ctx, "configmaps")
	must(t, err)
	g := startGateway(t)
	// Fill the cache before the version from which the clients watch, so that its history need not be
	// extended.
	through(t, g, as(realkube.Admin)).get(ctx, t, "/api/v1/configmaps?resourceVersion=0", typeJSON)
	typed, _ := directClients(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"shard": "3"}}}
	created, err := typed.CoreV1().ConfigMaps(fanoutNamespace).Create(ctx, cm, metav1.CreateOptions{})
	must(t, err)

	watches := openManyWatches(ctx, t, g, created.ResourceVersion)
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "configmaps", before) })

	began := time.Now()
	created.Data = map[string]string{"now": "changed"}
	_, err = typed.CoreV1().ConfigMaps(fanoutNamespace).Update(ctx, created, metav1.UpdateOptions{})
	must(t, err)
	key := objectKey(fanoutNamespace, "one")
	for i, w := range watches {
		eventually(ctx, t, waitTimeout, func() error {
			if selects(i) && !w.has(api.Modified, key) {
				return fmt.Errorf("watch %d, %s: no event", i, w.request)
			}
			return nil
		})
	}
	t.Logf("all watches received the event %s after the start of the write", time.Since(began).Round(time.Millisecond))
	for i, w := range watches {
		if n := len(w.seen().Events); !selects(i) && n > 0 {
			t.Errorf("watch %d, %s: received an event of an object that it does not select", i, w.request)
		}
		if !w.open() {
			t.Errorf("watch %d, %s: ended: %v", i, w.request, w.ended)
		}
	}
	must(t, oneMoreWatch(ctx, "configmaps", before))
}

// TestOneUpstreamWatchAtStart checks that clients that lost their watches in a restart and all come
// back at once share one upstream watch from the beginning, also of a custom resource.
func TestOneUpstreamWatchAtStart(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	before, err := upstreamWatches(ctx, "widgets")
	must(t, err)
	g := startGateway(t)
	waiting := startRelay(t, strings.TrimPrefix(g.URL(), "https://"))
	must(t, g.Stop(ctx))
	var opening sync.WaitGroup
	for range 50 {
		c := newClient(t, "gateway", waiting.url(), as(realkube.Admin), false)
		opening.Go(func() {
			s, rejected, err := c.watch(ctx, request{path: "/apis/example.com/v1/widgets?watch=true"}, 0, true)
			if s == nil {
				t.Errorf("%s, %v", rejected, err)
				return
			}
			t.Cleanup(s.close)
		})
	}
	must(t, g.Start(ctx))
	opening.Wait()
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "widgets", before) })
}

// TestOneUpstreamWatchOfWebSockets opens 50 watches as browsers do, each with its token as a
// subprotocol. kube-apiserver must serve only one watch, and all clients must receive an event.
func TestOneUpstreamWatchOfWebSockets(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, socketNamespace)
	before, err := upstreamWatches(ctx, "configmaps")
	must(t, err)
	g := startGateway(t)
	through(t, g, as(realkube.Admin)).get(ctx, t, "/api/v1/configmaps?resourceVersion=0", typeJSON)
	typed, _ := directClients(t)
	created, err := typed.CoreV1().ConfigMaps(socketNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	must(t, err)
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(kube.AdminToken()))
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{"base64.binary.k8s.io", token}}
	url := "wss" + strings.TrimPrefix(g.URL(), "https") + "/api/v1/namespaces/" + socketNamespace + "/configmaps?watch=1&resourceVersion=" + created.ResourceVersion
	var open [50]*websocket.Conn
	for i := range open {
		conn, resp, err := dialer.DialContext(ctx, url, http.Header{"Origin": {"https://dashboard"}})
		must(t, err)
		must(t, resp.Body.Close())
		t.Cleanup(func() { _ = conn.Close() })
		open[i] = conn
	}
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "configmaps", before) })
	created.Data = map[string]string{"now": "changed"}
	_, err = typed.CoreV1().ConfigMaps(socketNamespace).Update(ctx, created, metav1.UpdateOptions{})
	must(t, err)
	for _, conn := range open {
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		kind, message, err := conn.ReadMessage()
		must(t, err)
		if kind != websocket.TextMessage || !bytes.HasPrefix(message, []byte(`{"type":"MODIFIED"`)) {
			t.Fatalf("unexpected message of type %d: %.200s", kind, message)
		}
	}
	must(t, oneMoreWatch(ctx, "configmaps", before))
}

// selects reports whether the i-th watch selects the test's object.
func selects(i int) bool { return i < plainWatches || i%10 == 3 }

func openManyWatches(ctx context.Context, t *testing.T, g *realkube.Gateway, from string) []*stream {
	t.Helper()
	watches := make([]*stream, plainWatches+labelWatches)
	var connection *client
	rv, err := api.ParseResourceVersion(from)
	must(t, err)
	var opening sync.WaitGroup
	errs := make([]error, len(watches))
	for i := range watches {
		if i%watchesPerConnection == 0 {
			connection = newClient(t, "gateway", g.URL(), as(realkube.Admin), true)
		}
		c := connection
		if i%10 == 9 {
			c = newClient(t, "gateway", g.URL(), as(realkube.Admin), false)
		}
		r := request{path: "/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=" + from}
		if i >= plainWatches {
			r.path += fmt.Sprintf("&labelSelector=shard=%d", i%10)
		}
		opening.Go(func() {
			var rejected response
			watches[i], rejected, errs[i] = c.watch(ctx, r, rv, false)
			if watches[i] == nil && errs[i] == nil {
				errs[i] = fmt.Errorf("%s: %s", r, rejected)
			}
		})
	}
	opening.Wait()
	t.Cleanup(func() {
		for _, w := range watches {
			if w != nil {
				w.close()
			}
		}
	})
	for _, err := range errs {
		must(t, err)
	}
	return watches
}

// upstreamWatches returns how many cluster-wide watches of a resource kube-apiserver serves,
// according to its metrics.
func upstreamWatches(ctx context.Context, resource string) (float64, error) {
	m, err := kube.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return watchesOf(m, resource), nil
}

// watchesOf returns the number of open watches of all objects of a resource, from kube-apiserver's metrics.
func watchesOf(m realkube.Metrics, resource string) float64 {
	return m.Sum("apiserver_longrunning_requests", map[string]string{"verb": "WATCH", "resource": resource, "scope": "cluster"})
}

func oneMoreWatch(ctx context.Context, resource string, before float64) error {
	now, err := upstreamWatches(ctx, resource)
	if err != nil {
		return err
	}
	if now != before+1 {
		return fmt.Errorf("kube-apiserver serves %v watches of %s, before: %v", now, resource, before)
	}
	return nil
}
