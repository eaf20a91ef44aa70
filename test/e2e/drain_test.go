package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const drainNamespace = "drain"

// TestDrain sends SIGTERM to a gateway while watches are open and a large list is in flight.
func TestDrain(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, drainNamespace)
	const objects = 24
	createBigConfigMaps(ctx, t, objects)
	g := startGateway(t, "--shutdown-drain=10s")
	path := "/api/v1/namespaces/" + drainNamespace + "/configmaps"

	var watches []*stream
	for _, http2 := range []bool{true, false} {
		c := newClient(t, "gateway", g.URL(), as(realkube.Admin), http2)
		for _, accept := range []string{typeJSON, typeProto, typeTable} {
			for _, bookmarks := range []string{"", "&allowWatchBookmarks=true"} {
				watches = append(watches, c.mustWatch(ctx, t, request{path: path + "?watch=true" + bookmarks, accept: accept}, 0, true))
			}
		}
	}
	for _, w := range watches {
		eventually(ctx, t, waitTimeout, func() error {
			if n := len(w.seen().Events); n < objects {
				return fmt.Errorf("%s: received %d of %d objects", w.request, n, objects)
			}
			return nil
		})
	}
	list := startSlowList(ctx, t, g, path+"?resourceVersion=0")
	// A client that never reads its response must not delay the shutdown.
	_ = startSlowList(ctx, t, g, path+"?watch=true&resourceVersion=0")

	stopped := make(chan error, 1)
	began := time.Now()
	go func() { stopped <- g.Stop(ctx) }()
	list.finish(t, objects)
	if err := <-stopped; err != nil {
		t.Errorf("the gateway exited with: %v", err)
	}
	t.Logf("drained in %s", time.Since(began).Round(10*time.Millisecond))
	for _, w := range watches {
		must(t, w.await(time.Second))
		checkDrained(t, w)
	}
}

// checkDrained checks how a watch ended: without an error, and with a bookmark if the client
// accepts bookmarks.
func checkDrained(t *testing.T, w *stream) {
	t.Helper()
	if w.ended != nil || w.status() != nil {
		t.Errorf("%s: the watch ended with %v, %v", w.request, w.ended, w.status())
	}
	events := w.seen().Events
	last := events[len(events)-1]
	if strings.Contains(w.request.path, "allowWatchBookmarks") {
		highest := uint64(0)
		for _, e := range events {
			highest = max(highest, e.RV)
		}
		if last.Type != api.Bookmark || last.End || last.RV < highest {
			t.Errorf("%s: the last event is %s, not a bookmark at %d or later", w.request, last, highest)
		}
	} else if last.Type == api.Bookmark {
		t.Errorf("%s: received a bookmark without allowWatchBookmarks", w.request)
	}
}

func createBigConfigMaps(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	typed, _ := directClients(t)
	for i := range n {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("big-%02d", i)},
			Data:       map[string]string{"text": strings.Repeat("0123456789abcdef", 600<<10/16)},
		}
		_, err := typed.CoreV1().ConfigMaps(drainNamespace).Create(ctx, cm, metav1.CreateOptions{})
		must(t, err)
	}
}

// A slowList is a response larger than the network's buffers whose body has not been read yet.
type slowList struct{ resp *http.Response }

func startSlowList(ctx context.Context, t *testing.T, g *realkube.Gateway, path string) *slowList {
	t.Helper()
	c := newClient(t, "gateway", g.URL(), as(realkube.Admin), false)
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client's transport is no http.Transport")
	}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = errors.Join(err, tcp.SetReadBuffer(32<<10))
		}
		return conn, err
	}
	resp, err := c.open(ctx, request{path: path, accept: typeJSON})
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("list: %s", resp.Status)
	}
	return &slowList{resp: resp}
}

// finish reads the body, slowly at first, and checks that it is complete.
func (l *slowList) finish(t *testing.T, want int) {
	t.Helper()
	in := bufio.NewReaderSize(l.resp.Body, 64<<10)
	var body strings.Builder
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		<-tick.C
		if _, err := io.CopyN(&body, in, 64<<10); err != nil {
			t.Fatalf("the list was truncated after %d bytes: %v", body.Len(), err)
		}
	}
	if n, err := io.Copy(&body, in); err != nil {
		t.Fatalf("the list was truncated after %d more bytes: %v", n, err)
	}
	var list corev1.ConfigMapList
	if err := json.Unmarshal([]byte(body.String()), &list); err != nil {
		t.Fatalf("decoding the list of %d bytes: %v", body.Len(), err)
	}
	if len(list.Items) != want {
		t.Errorf("the list has %d items, want %d", len(list.Items), want)
	}
}
