package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A client is an HTTP/2 client and its capabilities.
type client struct {
	name    string
	connect func(t *testing.T, url string) peer
	// Some clients do not support 100 Continue or trailers.
	continues, trailers bool
	// paced means that the client opens its flow-control window in small steps.
	paced bool
}

var all = []client{
	{name: "x-net", connect: newGoPeer, continues: true, trailers: true},
	{name: "curl", connect: newCurlPeer, continues: true},
	{name: "node", connect: newNodePeer, continues: true, trailers: true},
	{name: "python", connect: newPythonPeer("0"), continues: true, trailers: true},
	{name: "python-small-window", connect: newPythonPeer("4000"), continues: true, trailers: true, paced: true},
	{name: "chromium", connect: newChromiumPeer},
}

// TestClients runs the same scenario with every client, on one connection.
func TestClients(t *testing.T) {
	g := startGateway(t)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			d := &driver{peer: c.connect(t, g.URL()), token: kube.Token(realkube.Admin)} // may install the client first
			ctx := deadline(t)
			checkList(t, d.get(maps+"?resourceVersion=0").whole(ctx, t, 200))
			checkGet(ctx, t, d)
			checkWatch(ctx, t, d, c.name)
			checkStreams(ctx, t, d)
			checkSlow(ctx, t, d)
			checkUpload(ctx, t, d, c)
			checkRejected(ctx, t, d)
		})
	}
}

// checkList checks that a list is complete.
func checkList(t *testing.T, body string) string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("a list of %d bytes: %v", len(body), err)
	}
	n := 0
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, "map-") {
			n++
			if len(item.Data["text"]) != size {
				t.Errorf("%s has %d bytes", item.Name, len(item.Data["text"]))
			}
		}
	}
	if n != objects {
		t.Errorf("%d objects, want %d", n, objects)
	}
	return list.ResourceVersion
}

func checkGet(ctx context.Context, t *testing.T, d *driver) {
	t.Helper()
	for _, path := range []string{maps + "/map-0007", maps + "/map-0007?resourceVersion=0"} {
		var got corev1.ConfigMap
		must(t, json.Unmarshal([]byte(d.get(path).whole(ctx, t, 200)), &got))
		if got.Name != "map-0007" || len(got.Data["text"]) != size {
			t.Errorf("%s: %s of %d bytes", path, got.Name, len(got.Data["text"]))
		}
	}
	d.get(maps+"/none").whole(ctx, t, 404)
}

// checkWatch opens watches, causes events, and ends one of the watches, which must not affect the
// others.
func checkWatch(ctx context.Context, t *testing.T, d *driver, name string) {
	t.Helper()
	var list metav1.List
	must(t, json.Unmarshal([]byte(d.get(maps+"?resourceVersion=0&fieldSelector=metadata.name=none").whole(ctx, t, 200)), &list))
	path := maps + "?watch=true&resourceVersion=" + list.ResourceVersion
	watches := []*exchange{d.get(path), d.get(path), d.get(path)}
	for _, w := range watches {
		w.awaitHead(ctx, t, 200)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched-by-" + name}}
	cm, err := direct.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	must(t, err)
	for _, w := range watches {
		w.awaitText(ctx, t, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"`+cm.Name+`"`)
	}
	watches[1].cancel()
	cm.Data = map[string]string{"seen": name}
	_, err = direct.CoreV1().ConfigMaps("default").Update(ctx, cm, metav1.UpdateOptions{})
	must(t, err)
	must(t, direct.CoreV1().ConfigMaps("default").Delete(ctx, cm.Name, metav1.DeleteOptions{}))
	for _, w := range []*exchange{watches[0], watches[2]} {
		w.awaitText(ctx, t, `{"type":"MODIFIED"`)
		w.awaitText(ctx, t, `{"type":"DELETED"`)
		w.cancel()
	}
}

// checkStreams sends a hundred requests at once.
func checkStreams(ctx context.Context, t *testing.T, d *driver) {
	t.Helper()
	var gets []*exchange
	for i := range 100 {
		gets = append(gets, d.get(fmt.Sprintf("%s/map-%04d?resourceVersion=0", maps, i)))
	}
	for i, x := range gets {
		if body := compact(x.whole(ctx, t, 200)); !strings.Contains(body, fmt.Sprintf(`"name":"map-%04d"`, i)) {
			t.Errorf("%s: %.200s", x.name, body)
		}
	}
}

// checkSlow checks that a large response that is not read does not block others on the same
// connection.
func checkSlow(ctx context.Context, t *testing.T, d *driver) {
	t.Helper()
	slow := d.send(request{Method: "GET", Path: maps + "?resourceVersion=0", Hold: true})
	slow.awaitHead(ctx, t, 200)
	checkGet(ctx, t, d)
	checkList(t, d.get(maps+"?resourceVersion=0").whole(ctx, t, 200))
	slow.resume()
	checkList(t, slow.whole(ctx, t, 200))
}

// checkUpload creates objects that are larger than the window, with and without the optional
// features of a request body.
func checkUpload(ctx context.Context, t *testing.T, d *driver, c client) {
	t.Helper()
	kinds := map[string]request{"plain": {}}
	if c.continues {
		kinds["continue"] = request{Header: map[string]string{"Expect": "100-continue"}}
	}
	if c.trailers {
		kinds["trailers"] = request{Trailer: map[string]string{"X-Checksum": "none"}}
	}
	text := strings.Repeat("0123456789abcdef", 1000000/16)
	for kind, r := range kinds {
		name := c.name + "-" + kind
		r.Method, r.Path = "POST", maps
		r.Body = fmt.Sprintf(`{"metadata":{"name":%q},"data":{"text":%q}}`, name, text)
		x := d.send(r)
		x.whole(ctx, t, 201)
		if kind == "continue" && !slices.Equal(x.head.Informational, []int{100}) {
			t.Errorf("informational responses %v, want 100", x.head.Informational)
		}
		got, err := direct.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		if got.Data["text"] != text {
			t.Errorf("%s: the stored text has %d bytes and differs from the one sent", name, len(got.Data["text"]))
		}
		d.send(request{Method: "DELETE", Path: maps + "/" + name}).whole(ctx, t, 200)
	}
}

// checkRejected sends a body that the server does not read: it is large and its path does not exist.
func checkRejected(ctx context.Context, t *testing.T, d *driver) {
	t.Helper()
	d.send(request{Method: "POST", Path: maps + "/map-0001/none", Body: `{"text":"` + strings.Repeat("x", 500000) + `"}`}).whole(ctx, t, 404)
	checkGet(ctx, t, d)
}
