package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

const (
	backfillNamespace = "backfilled"
	backfillPath      = "/api/v1/namespaces/" + backfillNamespace + "/configmaps"
)

// backfillWriter writes config maps, some of which come and go, and enter and leave a selector.
type backfillWriter struct {
	t *testing.T
	n int
}

func (w *backfillWriter) write(ctx context.Context, writes int) {
	w.t.Helper()
	typed, _ := directClients(w.t)
	maps := typed.CoreV1().ConfigMaps(backfillNamespace)
	for range writes {
		w.n++
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", w.n%5), Labels: map[string]string{"app": "xy"[w.n/5%2:][:1]}}}
		cm.Data = map[string]string{"n": fmt.Sprint(w.n)}
		_, err := maps.Get(ctx, cm.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
		case w.n%7 == 0:
			err = maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
		default:
			_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		}
		must(w.t, err)
	}
}

// listedVersion lists through a server and returns the version of the list.
func listedVersion(ctx context.Context, t *testing.T, c *client, path string) string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	must(t, json.Unmarshal([]byte(c.get(ctx, t, path, typeMetaList).body), &list))
	return list.ResourceVersion
}

// changes returns the events without bookmarks.
func changes(s *stream) (events []watchtest.WireEvent) {
	return slices.DeleteFunc(slices.Clone(s.seen().Events), func(e watchtest.WireEvent) bool { return e.Type == api.Bookmark })
}

// resumeAt is mustWatch for other goroutines than that of the test. The stream is nil after a failure.
func resumeAt(ctx context.Context, t *testing.T, c *client, r request, from uint64) *stream {
	s, rejected, err := c.watch(ctx, r, from, false)
	if s == nil {
		t.Errorf("%s: %s, %v", r, rejected, err)
		return nil
	}
	t.Cleanup(s.close)
	return s
}

// TestResumeAtFreshGateway resumes watches at a gateway that has begun after their version, in all
// forms. They must get what kube-apiserver sends from there, without another upstream watch.
func TestResumeAtFreshGateway(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	createNamespaces(ctx, t, backfillNamespace)
	w := &backfillWriter{t: t}
	w.write(ctx, 12)
	version := listedVersion(ctx, t, through(t, startGateway(t), as(realkube.Admin)), backfillPath)
	from, err := api.ParseResourceVersion(version)
	must(t, err)
	w.write(ctx, 10)
	g := startGateway(t)
	cached, upstream := through(t, g, as(realkube.Admin)), direct(t, as(realkube.Admin))
	for _, accept := range []string{typeJSON, typeProto} { // fill the cache after the version
		cached.get(ctx, t, "/api/v1/configmaps?resourceVersion=0", accept)
	}
	w.write(ctx, 10)

	type pair struct{ got, want *stream }
	var pairs []*pair
	var opening sync.WaitGroup
	for _, accept := range []string{typeJSON, typeProto, typeTable, typeMeta, typeMetaPB} {
		for _, selector := range []string{"", "labelSelector=app=x", "labelSelector=app!=x", "fieldSelector=metadata.name=map-1"} {
			for _, path := range []string{backfillPath, "/api/v1/configmaps"} {
				key, value, _ := strings.Cut(selector, "=")
				query := url.Values{"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"}}
				if key != "" {
					query.Set(key, value)
				}
				r := request{path: path + "?" + query.Encode(), accept: accept}
				p := &pair{want: upstream.mustWatch(ctx, t, r, from, false)}
				pairs = append(pairs, p)
				opening.Go(func() { p.got = resumeAt(ctx, t, cached, r, from) })
			}
		}
	}
	opening.Wait()
	w.write(ctx, 10)
	last, err := api.ParseResourceVersion(listedVersion(ctx, t, upstream, backfillPath))
	must(t, err)
	inNamespace := func(events []watchtest.WireEvent) []watchtest.WireEvent { // others write elsewhere
		return slices.DeleteFunc(events, func(e watchtest.WireEvent) bool {
			return !strings.HasPrefix(e.Key, backfillNamespace+"/") || e.RV > last
		})
	}
	for _, p := range pairs {
		if p.got == nil {
			continue // the failure is reported
		}
		eventually(ctx, t, waitTimeout, func() error {
			got, want := inNamespace(changes(p.got)), inNamespace(changes(p.want))
			if !slices.Equal(got, want) || len(want) == 0 {
				return fmt.Errorf("%s: received %v, %v\nwant %v", p.got.request, got, p.got.status(), want)
			}
			return nil
		})
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if n := m.Sum("kubeweir_forwarded_reads_total", map[string]string{"reason": "history"}); n > 0 {
		t.Errorf("%g watches were forwarded", n)
	}
	if n := m.Sum("kubeweir_cache_backfills_total", map[string]string{"result": "done"}); n < 2 {
		t.Errorf("%g backfills", n)
	}
}

// TestManyResumeAtFreshGateway resumes 50 watches in the first moment of a gateway. Five seconds
// later, kube-apiserver must serve one watch, and none of the clients may have missed an event or
// have to list again.
func TestManyResumeAtFreshGateway(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	createNamespaces(ctx, t, backfillNamespace)
	w := &backfillWriter{t: t}
	w.write(ctx, 5)
	var versions []string
	for range 5 {
		versions = append(versions, listedVersion(ctx, t, direct(t, as(realkube.Admin)), backfillPath))
		w.write(ctx, 4)
	}
	before, err := upstreamWatches(ctx, "configmaps")
	must(t, err)
	g := startGateway(t)
	watches := make([]*stream, 50)
	var opening sync.WaitGroup
	for i := range watches {
		c := through(t, g, as(realkube.Admin))
		version := versions[i%len(versions)]
		from, err := api.ParseResourceVersion(version)
		must(t, err)
		r := request{path: backfillPath + "?watch=true&resourceVersion=" + version, accept: typeJSON}
		if i%3 == 0 {
			r.path += "&labelSelector=app%3Dx"
		}
		opening.Go(func() { watches[i] = resumeAt(ctx, t, c, r, from) })
	}
	w.write(ctx, 10)
	opening.Wait()
	testbed.Wait(ctx, 5*time.Second)
	must(t, oneMoreWatch(ctx, "configmaps", before))
	w.write(ctx, 10)
	for _, s := range watches {
		if s == nil {
			continue // the failure is reported
		}
		want := direct(t, as(realkube.Admin)).mustWatch(ctx, t, s.request, s.seen().From, false)
		eventually(ctx, t, waitTimeout, func() error {
			if got, want := changes(s), changes(want); !slices.Equal(got, want) || len(want) == 0 || s.status() != nil {
				return fmt.Errorf("%s: received %v, %v\nwant %v", s.request, got, s.status(), want)
			}
			return nil
		})
		want.close()
	}
}

// TestKubectlsAtFreshGateway starts many `kubectl get --watch` in the first moment of a gateway, while
// others write. Soon after, kube-apiserver must serve one watch, and everybody must get the next event.
func TestKubectlsAtFreshGateway(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	createNamespaces(ctx, t, backfillNamespace, coldNamespace)
	(&backfillWriter{t: t}).write(ctx, 2)
	defer writeElsewhere(ctx, t)()
	before, err := upstreamWatches(ctx, "configmaps")
	must(t, err)
	g := startGateway(t)
	k := newKubectl(ctx, t, g)
	running, cancel := context.WithCancel(ctx)
	var exits sync.WaitGroup
	defer exits.Wait()
	defer cancel()
	outputs := make([]*output, soak.Cases(10, 50))
	for i := range outputs {
		outputs[i] = &output{}
		cmd := k.command(running, k.configs[1], "get", "configmaps", "-n", backfillNamespace, "--watch")
		cmd.Stdout, cmd.Stderr = outputs[i], outputs[i]
		must(t, cmd.Start())
		exits.Go(func() { _ = cmd.Wait() }) // it is killed
	}
	for _, out := range outputs {
		awaitOutput(ctx, t, out, "map-1", 1)
	}
	listed := time.Now()
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "configmaps", before) })
	t.Logf("kube-apiserver serves one watch %s after the last list", time.Since(listed).Round(10*time.Millisecond))
	typed, _ := directClients(t)
	_, err = typed.CoreV1().ConfigMaps(backfillNamespace).Patch(ctx, "map-1", types.MergePatchType, []byte(`{"data":{"more":"1"}}`), metav1.PatchOptions{})
	must(t, err)
	for _, out := range outputs {
		awaitOutput(ctx, t, out, "map-1", 2)
	}
	must(t, oneMoreWatch(ctx, "configmaps", before))
}

// TestHostileResumes resumes at random old versions, with and without selectors, and leaves at once, as
// often as it can. Others must be served meanwhile, and nothing may remain afterwards.
func TestHostileResumes(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	createNamespaces(ctx, t, backfillNamespace)
	w := &backfillWriter{t: t}
	w.write(ctx, 30)
	before, err := upstreamWatches(ctx, "configmaps")
	must(t, err)
	from, err := api.ParseResourceVersion(listedVersion(ctx, t, direct(t, as(realkube.Admin)), backfillPath))
	must(t, err)
	w.write(ctx, 10)
	g := startGateway(t)
	through(t, g, as(realkube.Admin)).get(ctx, t, backfillPath+"?resourceVersion=0", typeJSON)
	goroutines := func() float64 {
		m, err := g.Families(ctx, "go_goroutines")
		must(t, err)
		return m.Sum("go_goroutines", nil)
	}
	idle := goroutines()

	hostile, stop := context.WithCancel(ctx)
	seed := soak.Seed(t)
	var running sync.WaitGroup
	for i := range uint64(8) {
		c, random := through(t, g, as(realkube.Admin)), rand.New(rand.NewPCG(seed, i))
		running.Go(func() {
			for hostile.Err() == nil {
				r := request{path: fmt.Sprintf("%s?watch=true&resourceVersion=%d", backfillPath, 1+random.Uint64N(from)), accept: typeJSON}
				if random.IntN(2) == 0 {
					r.path += "&labelSelector=app%3Dx"
				}
				short, cancel := context.WithTimeout(hostile, time.Duration(random.Int64N(int64(20*time.Millisecond))))
				if s, _, err := c.watch(short, r, from, false); err == nil && s != nil {
					s.close()
				}
				cancel()
			}
		})
	}
	defer running.Wait()
	defer stop()
	for i := range soak.Cases(5, 50) {
		r := request{path: fmt.Sprintf("%s?watch=true&resourceVersion=%d", backfillPath, from), accept: typeJSON}
		got, want := through(t, g, as(realkube.Admin)).mustWatch(ctx, t, r, from, false), direct(t, as(realkube.Admin)).mustWatch(ctx, t, r, from, false)
		w.write(ctx, 2)
		eventually(ctx, t, waitTimeout, func() error {
			if got, want := changes(got), changes(want); len(want) < 12+2*i || !slices.Equal(got, want) {
				return fmt.Errorf("received %v\nwant %v", got, want)
			}
			return nil
		})
		got.close()
		want.close()
	}
	stop()
	running.Wait()
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "configmaps", before) })
	eventually(ctx, t, waitTimeout, func() error {
		if n := goroutines(); n > idle+20 { // connections stay open for a while
			return fmt.Errorf("%g goroutines, %g before", n, idle)
		}
		return nil
	})
}
