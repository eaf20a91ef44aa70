package security

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A watched is the event stream of a watch, as strings: "ADDED name@version".
type watched <-chan string

// watch opens a watch as the administrator. It is closed at the end of the test.
func watch(ctx context.Context, t *testing.T, g *realkube.Gateway, path string) watched {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL()+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+kube.AdminToken())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}}
	resp, err := client.Do(req)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close(); client.CloseIdleConnections() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	events := make(chan string, 1000)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 4<<20)
		for lines.Scan() {
			var e struct {
				Type   string
				Object struct {
					Metadata struct{ Name, ResourceVersion string }
					Message  string
				}
			}
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				return
			}
			events <- e.Type + " " + e.Object.Metadata.Name + "@" + e.Object.Metadata.ResourceVersion + e.Object.Message
		}
	}()
	return events
}

// until reads up to the event of the named object and returns the events before it.
func (w watched) until(ctx context.Context, t *testing.T, name string) (before []string, version string) {
	t.Helper()
	for {
		select {
		case e, ok := <-w:
			if !ok || strings.HasPrefix(e, "ERROR") {
				t.Fatalf("the watch ended with %q after %d events", e, len(before))
			}
			if _, rv, found := strings.Cut(e, " "+name+"@"); found {
				return before, rv
			}
			before = append(before, e)
		case <-ctx.Done():
			t.Fatalf("no event of %s after %v", name, before)
		}
	}
}

// TestDeletionsOfOneVersionAreNotLost checks that watches receive every deletion of an etcd
// transaction, although all have the same version, and that the gateway does not list again. etcd
// deletes the objects of expired leases, such as Events, in this way.
func TestDeletionsOfOneVersionAreNotLost(t *testing.T) {
	ctx := deadline(t, time.Minute)
	g := startGateway(t)
	const many = 40
	for _, tc := range []struct{ resource, body string }{
		{"events", `{"metadata":{"name":"NAME"},"involvedObject":{"kind":"Pod","name":"p","namespace":"NS"},"reason":"Test"}`},
		{"configmaps", `{"metadata":{"name":"NAME"}}`},
	} {
		t.Run(tc.resource, func(t *testing.T) {
			ns := fmt.Sprintf("one-version-%s", tc.resource)
			path := "/api/v1/namespaces/" + ns + "/" + tc.resource
			create := func(path, body string) {
				if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", path, body); a.status != 201 {
					t.Fatal(a)
				}
			}
			object := func(name string) {
				create(path, strings.NewReplacer("NAME", name, "NS", ns).Replace(tc.body))
			}
			create("/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
			list := do(ctx, t, g.URL(), kube.AdminToken(), "GET", path+"?resourceVersion=0", "")
			var meta struct {
				Metadata struct{ ResourceVersion string }
			}
			must(t, json.Unmarshal([]byte(list.body), &meta))
			w := watch(ctx, t, g, path+"?watch=1&resourceVersion="+meta.Metadata.ResourceVersion)
			for i := range many {
				object(fmt.Sprintf("o%02d", i))
			}
			before, _ := w.until(ctx, t, fmt.Sprintf("o%02d", many-1))
			if len(before) != many-1 {
				t.Fatalf("got %d events: %v", len(before), before)
			}
			m, err := g.Metrics(ctx)
			must(t, err)
			labels := map[string]string{"resource": tc.resource, "encoding": "json"}
			restarts := m.Sum("kubeweir_cache_feed_restarts_total", labels)

			must(t, kube.DeletePrefix(ctx, "/registry/"+tc.resource+"/"+ns+"/"))
			object("marker")
			deleted, marker := w.until(ctx, t, "marker")
			version := ""
			for i, e := range deleted {
				name, rv, _ := strings.Cut(e, "@")
				if name != fmt.Sprintf("DELETED o%02d", i) || i > 0 && rv != version {
					t.Fatalf("event %d is %s, of version %s", i, e, version)
				}
				version = rv
			}
			if len(deleted) != many {
				t.Fatalf("got %d of %d deletions", len(deleted), many)
			}

			// A watch that resumes from that version receives all deletions, whether or not it has seen
			// some.
			again, rv := watch(ctx, t, g, path+"?watch=1&resourceVersion="+version).until(ctx, t, "marker")
			if len(again) != many || rv != marker {
				t.Errorf("resumed from version %[2]s: got %[1]d deletions: %[3]v", len(again), version, again)
			}
			state := do(ctx, t, g.URL(), kube.AdminToken(), "GET", path+"?resourceVersion="+version+"&resourceVersionMatch=Exact", "")
			if state.status != 200 || strings.Contains(state.body, `"o0`) {
				t.Errorf("list at version %s: %s", version, state)
			}
			m, err = g.Metrics(ctx)
			must(t, err)
			if n := m.Sum("kubeweir_cache_feed_restarts_total", labels); n != restarts {
				t.Errorf("the reflector restarted %v times", n-restarts)
			}
		})
	}
}
