package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const compressedNamespace = "compressed"

// TestCompressedWatchLists checks that Go's transport, which requests gzip and decompresses the
// stream, receives the initial events, each later event and the end, over HTTP/1.1 and HTTP/2.
func TestCompressedWatchLists(t *testing.T) {
	ctx := deadline(t, time.Minute)
	createNamespaces(ctx, t, compressedNamespace)
	typed, _ := directClients(t)
	const objects = 15
	for i := range objects {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%02d", i)}, Data: map[string]string{"text": strings.Repeat(fmt.Sprintf("%d,", i), 6000)}}
		_, err := typed.CoreV1().ConfigMaps(compressedNamespace).Create(ctx, cm, metav1.CreateOptions{})
		must(t, err)
	}
	g := startGateway(t, "--shutdown-drain=1s")
	var streams []*stream
	for _, http2 := range []bool{false, true} {
		c := newClient(t, fmt.Sprint("gateway, HTTP/2: ", http2), g.URL(), as(realkube.Admin), http2)
		c.http.Transport.(*http.Transport).DisableCompression = false
		for _, accept := range []string{typeJSON, typeProto} {
			streams = append(streams, compressedWatch(ctx, t, c, accept))
		}
	}
	for _, s := range streams {
		eventually(ctx, t, waitTimeout, func() error { return hasEvents(s, objects+1) }) // plus the bookmark
	}
	for i, change := range []string{"small", strings.Repeat("large ", 1000)} {
		cm, err := typed.CoreV1().ConfigMaps(compressedNamespace).Get(ctx, "large-07", metav1.GetOptions{})
		must(t, err)
		cm.Data = map[string]string{"text": change}
		_, err = typed.CoreV1().ConfigMaps(compressedNamespace).Update(ctx, cm, metav1.UpdateOptions{})
		must(t, err)
		for _, s := range streams {
			eventually(ctx, t, waitTimeout, func() error { return hasEvents(s, objects+2+i) })
		}
	}
	must(t, g.Stop(ctx))
	for _, s := range streams {
		must(t, s.await(10*time.Second))
		if s.ended != nil || !s.has(api.Modified, objectKey(compressedNamespace, "large-07")) {
			t.Errorf("%s: ended with %v", s.request, s.ended)
		}
	}
}

// compressedWatch opens a streaming list of the test's objects.
func compressedWatch(ctx context.Context, t *testing.T, c *client, accept string) *stream {
	t.Helper()
	r := request{accept: accept, path: "/api/v1/namespaces/" + compressedNamespace + "/configmaps?watch=1&sendInitialEvents=true" +
		"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"}
	resp, err := c.with("Accept-Encoding", "gzip").open(ctx, r)
	must(t, err)
	_ = resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("%s: %s: %d, %v", c.name, r, resp.StatusCode, resp.Header)
	}
	return c.mustWatch(ctx, t, r, 0, true) // the transport requests gzip itself
}

func hasEvents(s *stream, n int) error {
	if seen := len(s.seen().Events); seen < n {
		return fmt.Errorf("%s: got %d of %d events", s.request, seen, n)
	}
	return nil
}
