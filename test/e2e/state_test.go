package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// kills returns how often TestKilledWithState kills the gateway. From 50 on there are 200
// informers.
func kills() int { return soak.Cases(3, 50) }

// killedRate is the number of writes per second while the gateway is killed.
const killedRate = 100

// saved is the maximum time until the gateway has saved a change, with some slack.
const saved = 4 * time.Second

// TestKilledWithState kills a gateway with a state directory repeatedly, during writes, with
// informers and watches that resume from the last version they have seen. Each time the gateway
// loads the state without listing again, and no client sees an event twice or an older version.
func TestKilledWithState(t *testing.T) {
	ctx := deadline(t, 4*time.Minute+time.Duration(kills())*20*time.Second)
	namespaces := []string{"killed-1", "killed-2"}
	resources := []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource}
	createNamespaces(ctx, t, namespaces...)
	g := startGateway(t, "--shutdown-drain=1s", "--state-dir", filepath.Join(t.TempDir(), "state"))
	clients := g.AdminConfig()
	clients.Host = startRelay(t, strings.TrimPrefix(g.URL(), "https://")).url()
	upstream, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)
	var followers []*follower
	for range max(1, min(kills()/5, 10)) {
		followers = append(followers, newFollowers(t, clients, resources...)...)
	}
	runFollowers(ctx, t, followers)
	resumed := newResumer(ctx, t, g.AdminConfig(), podsResource)
	direct := kube.AdminConfig()
	all := newWriters(t, soak.Seed(t), resources, namespaces, direct, direct, direct)
	all.limit = flowcontrol.NewTokenBucketRateLimiter(killedRate, 1)
	loaded := 0
	for i := range kills() {
		must(t, all.write(ctx, 50))
		if i%2 == 0 {
			testbed.Wait(ctx, saved) // so that some changes are saved and some are not
		}
		must(t, disturb(ctx, g, all, 150, killGateway()))
		want := map[schema.GroupVersionResource]versions{}
		for _, resource := range resources {
			want[resource], err = versionsOf(ctx, upstream, resource)
			must(t, err)
		}
		for _, f := range followers {
			eventually(ctx, t, catchUp, func() error { return f.equals(want[f.resource]) })
		}
		eventually(ctx, t, catchUp, func() error { return resumed.equals(want[podsResource]) })
		loaded += checkLoaded(ctx, t, g, i)
	}
	if loaded < 3*kills() {
		t.Errorf("%d collections were loaded in %d starts", loaded, kills())
	}
	listed := 0
	for _, f := range followers {
		for _, what := range f.wrong() {
			t.Errorf("%s: %s", f.name, what)
		}
		if f.lists() > 1 {
			listed++
		}
	}
	t.Logf("%d informers, of which %d have listed again", len(followers), listed)
	resumed.check(t)
}

// checkLoaded checks that the gateway has loaded all saved collections since its start, without
// listing any of them, and returns their number.
func checkLoaded(ctx context.Context, t *testing.T, g *realkube.Gateway, kill int) int {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	loads := func(result string) float64 {
		return m.Sum("kubeweir_state_loads_total", map[string]string{"result": result})
	}
	read := func(purpose string) float64 {
		return m.Sum("kubeweir_upstream_response_bytes_total", map[string]string{"purpose": purpose})
	}
	t.Logf("kill %d: collections loaded %g, missing %g; bytes of lists %g, of watches %g", kill,
		loads("confirmed"), loads("absent"), read("list"), read("watch"))
	for _, result := range []string{"damaged", "old", "redefined", "rewound", "unreadable"} {
		if n := loads(result); n > 0 {
			t.Errorf("kill %d: %g collections were dropped: %s\n%s", kill, n, result, g.Log())
		}
	}
	for _, reason := range []string{"expired", "order", "too_large"} {
		if n := m.Sum("kubeweir_cache_feed_restarts_total", map[string]string{"reason": reason}); n > 0 {
			t.Errorf("kill %d: %g collections were listed again: %s\n%s", kill, n, reason, g.Log())
		}
	}
	return int(loads("confirmed"))
}

// A resumer watches a resource and, when the watch ends, resumes from the last version it has seen.
type resumer struct {
	mu struct {
		sync.Mutex
		held  versions
		last  uint64 // version of the newest event
		wrong []string
		gone  int // how often its version was expired
		opens int
	}
}

func newResumer(ctx context.Context, t *testing.T, cfg *rest.Config, resource schema.GroupVersionResource) *resumer {
	t.Helper()
	client, err := metadata.NewForConfig(cfg)
	must(t, err)
	r := &resumer{}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := r.watch(ctx, client.Resource(resource)); err != nil {
				testbed.Wait(ctx, testbed.PollPeriod)
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

// watch lists if there is no version to resume from, and watches until the watch ends.
func (r *resumer) watch(ctx context.Context, client metadata.Getter) error {
	r.mu.Lock()
	last := r.mu.last
	r.mu.opens++
	r.mu.Unlock()
	if last == 0 {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		held := versions{}
		for i := range list.Items {
			held[objectKey(list.Items[i].Namespace, list.Items[i].Name)] = list.Items[i].ResourceVersion
		}
		if last, err = api.ParseResourceVersion(list.ResourceVersion); err != nil {
			return err
		}
		r.mu.Lock()
		r.mu.held, r.mu.last = held, last
		r.mu.Unlock()
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(last), AllowWatchBookmarks: true})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		r.expired()
	}
	if err != nil {
		return err
	}
	defer w.Stop()
	for ev := range w.ResultChan() {
		if !r.note(ev) {
			break
		}
	}
	return nil
}

func (r *resumer) expired() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.last = 0
	r.mu.gone++
}

// note records an event. It returns false if the watch must end.
func (r *resumer) note(ev watch.Event) bool {
	if ev.Type == watch.Error {
		if err := apierrors.FromObject(ev.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			r.expired()
		}
		return false
	}
	m, err := meta.Accessor(ev.Object)
	if err != nil {
		return false
	}
	rv, err := api.ParseResourceVersion(m.GetResourceVersion())
	key := objectKey(m.GetNamespace(), m.GetName())
	r.mu.Lock()
	defer r.mu.Unlock()
	_, held := r.mu.held[key]
	switch {
	case err != nil, ev.Type == watch.Bookmark && rv < r.mu.last, ev.Type != watch.Bookmark && rv <= r.mu.last,
		ev.Type == watch.Added && held, (ev.Type == watch.Modified || ev.Type == watch.Deleted) && !held:
		r.mu.wrong = append(r.mu.wrong, fmt.Sprintf("%s %s at %d after %d, held: %t", ev.Type, key, rv, r.mu.last, held))
	}
	r.mu.last = max(r.mu.last, rv)
	switch ev.Type {
	case watch.Added, watch.Modified:
		r.mu.held[key] = m.GetResourceVersion()
	case watch.Deleted:
		delete(r.mu.held, key)
	}
	return true
}

func (r *resumer) equals(want versions) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if difference := r.mu.held.firstDifference(want); difference != "" {
		return fmt.Errorf("resumed watch: %s (last at version %d)", difference, r.mu.last)
	}
	return nil
}

func (r *resumer) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("the resumed watch was opened %d times, its version had expired %d times", r.mu.opens, r.mu.gone)
	for _, what := range r.mu.wrong {
		t.Error(what)
	}
}

// TestSealedState checks that Secrets are saved if there is a state key.
func TestSealedState(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	writeKey(t, key)
	g := startGateway(t, "--shutdown-drain=1s", "--state-dir", filepath.Join(dir, "state"), "--state-key-file", key)
	c := through(t, g, as(realkube.Admin))
	const path = "/api/v1/secrets?resourceVersion=0"
	before := c.get(ctx, t, path, typeJSON).body
	must(t, g.Stop(ctx))
	if _, err := os.Stat(filepath.Join(dir, "state", "secrets.v1.json.image")); err != nil {
		t.Error(err)
	}
	must(t, g.Start(ctx))
	if after := c.get(ctx, t, path, typeJSON).body; len(after) == 0 || len(before) == 0 {
		t.Errorf("the response has %d bytes before the restart, %d after", len(before), len(after))
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if n := m.Sum("kubeweir_state_loads_total", map[string]string{"result": "confirmed"}); n < 2 {
		t.Errorf("only %g collections were loaded\n%s", n, g.Log())
	}
}
