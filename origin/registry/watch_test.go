package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	engine "github.com/kubeweir/kubeweir/origin/storage"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// scriptedEngine watches by what the test sends: a batch is delivered for each value of
// batches, and asked counts requests for progress.
type scriptedEngine struct {
	engine.Engine
	current   uint64
	batches   chan engine.Batch
	failure   chan error
	requested chan struct{}
}

func newScripted() *scriptedEngine {
	return &scriptedEngine{
		current:   10,
		batches:   make(chan engine.Batch),
		failure:   make(chan error),
		requested: make(chan struct{}, 100),
	}
}

func (e *scriptedEngine) CurrentRevision(context.Context) (uint64, error) { return e.current, nil }

func (e *scriptedEngine) Range(context.Context, engine.RangeOptions) (engine.RangeResult, error) {
	return engine.RangeResult{Revision: e.current}, nil
}

func (e *scriptedEngine) Watch(context.Context, engine.WatchOptions) (engine.Watcher, error) {
	return scriptedWatcher{e}, nil
}

type scriptedWatcher struct{ *scriptedEngine }

func (e scriptedWatcher) Next(ctx context.Context) (engine.Batch, error) {
	select {
	case b := <-e.batches:
		return b, nil
	case err := <-e.failure:
		return engine.Batch{}, err
	case <-ctx.Done():
		return engine.Batch{}, ctx.Err()
	}
}

func (e scriptedWatcher) RequestProgress() { e.requested <- struct{}{} }
func (e scriptedWatcher) Close()           {}

func scripted(t *testing.T, change ...func(*StoreOptions)) (*testStore, *scriptedEngine) {
	t.Helper()
	e := newScripted()
	s := newTestStore(t, append(change, func(o *StoreOptions) { o.Engine = e })...)
	return s, e
}

func watchAll(t *testing.T, s *testStore, opts storage.ListOptions) watch.Interface {
	t.Helper()
	opts.Recursive = true
	if opts.Predicate.Label == nil {
		opts.Predicate.Label, opts.Predicate.Field = labels.Everything(), fields.Everything()
	}
	w, err := s.Watch(t.Context(), "/pods", opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func bookmarks() storage.ListOptions {
	return storage.ListOptions{
		ResourceVersion: "10",
		Predicate:       storage.SelectionPredicate{AllowWatchBookmarks: true},
	}
}

// expect reads what comes next: "TYPE version".
func expect(t *testing.T, w watch.Interface, want string) watch.Event {
	t.Helper()
	event, open := <-w.ResultChan()
	got := "end"
	if open {
		got = string(event.Type)
		if pod, ok := event.Object.(*example.Pod); ok {
			got += " " + pod.ResourceVersion
		}
		if status, ok := event.Object.(*metav1.Status); ok {
			got += fmt.Sprintf(" %d %s", status.Code, status.Message)
		}
	}
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	return event
}

func (s *testStore) value(t *testing.T, pod *example.Pod) []byte {
	t.Helper()
	data, err := runtime.Encode(s.codec, pod)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (s *testStore) created(t *testing.T, name string, revision uint64) engine.Event {
	t.Helper()
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	return engine.Event{Type: engine.Created, KV: engine.KeyValue{
		Key: "/registry/pods/ns/" + name, Value: s.value(t, pod), Revision: revision,
	}}
}

func TestBookmarksOfProgress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		w := watchAll(t, s, bookmarks())
		defer w.Stop()
		e.batches <- engine.Batch{Revision: 12}
		expect(t, w, "BOOKMARK 12")
		e.batches <- engine.Batch{Revision: 12} // alive, though nothing changed
		expect(t, w, "BOOKMARK 12")

		// Nobody asked: the event says enough.
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "a", 13)}, Revision: 15}
		expect(t, w, "ADDED 13")

		synctest.Wait()
		// Asked for 20: batches of events do not hide the answer.
		s.progress.Request(schema.GroupResource{Group: "other", Resource: "pods"}, 20)
		<-e.requested
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "b", 18)}, Revision: 18}
		expect(t, w, "ADDED 18")
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "c", 19)}, Revision: 21}
		expect(t, w, "ADDED 19")
		expect(t, w, "BOOKMARK 21")
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "d", 22)}, Revision: 25}
		expect(t, w, "ADDED 22")

		synctest.Wait()
		// The event itself can be the answer.
		s.progress.Request(schema.GroupResource{Resource: "pods"}, 26)
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "e", 26)}, Revision: 26}
		expect(t, w, "ADDED 26")
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "f", 27)}, Revision: 27}
		expect(t, w, "ADDED 27")
	})
}

func TestNoBookmarksUnasked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		w := watchAll(t, s, storage.ListOptions{ResourceVersion: "10"})
		defer w.Stop()
		s.progress.Request(schema.GroupResource{Resource: "pods"}, 20)
		e.batches <- engine.Batch{Revision: 20}
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "a", 21)}, Revision: 25}
		expect(t, w, "ADDED 21")
		time.Sleep(time.Hour)
		if len(e.requested) > 0 {
			t.Error("the engine was asked for progress")
		}
	})
}

// TestBookmarksNeverGoBack checks that no bookmark is older than the requested version or the last
// sent version.
func TestBookmarksNeverGoBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		opts := bookmarks()
		opts.ResourceVersion = "100" // not reached yet
		w := watchAll(t, s, opts)
		defer w.Stop()
		e.batches <- engine.Batch{Revision: 12}
		e.batches <- engine.Batch{Revision: 100}
		expect(t, w, "BOOKMARK 100")
	})
}

func TestBookmarkPeriod(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		opts := bookmarks()
		opts.Recursive = true
		opts.Predicate.Label, opts.Predicate.Field = labels.Everything(), fields.Everything()
		w, err := s.Watch(ctx, "/pods", opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Duration{60, 120, 148} {
			<-e.requested
			if got := time.Since(start); got != at*time.Second {
				t.Fatalf("asked after %s, want %d s", got, at)
			}
			// The event that comes meanwhile does not stand for it.
			revision := uint64(10 + at)
			e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "a", revision)}, Revision: revision}
			expect(t, w, fmt.Sprintf("ADDED %d", revision))
			expect(t, w, fmt.Sprintf("BOOKMARK %d", revision))
		}
		expect(t, w, "end")
		time.Sleep(time.Hour)
		if len(e.requested) > 0 {
			t.Error("asked after the end")
		}
	})
}

// TestProgressRequestedDuringInitialEvents checks that progress requested while the initial events are
// read is not forgotten.
func TestProgressRequestedDuringInitialEvents(t *testing.T) {
	p := new(progress)
	p.request(20)
	e := newScripted()
	p.open(scriptedWatcher{e}, 10)
	if len(e.requested) != 1 {
		t.Error("the watcher was not asked when it opened")
	}
	if !p.done(engine.Batch{Events: make([]engine.Event, 1), Revision: 20}, false) {
		t.Error("no bookmark is due")
	}
}

func TestTracker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		ctx, tracker := Track(t.Context())
		current := func(wantLast, wantCurrent uint64) {
			t.Helper()
			last, current, shared, err := tracker.Current(t.Context())
			if err != nil || last != wantLast || current != wantCurrent || shared {
				t.Errorf("%d, %d, %v; want %d, %d", last, current, err, wantLast, wantCurrent)
			}
		}
		if _, _, _, err := tracker.Current(t.Context()); !errors.Is(err, ErrNotWatching) {
			t.Errorf("before the watch: %v", err)
		}
		opts := bookmarks()
		opts.Recursive = true
		opts.Predicate.Label, opts.Predicate.Field = labels.Everything(), fields.Everything()
		w, err := s.Watch(ctx, "/pods", opts)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		current(10, 10)
		if len(e.requested) > 0 {
			t.Error("asked for what is known")
		}
		// Others' changes: the engine is asked, the reader is told nothing.
		e.current = 15
		go func() { <-e.requested; e.batches <- engine.Batch{Revision: 16} }()
		current(10, 16)
		// A change of ours is underway: the reader has to read it first.
		e.current = 18
		go func() {
			<-e.requested
			e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "a", 17)}, Revision: 17}
			<-e.requested
			e.batches <- engine.Batch{Revision: 18}
		}()
		current(17, 18)
		expect(t, w, "ADDED 17")
		// A client that requests a bookmark gets one.
		s.progress.Request(schema.GroupResource{Resource: "pods"}, 18)
		<-e.requested
		e.batches <- engine.Batch{Revision: 18}
		expect(t, w, "BOOKMARK 18")
		current(18, 18)
		// The engine does not answer.
		e.current = 20
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, _, err := tracker.Current(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an engine that is silent: %v", err)
		}
		// The watch ends while somebody waits.
		time.AfterFunc(time.Second, w.Stop)
		if _, _, _, err := tracker.Current(t.Context()); !errors.Is(err, ErrNotWatching) {
			t.Errorf("after the watch: %v", err)
		}
	})
}

// TestTrackerOfSharedRevisions checks events that share a revision. A client that has read one of
// them does not know whether more follow. A bookmark therefore follows them, and the Tracker
// reports that the revision is shared.
func TestTrackerOfSharedRevisions(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		ctx, tracker := Track(t.Context())
		opts := bookmarks()
		opts.Recursive = true
		opts.Predicate.Label, opts.Predicate.Field = labels.Everything(), fields.Everything()
		w, err := s.Watch(ctx, "/pods", opts)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		current := func(wantLast, wantCurrent uint64, wantShared bool) {
			t.Helper()
			synctest.Wait()
			last, current, shared, err := tracker.Current(t.Context())
			if err != nil || last != wantLast || current != wantCurrent || shared != wantShared {
				t.Errorf("%d, %d, %v, %v; want %d, %d, %v", last, current, shared, err, wantLast, wantCurrent, wantShared)
			}
		}
		together := func(revision, upTo uint64, names ...string) {
			batch := engine.Batch{Revision: upTo}
			for _, name := range names {
				batch.Events = append(batch.Events, s.created(t, name, revision))
			}
			e.current = upTo
			e.batches <- batch
		}
		together(12, 12, "a", "b", "c")
		current(12, 12, true)
		for range 3 {
			expect(t, w, "ADDED 12")
		}
		expect(t, w, "BOOKMARK 12")
		current(12, 12, true)
		together(13, 13, "d")
		current(13, 13, false)
		expect(t, w, "ADDED 13")
		together(14, 16, "e", "f") // the bookmark tells more than they do
		expect(t, w, "ADDED 14")
		expect(t, w, "ADDED 14")
		expect(t, w, "BOOKMARK 16")
		current(16, 16, false)
	})
}

func TestRequestWatchProgress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		w := watchAll(t, s, bookmarks())
		synctest.Wait()
		e.current = 17
		if err := s.RequestWatchProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-e.requested
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "a", 16)}, Revision: 17}
		expect(t, w, "ADDED 16")
		expect(t, w, "BOOKMARK 17")
		w.Stop()
		expect(t, w, "end")
		synctest.Wait()
		if len(s.progress.mu.watches) != 0 {
			t.Error("an ended watch is still known")
		}
	})
}

func TestWatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"history gone":  {engine.ErrCompacted, "ERROR 410 The resourceVersion for the provided watch is too old."},
		"engine closed": {engine.ErrClosed, "end"},
		"unavailable":   {fmt.Errorf("%w: no quorum", engine.ErrUnavailable), "ERROR 503 the store is unavailable: no quorum"},
		"other":         {errors.New("disk"), "ERROR 500 Internal error occurred: disk"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s, e := scripted(t)
				w := watchAll(t, s, storage.ListOptions{ResourceVersion: "10"})
				e.failure <- c.err
				event := expect(t, w, c.want)
				if status, ok := event.Object.(*metav1.Status); ok && status.Code == http.StatusGone && status.Reason != metav1.StatusReasonExpired {
					t.Errorf("reason %s", status.Reason)
				}
				if c.want != "end" {
					expect(t, w, "end")
				}
			})
		})
	}
}

// TestWatchBackpressure checks that a client that stops reading blocks only its own watch and the
// engine's watcher behind it: events do not accumulate.
func TestWatchBackpressure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		w := watchAll(t, s, storage.ListOptions{ResourceVersion: "10"})
		sent := 0
		for blocked := false; !blocked; {
			revision := uint64(11 + sent)
			select {
			case e.batches <- engine.Batch{Events: []engine.Event{s.created(t, strconv.Itoa(sent), revision)}, Revision: revision}:
				sent++
			case <-time.After(time.Second):
				blocked = true
			}
		}
		if sent != resultBuffer+1 {
			t.Errorf("%d batches were taken, want %d", sent, resultBuffer+1)
		}
		for i := range sent {
			expect(t, w, "ADDED "+strconv.Itoa(11+i))
		}
		w.Stop()
		expect(t, w, "end")
	})
}

func TestWatchSelection(t *testing.T) {
	pod := func(phase string) *example.Pod {
		return &example.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"},
			Status:     example.PodStatus{Phase: example.PodPhase(phase)},
		}
	}
	selected := storage.ListOptions{ResourceVersion: "10", Predicate: storage.SelectionPredicate{
		Label: labels.Everything(),
		Field: fields.ParseSelectorOrDie("status.phase=Running"),
		GetAttrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			phase := string(obj.(*example.Pod).Status.Phase)
			if phase == "Unknown" {
				return nil, nil, errors.New("no attributes")
			}
			return nil, fields.Set{"status.phase": phase}, nil
		},
	}}
	for name, c := range map[string]struct {
		before, now string // phases, "" for no object
		want        string
		phase       string // of the object in the event
	}{
		"created inside":   {"", "Running", "ADDED 11", "Running"},
		"created outside":  {"", "Pending", "", ""},
		"enters":           {"Pending", "Running", "ADDED 11", "Running"},
		"stays":            {"Running", "Running", "MODIFIED 11", "Running"},
		"leaves":           {"Running", "Failed", "DELETED 11", "Running"},
		"stays outside":    {"Pending", "Failed", "", ""},
		"deleted inside":   {"Running", "", "DELETED 11", "Running"},
		"deleted outside":  {"Failed", "", "", ""},
		"no attributes":    {"", "Unknown", "", ""},
		"leaves attribute": {"Running", "Unknown", "DELETED 11", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s, e := scripted(t)
				w := watchAll(t, s, selected)
				defer w.Stop()
				change := engine.Event{Type: engine.Updated, KV: engine.KeyValue{Key: "/registry/pods/ns/a", Revision: 11}}
				if c.before == "" {
					change.Type = engine.Created
				} else {
					change.Previous = &engine.KeyValue{Key: change.KV.Key, Value: s.value(t, pod(c.before)), Revision: 5}
				}
				if c.now == "" {
					change.Type = engine.Deleted
				} else {
					change.KV.Value = s.value(t, pod(c.now))
				}
				e.batches <- engine.Batch{Events: []engine.Event{change}, Revision: 11}
				if c.want != "" {
					event := expect(t, w, c.want)
					if phase := string(event.Object.(*example.Pod).Status.Phase); phase != c.phase {
						t.Errorf("phase %q, want %q", phase, c.phase)
					}
				}
				// The fence: what comes next is next.
				fence := engine.Event{Type: engine.Created, KV: engine.KeyValue{Key: "/registry/pods/ns/b", Value: s.value(t, pod("Running")), Revision: 12}}
				e.batches <- engine.Batch{Events: []engine.Event{fence}, Revision: 12}
				expect(t, w, "ADDED 12")
			})
		})
	}
}

// TestWatchOneKey checks a watch of one key, which is a prefix of longer keys.
func TestWatchOneKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, e := scripted(t)
		w, err := s.Watch(t.Context(), "/pods/ns/a", storage.ListOptions{ResourceVersion: "10", Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		e.batches <- engine.Batch{Events: []engine.Event{s.created(t, "ab", 11), s.created(t, "a", 12)}, Revision: 12}
		expect(t, w, "ADDED 12")
	})
}

func TestWatchOfWhatIsNotReached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := scripted(t)
		yes := true
		opts := bookmarks()
		opts.ResourceVersion, opts.SendInitialEvents = "102", &yes
		w := watchAll(t, s, opts)
		event := expect(t, w, "ERROR 504 Timeout: Too large resource version: 102, current: 10")
		if details := event.Object.(*metav1.Status).Details; details.RetryAfterSeconds < 1 || details.RetryAfterSeconds > 3 {
			t.Errorf("retry after %d s", details.RetryAfterSeconds)
		}
		expect(t, w, "end")
	})
}

func TestWatchInitialPages(t *testing.T) {
	s := newTestStore(t)
	const n = initialPage + 10
	for i := range n {
		name := fmt.Sprintf("pod-%05d", i)
		if err := s.Create(t.Context(), "/pods/ns/"+name, &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	current, err := s.GetCurrentResourceVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	opts := bookmarks()
	opts.ResourceVersion, opts.SendInitialEvents = "", &yes
	w := watchAll(t, s, opts)
	defer w.Stop()
	for i := range n {
		event := <-w.ResultChan()
		if pod, ok := event.Object.(*example.Pod); !ok || event.Type != watch.Added || pod.Name != fmt.Sprintf("pod-%05d", i) {
			t.Fatalf("event %d: %s %v", i, event.Type, event.Object)
		}
	}
	event := expect(t, w, "BOOKMARK "+strconv.FormatUint(current, 10))
	if end, err := storage.HasInitialEventsEndBookmarkAnnotation(event.Object); err != nil || !end {
		t.Errorf("the bookmark does not end the initial events: %v", err)
	}
	if reads := s.engine.ranges.Load(); reads != 2 {
		t.Errorf("%d reads, want 2", reads)
	}
}

// TestPanicEndsOneWatch: what is known to panic for one object ends the watch that met it, with an ERROR event.
func TestPanicEndsOneWatch(t *testing.T) {
	s, e := scripted(t)
	opts := bookmarks()
	opts.Predicate.Label, opts.Predicate.Field = labels.SelectorFromSet(labels.Set{"a": "b"}), fields.Everything()
	opts.Predicate.GetAttrs = func(runtime.Object) (labels.Set, fields.Set, error) { panic("odd object") }
	w := watchAll(t, s, opts)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	e.batches <- engine.Batch{Revision: 11, Events: []engine.Event{{
		Type: engine.Created, KV: engine.KeyValue{Key: "/registry/pods/p", Value: s.value(t, pod), Revision: 11},
	}}}
	expect(t, w, "ERROR 500 Internal error occurred: panic in a watch of pods")
	expect(t, w, "end")
}
