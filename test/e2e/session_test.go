package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	sessionNamespace = "session"
	sessionRounds    = 500
	sessionNames     = 12
)

const sessionConfig = `consistency:
  default: strict
rules:
- userAgents: ["e2e*"]
  resources: [configmaps]
  consistency: session
`

// TestSessionConsistency checks that in session mode the cache serves the reads that kubectl makes,
// and that clients find what was written through the gateway, while others write at kube-apiserver.
func TestSessionConsistency(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, sessionNamespace)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(sessionConfig), 0o600))
	g := startGateway(t, "--config="+file)
	seed := soak.Seed(t)
	s := &session{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), present: map[string]sessionObject{},
		writer: through(t, g, as(realkube.Admin)),
		// Other clients, on other connections, see the writes, too.
		readers: []*client{
			through(t, g, as(realkube.Admin)), newClient(t, "gateway", g.URL(), as(realkube.GatewayUser), false),
		},
	}
	other := writeAround(ctx, t, seed)
	reads := 0
	for range sessionRounds {
		s.write(ctx)
		reads += s.read(ctx)
	}
	other()
	cached, requested := readsFrom(ctx, t, g, "cached"), readsFrom(ctx, t, g, "forwarded", "collapsed", "revalidated")
	m, err := g.Metrics(ctx)
	must(t, err)
	checks := m.Sum("kubeweir_cache_fresh_rounds_total", map[string]string{"resource": "configmaps"})
	t.Logf("%d reads, %v from the cache after %v freshness checks, %v from kube-apiserver", reads, cached, checks, requested)
	// The response to a deletecollection does not contain its deletions, so a read after it may need
	// kube-apiserver.
	if cached < float64(reads)/2 || requested > float64(reads)/20 {
		t.Errorf("of %d reads %v were served from the cache and %v by kube-apiserver", reads, cached, requested)
	}
	// The responses to most other writes, including deletions, suffice.
	if checks > float64(reads)/10 {
		t.Errorf("there were %v freshness checks, want at most a tenth of the reads", checks)
	}
}

// TestNoCacheReads checks that in session mode a read with Cache-Control: no-cache reflects earlier
// writes that bypassed the gateway.
func TestNoCacheReads(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, "no-cache")
	g := startGateway(t, "--consistency=session")
	strict := through(t, g, as(realkube.Admin)).with("Cache-Control", "no-cache")
	past := direct(t, as(realkube.Admin))
	const path = "/api/v1/namespaces/no-cache/configmaps"
	for round := range 50 {
		name := fmt.Sprintf("past-%d", round)
		created, err := past.send(ctx, request{method: http.MethodPost, path: path, typ: "application/json", body: fmt.Sprintf(`{"metadata":{"name":%q}}`, name)})
		must(t, err)
		if created.status != http.StatusCreated {
			t.Fatal(created)
		}
		if a := strict.get(ctx, t, path+"/"+name, "application/json"); a.status != http.StatusOK {
			t.Fatalf("get %s: %v", name, a)
		}
		if a := strict.get(ctx, t, path, "application/json"); !strings.Contains(a.body, `"`+name+`"`) {
			t.Fatalf("the list lacks %s", name)
		}
	}
	if n := readsFrom(ctx, t, g, "cached"); n != 0 {
		t.Errorf("%v reads were served from the cache without a freshness check", n)
	}
}

// readsFrom returns how many reads were served from any of the sources.
func readsFrom(ctx context.Context, t *testing.T, g *realkube.Gateway, sources ...string) float64 {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	n := 0.0
	for _, source := range sources {
		for _, verb := range []string{"get", "list"} {
			n += m.Sum("kubeweir_requests_total", map[string]string{"verb": verb, "source": source})
		}
	}
	return n
}

// writeAround changes ConfigMaps of other names at kube-apiserver itself until stop is called.
func writeAround(ctx context.Context, t *testing.T, seed uint64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	cfg := kube.AdminConfig()
	other := newWriters(t, seed, []schema.GroupVersionResource{configMapsResource}, []string{sessionNamespace}, cfg)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_ = other.write(ctx, 1)
			testbed.Wait(ctx, 5*time.Millisecond)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// A session is a client that remembers its writes.
type session struct {
	t       *testing.T
	random  *rand.Rand
	writer  *client
	readers []*client
	present map[string]sessionObject
	listed  uint64 // version of the last list
	round   int
	touched string // the name written last
}

type sessionObject struct {
	rv    uint64
	color string
}

func (s *session) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("round %d, after writing %s: %s", s.round, s.touched, fmt.Sprintf(format, args...))
}

// write makes a random change through the gateway.
func (s *session) write(ctx context.Context) {
	s.round++
	name := fmt.Sprintf("mine-%d", s.random.IntN(sessionNames))
	s.touched = name
	path := configMapsIn(sessionNamespace)
	color := pick(s.random, "red", "green", "blue")
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"session":"mine","color":%q}},"data":{"round":"%d"}}`, name, color, s.round)
	_, exists := s.present[name]
	switch n := s.random.IntN(20); {
	case !exists:
		s.wrote(ctx, name, color, request{method: http.MethodPost, path: path, body: body})
	case n < 6:
		s.wrote(ctx, name, color, request{method: http.MethodPut, path: path + "/" + name, body: body})
	case n < 12:
		patch := fmt.Sprintf(`{"metadata":{"labels":{"color":%q}},"data":{"round":"%d"}}`, color, s.round)
		s.wrote(ctx, name, color, request{method: http.MethodPatch, path: path + "/" + name, typ: "application/merge-patch+json", body: patch})
	case n < 17:
		s.must(ctx, request{method: http.MethodDelete, path: path + "/" + name})
		delete(s.present, name)
	case n < 19:
		s.finalize(ctx, path+"/"+name)
		delete(s.present, name)
	case s.random.IntN(2) == 0: // a dry run deletes nothing
		s.must(ctx, request{method: http.MethodDelete, path: path + "/" + name, body: `{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"]}`})
	default:
		s.touched = "all that are " + color
		s.must(ctx, request{method: http.MethodDelete, path: path + "?labelSelector=" + url.QueryEscape("session=mine,color="+color)})
		for name, o := range s.present {
			if o.color == color {
				delete(s.present, name)
			}
		}
	}
}

// finalize deletes an object with a finalizer in three steps. The last one, an update, removes the
// finalizer.
func (s *session) finalize(ctx context.Context, path string) {
	s.t.Helper()
	patch := request{method: http.MethodPatch, path: path, typ: "application/merge-patch+json"}
	patch.body = `{"metadata":{"finalizers":["example.com/kept"]}}`
	s.must(ctx, patch)
	s.must(ctx, request{method: http.MethodDelete, path: path})
	patch.body = `{"metadata":{"finalizers":null}}`
	s.must(ctx, patch)
}

func (s *session) must(ctx context.Context, r request) response {
	s.t.Helper()
	if r.typ == "" && r.body != "" {
		r.typ = typeJSON
	}
	a, err := s.writer.send(ctx, r)
	must(s.t, err)
	if a.status >= 300 {
		s.fail("%s: %s", r, a)
	}
	return a
}

// wrote sends a write that returns the object, and records its version.
func (s *session) wrote(ctx context.Context, name, color string, r request) {
	s.t.Helper()
	var object metav1.PartialObjectMetadata
	must(s.t, json.Unmarshal([]byte(s.must(ctx, r).body), &object))
	s.present[name] = sessionObject{rv: s.version(object.ResourceVersion), color: color}
}

func (s *session) version(text string) uint64 {
	s.t.Helper()
	rv, err := api.ParseResourceVersion(text)
	must(s.t, err)
	return rv
}

// read makes the reads of one round and returns their number.
func (s *session) read(ctx context.Context) int {
	reader := s.readers[s.random.IntN(len(s.readers))]
	if strings.HasPrefix(s.touched, "mine-") {
		s.get(ctx, reader, s.touched)
	} else {
		s.get(ctx, reader, "mine-0")
	}
	color := pick(s.random, "red", "green", "blue")
	for _, selector := range []string{"session=mine", "session=mine,color=" + color} {
		accept := pick(s.random, typeJSON, typeTable, typeMetaList)
		s.list(ctx, reader, accept, selector, strings.TrimPrefix(strings.TrimPrefix(selector, "session=mine"), ",color="))
	}
	return 3
}

func (s *session) get(ctx context.Context, c *client, name string) {
	s.t.Helper()
	a := c.get(ctx, s.t, configMapsIn(sessionNamespace)+"/"+name, typeJSON)
	o, exists := s.present[name]
	if !exists {
		if a.status != http.StatusNotFound {
			s.fail("get of the deleted object %s: %s", name, a)
		}
		return
	}
	var object metav1.PartialObjectMetadata
	if a.status == http.StatusOK {
		must(s.t, json.Unmarshal([]byte(a.body), &object))
	}
	if a.status != http.StatusOK || s.version(object.ResourceVersion) != o.rv {
		s.fail("get of %s, written at version %d: %s", name, o.rv, a)
	}
}

// list lists with a selector and compares the result with the writes. color is the selected one, or
// "".
func (s *session) list(ctx context.Context, c *client, accept, selector, color string) {
	s.t.Helper()
	path := configMapsIn(sessionNamespace)
	if s.random.IntN(2) == 0 {
		path = "/api/v1/configmaps"
	}
	r := request{path: path + "?labelSelector=" + url.QueryEscape(selector), accept: accept}
	if s.random.IntN(3) == 0 {
		r.path += "&limit=500"
	}
	a, err := c.send(ctx, r)
	must(s.t, err)
	if a.status != http.StatusOK {
		s.fail("%s: %s", r, a)
	}
	got, rv := s.listedObjects(a.body)
	if rv < s.listed {
		s.fail("%s: the list is at version %d, an earlier one at %d", r, rv, s.listed)
	}
	s.listed = rv
	want := 0
	for name, o := range s.present {
		if color != "" && o.color != color {
			continue
		}
		want++
		if got[name] != o.rv {
			s.fail("%s: %s at version %d, written at %d", r, name, got[name], o.rv)
		}
	}
	if len(got) != want {
		s.fail("%s: %d objects, want %d: %v", r, len(got), want, got)
	}
}

// listedObjects decodes a list or a table.
func (s *session) listedObjects(body string) (map[string]uint64, uint64) {
	s.t.Helper()
	var list struct {
		Metadata metav1.ListMeta                `json:"metadata"`
		Items    []metav1.PartialObjectMetadata `json:"items"`
		Rows     []struct {
			Object metav1.PartialObjectMetadata `json:"object"`
		} `json:"rows"`
	}
	must(s.t, json.Unmarshal([]byte(body), &list))
	for _, row := range list.Rows {
		list.Items = append(list.Items, row.Object)
	}
	got := map[string]uint64{}
	for _, o := range list.Items {
		got[o.Name] = s.version(o.ResourceVersion)
	}
	return got, s.version(list.Metadata.ResourceVersion)
}
