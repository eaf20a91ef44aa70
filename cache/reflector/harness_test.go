package reflector_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/watchmux"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// world is a source, a collection of it, and clients that watch the collection.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	source  *cachetest.Source
	manager *cache.Manager
	enc     api.Encoding
	c       *cache.Collection
	watches []*follower
	down    bool
	live    map[string]bool
	decoded map[string]*object.Object // by key and version
	compact bool                      // compacts the source's history; the reflector may have to relist
}

func newWorld(t *testing.T, seed uint64, enc api.Encoding) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 7)), enc: enc,
		live: map[string]bool{}, decoded: map[string]*object.Object{},
	}
	w.source = cachetest.New(cachetest.PodResource())
	if w.rand.IntN(2) == 0 {
		w.source.NoWatchList()
	}
	if w.rand.IntN(2) == 0 {
		w.source.NoCurrentVersion()
	}
	for range []int{0, 30, 500}[w.rand.IntN(3)] {
		w.write()
	}
	w.compact = w.rand.IntN(2) == 0
	limits := cache.Limits{}
	if w.rand.IntN(2) == 0 {
		limits = cache.Limits{HistoryEvents: 40, SnapshotBytes: 20 << 10}
	}
	w.manager = cachetest.NewManager(t, w.source, limits)
	return w
}

func (w *world) run(steps int) {
	defer w.manager.Close()
	c := cachetest.Collection(w.t, w.manager, cachetest.PodResource(), w.enc)
	w.c = c
	for range steps {
		w.step()
		synctest.Wait()
		w.check()
		if w.t.Failed() {
			return
		}
	}
	w.source.Release()
	if w.down {
		w.toggleDown()
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	w.check()
	if got, want := w.c.RV(), w.source.Revision(); got != want {
		w.t.Errorf("final version %d, the source is at %d", got, want)
	}
	if state := w.c.State(); state.Phase != reflector.Synced {
		w.t.Errorf("final state: %+v", state)
	}
	for _, fl := range w.watches {
		w.guarantees(fl)
	}
}

// guarantees reads to the end and checks everything that a watcher received. A relist in between
// hides changes; the history is not compared then.
func (w *world) guarantees(fl *follower) {
	fl.readNow(w)
	truth := watchtest.Truth{From: 0, Complete: true, Shared: true, Events: w.truth(fl.filter)}
	fl.seen.Cut = fl.ended
	checks := []error{watchtest.Ordered(fl.seen, true), watchtest.Unique(fl.seen), watchtest.Consistent(fl.seen)}
	if !w.compact {
		checks = append(checks, watchtest.Check(fl.seen, truth))
	}
	if err := errors.Join(checks...); err != nil {
		w.t.Errorf("%d events from %d: %v", len(fl.seen.Events), fl.seen.From, err)
	}
}

// truth returns what an uninterrupted watch with this filter sends.
func (w *world) truth(f *object.Filter) []watchtest.WireEvent {
	var events []watchtest.WireEvent
	matched := map[string]bool{}
	for _, c := range w.source.History(cachetest.Pods) {
		o := w.decode(c.Object)
		before, after := matched[o.Key], c.Type != api.Deleted && f.Matches(o)
		matched[o.Key] = after
		ev := watchtest.WireEvent{Type: api.Modified, Key: o.Key, RV: c.RV}
		switch {
		case !before && !after:
			continue
		case !before:
			ev.Type = api.Added
		case !after:
			ev.Type = api.Deleted
		}
		events = append(events, ev)
	}
	return events
}

func (w *world) step() {
	switch n := w.rand.IntN(100); {
	case n < 60:
		for range 1 + w.rand.IntN(5) {
			w.write()
		}
	case n < 65:
		w.source.Bump(uint64(1 + w.rand.IntN(10)))
	case n < 70:
		w.source.Break([]error{nil, errors.New("connection reset")}[w.rand.IntN(2)])
	case n < 75:
		w.toggleDown()
	case n < 78:
		if w.compact {
			w.source.Compact()
		}
	case n < 79:
		w.source.Hold()
	case n < 81:
		w.together()
	case n < 84:
		w.source.Release()
	case n < 90:
		w.follow()
	case n < 92:
		w.fresh()
	default:
		time.Sleep(time.Duration(w.rand.IntN(20000)) * time.Millisecond)
	}
}

func (w *world) toggleDown() {
	w.down = !w.down
	w.source.SetDown(w.down)
}

// write creates, updates or deletes one of about 900 pods.
func (w *world) write() {
	key := fmt.Sprintf("ns-%d/pod-%d", w.rand.IntN(3), w.rand.IntN(300))
	pod := cachetest.Pod(key, fmt.Sprintf("node-%d", w.rand.IntN(5)), fmt.Sprintf("app=%d", w.rand.IntN(4)))
	if w.rand.IntN(3) == 0 {
		pod.Labels["odd"] = "yes"
	}
	switch {
	case !w.live[key]:
		w.source.Create(cachetest.Pods, pod)
		w.live[key] = true
	case w.rand.IntN(3) == 0:
		w.source.Delete(cachetest.Pods, key)
		delete(w.live, key)
	default:
		w.source.Update(cachetest.Pods, pod)
	}
}

// together deletes several objects at one version, and sometimes ends the watches between two of
// them.
func (w *world) together() {
	var keys []string
	for key := range w.live {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	w.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = keys[:min(len(keys), 1+w.rand.IntN(6))]
	if len(keys) == 0 {
		return
	}
	cut := w.rand.IntN(2) == 0
	if cut {
		w.source.Release()
		w.source.Cut(w.rand.IntN(len(keys) + 1))
	}
	w.source.DeleteTogether(cachetest.Pods, keys...)
	for _, key := range keys {
		delete(w.live, key)
	}
	if cut { // until the watch has resumed
		synctest.Wait()
		for _, fl := range w.watches {
			fl.readNow(w)
		}
		time.Sleep(time.Minute)
	}
}

func (w *world) fresh() {
	if w.down {
		return
	}
	w.source.Release() // otherwise the round could take too long
	before := w.source.Revision()
	rv, err := w.c.Fresh(w.t.Context())
	switch {
	case errors.Is(err, source.ErrUnsupported):
	case err != nil:
		// The reflector was waiting for its next attempt, or the version from which to probe was
		// compacted.
		if w.c.State().Phase == reflector.Synced && !apierrors.IsResourceExpired(err) {
			w.t.Errorf("fresh: %v", err)
		}
	case rv < before || w.c.RV() < rv:
		w.t.Errorf("Fresh returned %d, requested at %d, held %d", rv, before, w.c.RV())
	}
}

// randomFilter returns a filter of one of several kinds, sometimes nil.
func (w *world) randomFilter() *object.Filter {
	namespace, label, field := "", "", ""
	if w.rand.IntN(3) == 0 {
		namespace = fmt.Sprintf("ns-%d", w.rand.IntN(4))
	}
	switch w.rand.IntN(6) {
	case 0:
		label = fmt.Sprintf("app=%d", w.rand.IntN(5))
	case 1:
		label = fmt.Sprintf("app in (%d,%d),!odd", w.rand.IntN(5), w.rand.IntN(5))
	case 2:
		field = fmt.Sprintf("spec.nodeName=node-%d", w.rand.IntN(6))
	case 3:
		field = fmt.Sprintf("metadata.name=pod-%d", w.rand.IntN(300))
	case 4:
		label, field = "odd=yes", fmt.Sprintf("spec.nodeName!=node-%d", w.rand.IntN(6))
	}
	f := cachetest.Filter(w.t, cachetest.PodResource(), namespace, label, field)
	if w.rand.IntN(3) == 0 {
		var err error
		if f.Shard, err = shard.Parse(cachetest.ShardOf([]string{"uid", "namespace"}[w.rand.IntN(2)], w.rand.Uint64N(4), 4)); err != nil {
			w.t.Fatal(err)
		}
	}
	return f
}

// want returns the source's objects at a version that f matches, as "key@version".
func (w *world) want(rv uint64, f *object.Filter) []string {
	var out []string
	for _, o := range w.source.ObjectsAt(cachetest.Pods, rv) {
		if decoded := w.decode(o); f.Matches(decoded) {
			out = append(out, decoded.Key+"@"+o.GetResourceVersion())
		}
	}
	return out
}

func (w *world) decode(o cachetest.Object) *object.Object {
	id := o.GetNamespace() + "/" + o.GetName() + "@" + o.GetResourceVersion()
	if w.decoded[id] == nil {
		var err error
		w.decoded[id], err = cachetest.PodResource().Schema.Decode(w.enc, cachetest.Encode(o, w.enc))
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return w.decoded[id]
}

func (w *world) compare(what string, rv uint64, got []string, f *object.Filter) {
	w.t.Helper()
	if want := w.want(rv, f); !slices.Equal(got, want) {
		w.t.Errorf("%s at %d:\n got %s\nwant %s", what, rv, strings.Join(got, " "), strings.Join(want, " "))
	}
}

func names(objs []*object.Object) []string {
	var out []string
	for _, o := range objs {
		out = append(out, o.Key+"@"+strconv.FormatUint(o.RV, 10))
	}
	return out
}

// check compares everything observable with the source.
func (w *world) check() {
	if broken := w.c.CheckInvariants(); broken != "" {
		w.t.Error(broken)
	}
	v := w.c.Snapshot()
	w.compare("view", v.RV(), names(cachetest.All(v, "", "")), nil)
	from := fmt.Sprintf("ns-%d/pod-%d", w.rand.IntN(4), w.rand.IntN(300))
	for _, ns := range []string{"", "ns-0", "ns-1"} {
		if got, want := v.CountFrom(ns, from), len(cachetest.All(v, ns, from)); got != want {
			w.t.Errorf("CountFrom(%q, %q) = %d, want %d", ns, from, got, want)
		}
	}

	f := w.randomFilter()
	if objs, at := w.c.Select(w.t.Context(), f); at != nil {
		w.compare("select", at.RV(), names(objs), f)
	}
	if w.rand.IntN(4) == 0 {
		w.c.Retain(v)
	}
	past := v.RV() - min(v.RV(), uint64(w.rand.IntN(60)))
	var expired *store.ExpiredError
	if old, err := w.c.SnapshotAt(past); err == nil {
		w.compare("view of the past", past, names(cachetest.All(old, "", "")), nil)
		if old.RV() != past {
			w.t.Errorf("ViewAt(%d) is at %d", past, old.RV())
		}
	} else if !errors.As(err, &expired) {
		w.t.Errorf("ViewAt(%d): %v", past, err)
	}
	for _, fl := range w.watches {
		fl.read(w)
	}
}

// follower is a client: a watch, and the state that its events add up to.
type follower struct {
	watcher *watchmux.Watcher
	filter  *object.Filter
	state   map[string]*object.Object
	last    uint64
	ended   bool
	seen    watchtest.Watch
}

// follow starts a watch at the current version or an older one.
func (w *world) follow() {
	if len(w.watches) > 8 {
		return
	}
	f := w.randomFilter()
	v := w.c.Snapshot()
	if past, err := w.c.SnapshotAt(v.RV() - uint64(w.rand.IntN(5))); err == nil {
		v = past
	}
	watcher, err := w.c.Mux().Watch(v.RV(), f, func() {})
	if err != nil {
		var expired *watchmux.ExpiredError
		if !errors.As(err, &expired) {
			w.t.Errorf("watch from %d: %v", v.RV(), err)
		}
		return
	}
	fl := &follower{watcher: watcher, filter: f, state: map[string]*object.Object{}, last: v.RV(), seen: watchtest.Watch{From: v.RV()}}
	for _, o := range cachetest.All(v, "", "") {
		if f.Matches(o) {
			fl.state[o.Key] = o
		}
	}
	w.watches = append(w.watches, fl)
}

func (fl *follower) read(w *world) {
	if w.rand.IntN(3) == 0 {
		return
	}
	rv, ok := fl.readNow(w)
	if !ok {
		return
	}
	got := names(slices.Collect(maps.Values(fl.state)))
	slices.Sort(got)
	want := w.want(rv, fl.filter)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("watcher at %d:\n got %v\nwant %v", rv, got, want)
	}
}

// readNow reads what is available, up to the version rv.
func (fl *follower) readNow(w *world) (rv uint64, ok bool) {
	if fl.ended {
		return 0, false
	}
	deliveries, rv, err := fl.watcher.Next(nil, 1<<20)
	for _, d := range deliveries {
		fl.apply(w.t, d)
	}
	if err != nil {
		fl.ended = true
		if !errors.Is(err, watchmux.ErrExpired) {
			w.t.Errorf("watch ended: %v", err)
		}
		return 0, false
	}
	fl.seen.Events = append(fl.seen.Events, watchtest.WireEvent{Type: api.Bookmark, RV: rv})
	if rv < fl.last {
		w.t.Errorf("the watcher is at %d after an event at %d", rv, fl.last)
	}
	return rv, true
}

func (fl *follower) apply(t *testing.T, d watchmux.Delivery) {
	if d.RV < fl.last {
		t.Errorf("event %s %s at %d after %d", d.Type, d.Object.Key, d.RV, fl.last)
	}
	fl.last = d.RV
	fl.seen.Events = append(fl.seen.Events, watchtest.WireEvent{Type: d.Type, Key: d.Object.Key, RV: d.RV})
	_, exists := fl.state[d.Object.Key]
	if exists != (d.Type != api.Added) {
		t.Errorf("event %s %s at %d: the client has it: %v", d.Type, d.Object.Key, d.RV, exists)
	}
	if d.Type == api.Deleted {
		delete(fl.state, d.Object.Key)
		return
	}
	fl.state[d.Object.Key] = d.Object
}
