package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

const (
	slowNamespace = "slow"
	slowUpdates   = 60
)

// TestSlowConsumer has clients that stop reading their watches during 30 MB of events. Other
// clients must not be affected, and the slow ones must either be told to list again or receive
// every event.
func TestSlowConsumer(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, slowNamespace)
	typed, _ := directClients(t)
	maps := typed.CoreV1().ConfigMaps(slowNamespace)
	cm, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big"}}, metav1.CreateOptions{})
	must(t, err)
	g := startGateway(t, "--history-bytes=2Mi", "--write-timeout=1m")
	// List first, as every client does. A watch from before the cache's history would be forwarded,
	// and kube-apiserver treats slow clients differently.
	var list metav1.List
	must(t, json.Unmarshal([]byte(through(t, g, as(realkube.Admin)).get(ctx, t, configMapsIn(slowNamespace)+"?resourceVersion="+cm.ResourceVersion, "").body), &list))
	path := fmt.Sprintf("%s?watch=true&resourceVersion=%s", configMapsIn(slowNamespace), list.ResourceVersion)
	slow := map[string]*http.Response{"HTTP/1.1": startSlowList(ctx, t, g, path).resp}
	slow["HTTP/2"], err = through(t, g, as(realkube.Admin)).open(ctx, request{path: path})
	must(t, err)
	defer func() { _ = slow["HTTP/2"].Body.Close() }()
	from, err := api.ParseResourceVersion(list.ResourceVersion)
	must(t, err)
	fast := through(t, g, as(realkube.Admin)).mustWatch(ctx, t, request{path: path}, from, false)

	want := watchtest.Truth{From: from}
	for i := range slowUpdates {
		cm.Data = map[string]string{"text": strings.Repeat(string(rune('a'+i%26)), 500<<10)}
		cm, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		must(t, err)
		rv, err := api.ParseResourceVersion(cm.ResourceVersion)
		must(t, err)
		want.Events = append(want.Events, watchtest.WireEvent{Type: api.Modified, Key: slowNamespace + "/big", RV: rv})
		eventually(ctx, t, waitTimeout, func() error {
			if last := fast.seen().Last(); last < rv {
				return fmt.Errorf("the client that reads is at version %d, the last event at %d; open: %t, %v", last, rv, fast.open(), fast.status())
			}
			return nil
		})
	}
	if err := watchtest.Check(fast.seen(), want); err != nil {
		t.Error(err)
	}
	for name, resp := range slow {
		w, status, err := readRest(resp)
		if err != nil {
			t.Errorf("%s: the slow watch was truncated: %v", name, err)
		}
		w.From, w.Cut = from, true // it was too slow
		if err := watchtest.Check(w, want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if status == nil || status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("%s: after %d of %d events the slow watch ended with %v", name, len(w.Events), slowUpdates, status)
			continue
		}
		t.Logf("%s: received %d of %d events, then %v", name, len(w.Events), slowUpdates, status.Message)
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if n := m.Sum("kubeweir_cache_watchers_expired_total", map[string]string{"resource": "configmaps"}); n != float64(len(slow)) {
		t.Errorf("%v watches are counted as too slow, want %d", n, len(slow))
	}
}

// readRest reads a watch to its end.
func readRest(resp *http.Response) (w watchtest.Watch, status *metav1.Status, err error) {
	for in := bufio.NewReader(resp.Body); ; {
		e, s, err := nextJSON(in)
		switch {
		case errors.Is(err, io.EOF):
			return w, status, nil
		case err != nil:
			return w, status, err
		case s != nil:
			status = s
		default:
			w.Events = append(w.Events, e)
		}
	}
}
