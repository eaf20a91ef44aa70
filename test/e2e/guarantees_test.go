package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// A view is a watch of a selection of pods in one representation.
type view struct {
	name     string
	path     string // of the collection
	query    url.Values
	accept   string
	http1    bool
	initial  bool // the watch starts with the current state
	selected func(*corev1.Pod) bool
}

func (v view) request(from uint64, extra ...string) request {
	q := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}}
	for key, values := range v.query {
		q[key] = values
	}
	if from > 0 {
		q.Set("resourceVersion", fmt.Sprint(from))
		q.Del("sendInitialEvents")
		q.Del("resourceVersionMatch")
	}
	for i := 0; i < len(extra); i += 2 {
		q.Set(extra[i], extra[i+1])
	}
	return request{path: v.path + "?" + q.Encode(), accept: v.accept}
}

const (
	allPods = "/api/v1/pods"
	onePods = "/api/v1/namespaces/guarantees-1/pods"
)

// views returns the watches whose guarantees are checked.
func views() []view {
	every := func(*corev1.Pod) bool { return true }
	inOne := func(p *corev1.Pod) bool { return p.Namespace == "guarantees-1" }
	red := func(p *corev1.Pod) bool { return p.Labels["color"] == "red" }
	stream := url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}}
	with := func(key, value string) url.Values { return url.Values{key: {value}} }
	return []view{
		{name: "all", path: allPods, selected: every},
		{name: "all, HTTP/1.1", path: allPods, http1: true, selected: every},
		{name: "protobuf", path: allPods, accept: typeProto, selected: every},
		{name: "table", path: allPods, accept: typeTable, selected: every},
		{name: "metadata", path: allPods, accept: typeMeta, selected: every},
		{name: "metadata in protobuf, HTTP/1.1", path: allPods, accept: typeMetaPB, http1: true, selected: every},
		{name: "one namespace", path: onePods, selected: inOne},
		{name: "label", path: allPods, query: with("labelSelector", "color=red"), selected: red},
		{name: "label in one namespace", path: onePods, query: with("labelSelector", "color in (red,green),writer!=w0"),
			selected: func(p *corev1.Pod) bool {
				return inOne(p) && (red(p) || p.Labels["color"] == "green") && p.Labels["writer"] != "w0"
			}},
		{name: "phase", path: allPods, query: with("fieldSelector", "status.phase=Running"),
			selected: func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }},
		{name: "node in protobuf", path: allPods, query: with("fieldSelector", "spec.nodeName=node-1"), accept: typeProto,
			selected: func(p *corev1.Pod) bool { return p.Spec.NodeName == "node-1" }},
		{name: "name", path: onePods, query: with("fieldSelector", "metadata.name=w1-1"),
			selected: func(p *corev1.Pod) bool { return inOne(p) && p.Name == "w1-1" }},
		{name: "streamed list", path: allPods, query: stream, initial: true, selected: every},
		{name: "streamed list in protobuf", path: allPods, query: stream, accept: typeProto, initial: true, selected: every},
		{name: "streamed table", path: allPods, query: stream, accept: typeTable, initial: true, selected: every},
		{name: "any version", path: allPods, query: with("resourceVersion", "0"), initial: true, selected: every},
	}
}

// TestRawWatchGuarantees compares the events of raw watches with etcd's history while
// kube-apiserver is killed: every event arrives once and in order, bookmarks are right, and no
// watch ends.
func TestRawWatchGuarantees(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	createNamespaces(ctx, t, "guarantees-1", "guarantees-2")
	_, generic := directClients(t)
	must(t, emptyEverywhere(ctx, generic, podsResource))
	g := startGateway(t)
	// Fill the cache. A watch from before its history would be forwarded, and end with kube-apiserver.
	admin := through(t, g, as(realkube.Admin))
	admin.get(ctx, t, "/api/v1/pods?resourceVersion=0", typeJSON)
	admin.get(ctx, t, "/api/v1/pods?resourceVersion=0", typeProto)
	began, err := kube.Revision(ctx)
	must(t, err)
	cfg := kube.AdminConfig()
	all := newWriters(t, soak.Seed(t), []schema.GroupVersionResource{podsResource},
		[]string{"guarantees-1", "guarantees-2"}, cfg, cfg, cfg, g.AdminConfig())

	// Half of the watches start with an empty collection, the others do not.
	var open []*watched
	for _, v := range views() {
		open = append(open, watchView(ctx, t, g, v, uint64(began)))
	}
	must(t, all.write(ctx, int64(soak.Cases(200, 400))))
	middle, err := kube.Revision(ctx)
	must(t, err)
	for _, v := range views() {
		open = append(open, watchView(ctx, t, g, v, uint64(middle)))
	}
	restless := followChains(ctx, t, g, uint64(began))
	must(t, all.write(ctx, int64(soak.Cases(500, 1200))))
	gap := killGently(ctx, t, g, all)
	restless.expectGap(gap)
	must(t, all.write(ctx, int64(soak.Cases(500, 1200))))

	history := settle(ctx, t, began)
	soon, cancel := context.WithTimeout(ctx, waitTimeout) // for all watches together
	defer cancel()
	for _, w := range open {
		want := truth(uint64(began), history, w.view.selected)
		if err := testbed.Poll(soon, waitTimeout, func() error { return w.caughtUp(want) }); err != nil {
			t.Errorf("%s: %v", w, err)
		}
		w.check(t, want)
	}
	restless.check(ctx, t, history, uint64(began))
	checkResumes(ctx, t, g, open, uint64(began), history, gap)
	t.Logf("%d watches and %d chains received %d changes", len(open), len(restless.chains), len(history))
}

// watched is an open watch of a view.
type watched struct {
	view   view
	stream *stream
}

func (w *watched) String() string {
	return fmt.Sprintf("watch %q from %d", w.view.name, w.stream.seen().From)
}

func watchView(ctx context.Context, t *testing.T, g *realkube.Gateway, v view, from uint64) *watched {
	t.Helper()
	c := newClient(t, "gateway", g.URL(), as(realkube.Admin), !v.http1)
	if v.initial {
		from = 0
	}
	return &watched{view: v, stream: c.mustWatch(ctx, t, v.request(from), from, v.initial)}
}

// caughtUp returns nil once the last event has arrived.
func (w *watched) caughtUp(want watchtest.Truth) error {
	if len(want.Events) == 0 {
		return errors.New("nothing was written that the watch selects")
	}
	last, seen := want.Events[len(want.Events)-1], w.stream.seen()
	if seen.Last() < last.RV {
		return fmt.Errorf("the watch is at version %d, the last event is %s", seen.Last(), last)
	}
	return nil
}

// check compares the events of the watch with the truth.
func (w *watched) check(t *testing.T, want watchtest.Truth) {
	t.Helper()
	if !w.stream.open() {
		t.Errorf("%s: ended: %v, %v", w, w.stream.ended, w.stream.status())
	}
	if err := watchtest.Check(w.stream.seen(), want); err != nil {
		t.Errorf("%s: %v", w, err)
	}
}

// A gap is the range of versions around the failure of kube-apiserver. The reflector finds the
// changes in it by a list, so it cannot tell whether a client that resumes within the gap has seen
// every change up to its version. Such a client may be told to list again.
type gap struct{ from, to uint64 }

func (g gap) holds(rv uint64) bool { return g.from <= rv && rv <= g.to }

// killGently kills and restarts kube-apiserver during writes that touch each object at most once. A
// list then reveals the same events that kube-apiserver had not sent when it was killed.
func killGently(ctx context.Context, t *testing.T, g *realkube.Gateway, all *writers) gap {
	t.Helper()
	all.setGentle(true)
	from, err := kube.Revision(ctx)
	must(t, err)
	must(t, all.write(ctx, 60))
	must(t, disturb(ctx, g, all, 120, killUpstream()))
	must(t, all.write(ctx, 60))
	// Once the last of these writes has arrived, the client is past the failure.
	c := through(t, g, as(realkube.Admin))
	now, err := kube.Revision(ctx)
	must(t, err)
	eventually(ctx, t, catchUp, func() error {
		a, err := c.send(ctx, request{path: fmt.Sprintf("%s?resourceVersion=%d&limit=1&resourceVersionMatch=NotOlderThan", allPods, now)})
		if err != nil {
			return err
		}
		if a.status != 200 {
			return fmt.Errorf("list at version %d: %s", now, a)
		}
		return nil
	})
	all.setGentle(false)
	return gap{uint64(from), uint64(now)}
}

// settle returns the history up to now.
func settle(ctx context.Context, t *testing.T, began int64) []change {
	t.Helper()
	now, err := kube.Revision(ctx)
	must(t, err)
	history, err := podHistory(ctx, began, now)
	must(t, err)
	return history
}

// chains are clients that watch for a few seconds and resume where the last watch ended.
type chains struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	chains  []*chain
	gap     gap // set before the chains are checked
}

func (cs *chains) expectGap(g gap) { cs.gap = g }

type chain struct {
	view   view
	client *client
	// The goroutine that runs the chain owns the fields below.
	watches  []watchtest.Watch
	rejected int
	expired  []uint64 // versions from which a watch could not resume
	err      error
}

// chainSeconds is the duration of the watches of a chain. A server sends a bookmark two seconds
// before the end.
const chainSeconds = "3"

func followChains(ctx context.Context, t *testing.T, g *realkube.Gateway, from uint64) *chains {
	t.Helper()
	cs := &chains{}
	cs.ctx, cs.stop = context.WithCancel(ctx)
	for _, v := range views() {
		if v.initial {
			continue
		}
		c := &chain{view: v, client: newClient(t, "gateway", g.URL(), as(realkube.Admin), !v.http1)}
		cs.chains = append(cs.chains, c)
		cs.running.Go(func() { c.run(cs.ctx, from) })
	}
	t.Cleanup(func() {
		cs.stop()
		cs.running.Wait()
	})
	return cs
}

// run opens watches until ctx ends.
func (c *chain) run(ctx context.Context, from uint64) {
	for ctx.Err() == nil {
		r := c.view.request(from, "timeoutSeconds", chainSeconds)
		initial := from == 0
		if initial {
			r = c.view.request(0, "timeoutSeconds", chainSeconds, "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan")
		}
		s, rejected, err := c.client.watch(ctx, r, from, initial)
		if ctx.Err() != nil {
			if s != nil {
				s.close()
			}
			return
		}
		if err != nil || s == nil {
			c.rejected++
			if c.rejected > 20 {
				c.err = fmt.Errorf("cannot watch: %v %s", err, rejected)
				return
			}
			testbed.Wait(ctx, 100*time.Millisecond)
			continue
		}
		<-s.done
		seen := s.seen()
		if status := s.status(); status != nil && status.Code == http.StatusGone && len(seen.Events) == 0 {
			c.expired, from = append(c.expired, from), 0
			continue
		}
		c.watches = append(c.watches, seen)
		from = seen.Last()
		if status := s.status(); s.ended != nil && ctx.Err() == nil || status != nil {
			c.err = fmt.Errorf("the watch from version %d ended: %v, %v", seen.From, s.ended, status)
			return
		}
	}
}

// check ends the chains once they have received everything, and compares each with the truth.
func (cs *chains) check(ctx context.Context, t *testing.T, history []change, began uint64) {
	t.Helper()
	// Wait until the watches that were open at the last event have ended, plus two seconds for the
	// clients.
	testbed.Wait(ctx, 5*time.Second)
	cs.stop()
	cs.running.Wait()
	for _, c := range cs.chains {
		want := truth(began, history, c.view.selected)
		if c.err != nil {
			t.Errorf("chain %q: %v", c.view.name, c.err)
			continue
		}
		if err := watchtest.Resumable(c.watches, want); err != nil {
			t.Errorf("chain %q: %v", c.view.name, err)
		}
		last, bookmarks := uint64(0), 0
		for _, w := range c.watches {
			last = w.Last()
			for _, e := range w.Events {
				if e.Type == api.Bookmark {
					bookmarks++
				}
			}
		}
		if end := want.Events[len(want.Events)-1]; last < end.RV {
			t.Errorf("chain %q: ended at version %d, before %s", c.view.name, last, end)
		}
		if bookmarks == 0 {
			t.Errorf("chain %q: no bookmark in %d watches", c.view.name, len(c.watches))
		}
		for _, rv := range c.expired {
			if !cs.gap.holds(rv) {
				t.Errorf("chain %q: cannot resume from version %d", c.view.name, rv)
			}
		}
		if c.rejected > 0 {
			t.Logf("chain %q: %d watches were rejected while kube-apiserver was down", c.view.name, c.rejected)
		}
	}
}

// checkResumes cuts the events of watches at random versions, one of them in the gap, and resumes
// from there with new watches.
func checkResumes(ctx context.Context, t *testing.T, g *realkube.Gateway, open []*watched, began uint64, history []change, around gap) {
	t.Helper()
	expired := 0
	for _, w := range open {
		seen := w.stream.seen()
		if w.view.initial || len(seen.Events) == 0 {
			continue
		}
		cuts := []int{1 + rand.IntN(len(seen.Events))}
		if i := slices.IndexFunc(seen.Events, func(e watchtest.WireEvent) bool { return e.RV > around.from }); i > 0 {
			cuts = append(cuts, min(len(seen.Events), i+rand.IntN(60)))
		}
		for _, cut := range cuts {
			first := seen
			first.Events = seen.Events[:cut]
			if !resume(ctx, t, g, w.view, first, truth(began, history, w.view.selected), around) {
				expired++
			}
		}
	}
	t.Logf("%d resumed watches had to list again", expired)
}

// resume resumes a watch where it was cut. It returns false if the client is told to list again,
// which is allowed in the gap.
func resume(ctx context.Context, t *testing.T, g *realkube.Gateway, v view, first watchtest.Watch, want watchtest.Truth, around gap) bool {
	t.Helper()
	next := watchView(ctx, t, g, v, first.Last())
	defer next.stream.close()
	err := testbed.Poll(ctx, waitTimeout, func() error {
		if !next.stream.open() {
			return nil
		}
		return next.caughtUp(want)
	})
	if status := next.stream.status(); status != nil && status.Code == http.StatusGone && around.holds(first.Last()) {
		return false
	}
	if err != nil || next.stream.status() != nil {
		t.Errorf("%s: %v, %v", next, err, next.stream.status())
		return true
	}
	if err := watchtest.Resumable([]watchtest.Watch{first, next.stream.seen()}, want); err != nil {
		t.Errorf("%s: %v", next, err)
	}
	return true
}
