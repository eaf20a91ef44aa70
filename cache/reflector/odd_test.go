package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// stream is what one watch of a scriptedSource sends: events as "TYPE key@rv" (bookmarks: "BOOKMARK
// @rv", the one that ends the initial events: "END @rv"; a uid after "#", other bytes after "!"),
// then its end, or silence.
type stream struct {
	events string
	end    error // nil: silence
}

// scriptedSource responds as a test wants.
type scriptedSource struct {
	streams []stream
	pages   []func() (source.ListMeta, string, error) // items as in stream.events
	onePage func() (source.ListMeta, string, error)
	version uint64
	calls   []string
}

var errEOF = errors.New("end of the script")

func (s *scriptedSource) List(_ context.Context, res *source.Resource, _ api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	if opts.Limit == 1 {
		return source.ListMeta{ResourceVersion: s.version, Kind: "PodList", APIVersion: "v1"}, nil
	}
	s.calls = append(s.calls, fmt.Sprintf("list limit=%d continue=%s", opts.Limit, opts.Continue))
	page := s.onePage
	if page == nil {
		page, s.pages = s.pages[0], s.pages[1:]
	}
	meta, items, err := page()
	for _, item := range strings.Fields(items) {
		if err := visit(scriptedPod(item)); err != nil {
			return meta, err
		}
	}
	return meta, err
}

// scriptedPod returns a pod described by "ns/name@rv#uid!other".
func scriptedPod(item string) []byte {
	item, other, _ := strings.Cut(item, "!")
	item, uid, _ := strings.Cut(item, "#")
	key, rv, _ := strings.Cut(item, "@")
	ns, name, _ := strings.Cut(key, "/")
	if uid == "" {
		uid = "1"
	}
	return fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"hostname":%q}}`,
		name, ns, uid, rv, other)
}

func (s *scriptedSource) Watch(ctx context.Context, _ *source.Resource, _ api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	s.calls = append(s.calls, fmt.Sprintf("watch %d initial=%v", opts.ResourceVersion, opts.SendInitialEvents))
	if opts.SendInitialEvents && s.pages != nil {
		return fmt.Errorf("watch: %w", source.ErrUnsupported)
	}
	if len(s.streams) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	next := s.streams[0]
	s.streams = s.streams[1:]
	words := strings.Fields(next.events)
	for i := 0; i < len(words); i += 2 {
		if err := handle(scriptedEvent(words[i], words[i+1])); err != nil {
			return fmt.Errorf("wrapped by the source: %v", err)
		}
	}
	if next.end == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return next.end
}

func scriptedEvent(kind, item string) source.Event {
	ev := source.Event{Type: api.ParseEventType(kind)}
	if kind == "END" || kind == "BOOKMARK" {
		ev.Type, ev.InitialEventsEnd = api.Bookmark, kind == "END"
		_, err := fmt.Sscanf(item, "@%d", &ev.ResourceVersion)
		if err != nil {
			panic(err)
		}
		return ev
	}
	ev.Object = scriptedPod(item)
	return ev
}

func (s *scriptedSource) CurrentVersion(context.Context, *source.Resource) (uint64, error) {
	return s.version, nil
}

func (s *scriptedSource) Server(context.Context) (string, error) { return "", source.ErrUnsupported }

func (s *scriptedSource) Delay() time.Duration   { return 0 }
func (s *scriptedSource) LastContact() time.Time { return time.Now() }

// TestUnusualSources checks everything a source may do, should not do or must not do.
func TestUnusualSources(t *testing.T) {
	page := func(rv uint64, token, items string, err error) func() (source.ListMeta, string, error) {
		return func() (source.ListMeta, string, error) {
			return source.ListMeta{ResourceVersion: rv, Continue: token}, items, err
		}
	}
	expired := apierrors.NewResourceExpired("gone")
	for _, tc := range []struct {
		name    string
		streams []stream
		pages   []func() (source.ListMeta, string, error) // instead of streaming lists
		onePage func() (source.ListMeta, string, error)   // for a list without pages
		version uint64
		state   string // at the end
		events  string // of a watch from the first version
		calls   string
		stopped string
	}{{
		name:    "changes before the initial events end",
		streams: []stream{{events: "ADDED a/2@5 ADDED a/1@4 MODIFIED a/2@6 ADDED a/3@3 DELETED a/3@7 BOOKMARK @7 END @8"}},
		version: 8,
		state:   "8: a/1@4 a/2@6",
		calls:   "watch 0 initial=true",
	}, {
		name:    "initial events that never end",
		streams: []stream{{events: "ADDED a/2@5 ADDED a/1@4"}},
		onePage: page(9, "", "a/1@4", nil),
		version: 9,
		state:   "9: a/1@4",
		calls:   "watch 0 initial=true, list limit=500 continue=, watch 9 initial=false",
	}, {
		name:    "initial events refused as invalid",
		streams: []stream{{end: apierrors.NewInvalid(schema.GroupKind{}, "", nil)}},
		onePage: page(9, "", "a/1@4", nil),
		version: 9,
		state:   "9: a/1@4",
		calls:   "watch 0 initial=true, list limit=500 continue=, watch 9 initial=false",
	}, {
		name: "pages",
		pages: []func() (source.ListMeta, string, error){
			page(9, "t1", "a/1@1 a/2@2", nil), page(9, "t2", "a/3@3", nil), page(9, "", "b/1@4", nil),
		},
		version: 9,
		state:   "9: a/1@1 a/2@2 a/3@3 b/1@4",
		calls:   "watch 0 initial=true, list limit=500 continue=, list limit=500 continue=t1, list limit=500 continue=t2, watch 9 initial=false",
	}, {
		name: "pages that expire",
		pages: []func() (source.ListMeta, string, error){
			page(9, "t1", "a/1@1 a/2@2", nil), page(0, "", "", expired), page(12, "", "a/2@11", nil),
		},
		version: 12,
		state:   "12: a/2@11",
		calls:   "watch 0 initial=true, list limit=500 continue=, list limit=500 continue=t1, list limit=0 continue=, watch 12 initial=false",
	}, {
		name: "pages that are not of one version",
		pages: []func() (source.ListMeta, string, error){
			page(9, "t1", "a/1@1 a/2@2", nil), page(10, "", "a/3@3", nil), page(12, "", "a/2@11", nil),
		},
		version: 12,
		state:   "12: a/2@11",
		calls:   "watch 0 initial=true, list limit=500 continue=, list limit=500 continue=t1, list limit=0 continue=, watch 12 initial=false",
	}, {
		name: "lists without a version",
		streams: []stream{
			{events: "ADDED a/1@5 END @0", end: errEOF},
			{events: "ADDED a/1@5 END @8"},
		},
		version: 8,
		state:   "8: a/1@5",
		calls:   "watch 0 initial=true, watch 0 initial=true",
	}, {
		name:    "a page without a version",
		pages:   []func() (source.ListMeta, string, error){page(0, "", "", nil), page(12, "", "a/2@11", nil)},
		version: 12,
		state:   "12: a/2@11",
		calls:   "watch 0 initial=true, list limit=500 continue=, list limit=500 continue=, watch 12 initial=false",
	}, {
		name: "a list that breaks",
		pages: []func() (source.ListMeta, string, error){
			page(9, "t1", "a/1@1 a/2@2", nil), page(0, "", "", errors.New("reset")), page(12, "", "a/2@11", nil),
		},
		version: 12,
		state:   "12: a/2@11",
		calls:   "watch 0 initial=true, list limit=500 continue=, list limit=500 continue=t1, list limit=500 continue=, watch 12 initial=false",
	}, {
		name: "events again, and of things unknown",
		streams: []stream{
			{events: "ADDED a/1@5 END @8 MODIFIED a/1@9 DELETED a/2@10 ADDED a/3@11", end: errEOF},
			{events: "MODIFIED a/1@9 DELETED a/2@10 ADDED a/3@11 ADDED a/1@12 MODIFIED a/4@13"},
		},
		version: 13,
		state:   "13: a/1@12 a/3@11 a/4@13",
		events:  "MODIFIED a/1@9 ADDED a/3@11 MODIFIED a/1@12 ADDED a/4@13",
		calls:   "watch 0 initial=true, watch 10 initial=false",
	}, {
		name: "an event out of order is a reason to list again",
		streams: []stream{
			{events: "ADDED a/1@5 END @8 ADDED a/2@7", end: nil},
			{events: "ADDED a/1@5 ADDED a/2@10 END @11"},
		},
		version: 11,
		state:   "11: a/1@5 a/2@10",
		events:  "ADDED a/2@10",
		calls:   "watch 0 initial=true, watch 0 initial=true",
	}, {
		name: "a bookmark that goes back is a reason to look",
		streams: []stream{
			{events: "ADDED a/1@5 END @8 BOOKMARK @10 BOOKMARK @9"},
			{events: "BOOKMARK @12"},
		},
		version: 12,
		state:   "12: a/1@5",
		calls:   "watch 0 initial=true, watch 10 initial=false",
	}, {
		name: "objects encoded anew",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 END @8", end: expired},
			{events: "ADDED a/1@5!new ADDED a/2@6 END @9"},
		},
		version: 9,
		state:   "9: a/1@5!new a/2@6",
		events:  "",
		calls:   "watch 0 initial=true, watch 0 initial=true",
	}, {
		name: "an object of another cluster",
		streams: []stream{
			{events: "ADDED a/1@5 END @8", end: expired},
			{events: "ADDED a/1@5#2 END @9"},
		},
		version: 9, stopped: "object a/1 from 5 to 5",
	}, {
		name: "an object that went back",
		streams: []stream{
			{events: "ADDED a/1@5 END @8", end: expired},
			{events: "ADDED a/1@4 END @9"},
		},
		version: 9, stopped: "object a/1 from 5 to 4",
	}, {
		name: "a list that went back",
		streams: []stream{
			{events: "ADDED a/1@5 END @8", end: expired},
			{events: "ADDED a/1@5 END @7"},
		},
		version: 9, stopped: "from 8 to 7",
	}, {
		name: "a new object of an old version",
		streams: []stream{
			{events: "ADDED a/1@5 END @8", end: expired},
			{events: "ADDED a/1@5 ADDED a/2@8 END @9"},
		},
		version: 9, stopped: "a/2 at 8 is not between",
	}, {
		name: "a deletion without a version",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 ADDED a/3@7 END @8", end: expired},
			{events: "ADDED a/1@5 ADDED a/2@6 END @8"},
		},
		version: 10, stopped: "no version left for the deletion of a/3",
	}, {
		name: "more deletions than versions",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 ADDED a/3@7 END @8", end: expired},
			{events: "ADDED a/1@9 END @10"},
		},
		version: 10,
		state:   "10: a/1@9",
		events:  "DELETED a/2@9 DELETED a/3@9 MODIFIED a/1@9",
		calls:   "watch 0 initial=true, watch 0 initial=true",
	}, {
		name: "deletions that share a version", // as when an etcd lease expires
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 END @8 DELETED a/1@9 DELETED a/2@9 BOOKMARK @9"},
		},
		version: 9,
		state:   "9:",
		events:  "DELETED a/1@9 DELETED a/2@9",
		calls:   "watch 0 initial=true",
	}, {
		name: "changes that share a version, and a bookmark between them",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 END @8 DELETED a/1@9 BOOKMARK @9 MODIFIED a/2@9 ADDED a/3@9 ADDED a/4@10"},
		},
		version: 10,
		state:   "10: a/2@9 a/3@9 a/4@10",
		events:  "DELETED a/1@9 MODIFIED a/2@9 ADDED a/3@9 ADDED a/4@10",
		calls:   "watch 0 initial=true",
	}, {
		name: "a watch that breaks between two deletions of a version",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 ADDED a/3@7 END @8 DELETED a/1@9", end: errEOF},
			{events: "DELETED a/1@9 DELETED a/2@9", end: errEOF},
			{events: "DELETED a/1@9 DELETED a/2@9 DELETED a/3@9 BOOKMARK @9", end: errEOF},
			{events: "ADDED a/5@10"},
		},
		version: 9,
		state:   "10: a/5@10",
		events:  "DELETED a/1@9 DELETED a/2@9 DELETED a/3@9 ADDED a/5@10",
		calls:   "watch 0 initial=true, watch 8 initial=false, watch 8 initial=false, watch 9 initial=false",
	}, {
		name: "a list after a watch that broke between two changes of a version",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 ADDED a/3@7 END @8 DELETED a/1@9", end: errEOF},
			{end: expired},
			{events: "ADDED a/3@7 ADDED a/4@9 END @9"},
		},
		version: 9,
		state:   "9: a/3@7 a/4@9",
		events:  "DELETED a/1@9 DELETED a/2@9 ADDED a/4@9",
		calls:   "watch 0 initial=true, watch 8 initial=false, watch 0 initial=true",
	}, {
		name: "a change of a version that was passed",
		streams: []stream{
			{events: "ADDED a/1@5 ADDED a/2@6 END @8 DELETED a/1@9 ADDED a/3@10 DELETED a/2@9"},
			{events: "ADDED a/3@10 END @11"},
		},
		version: 11,
		state:   "11: a/3@10",
		events:  "DELETED a/1@9 ADDED a/3@10 DELETED a/2@11",
		calls:   "watch 0 initial=true, watch 0 initial=true",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &scriptedSource{streams: tc.streams, pages: tc.pages, version: tc.version, onePage: tc.onePage}
				m := cachetest.NewManager(t, s, cache.Limits{})
				defer m.Close()
				c := cachetest.PodCollection(t, m)
				synctest.Wait()
				first := c.Mux().Oldest()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if tc.stopped != "" {
					st := c.State()
					if st.Phase != reflector.Stopped || !errors.Is(st.Err, store.ErrRewound) || !strings.Contains(st.Err.Error(), tc.stopped) {
						t.Errorf("state %+v", st)
					}
					return
				}
				if broken := c.CheckInvariants(); broken != "" {
					t.Error(broken)
				}
				if got := scriptedState(c.Snapshot()); got != tc.state {
					t.Errorf("state %s, want %s", got, tc.state)
				}
				if got := strings.Join(s.calls, ", "); got != tc.calls {
					t.Errorf("calls %s,\n want %s", got, tc.calls)
				}
				w, err := c.Mux().Watch(first, nil, func() {})
				if err != nil {
					t.Fatal(err)
				}
				if got := cachetest.Deliveries(w); got != tc.events {
					t.Errorf("events %s, want %s", got, tc.events)
				}
			})
		})
	}
}

func scriptedState(v *store.Snapshot) string {
	out := fmt.Sprintf("%d:", v.RV())
	for _, o := range cachetest.All(v, "", "") {
		out += fmt.Sprintf(" %s@%d", o.Key, o.RV)
		if strings.Contains(string(o.Raw), "new") {
			out += "!new"
		}
	}
	return out
}

// TestListDuringDefinitionChangeIsRepeated checks that a list made while a definition was changing
// is repeated when its watch ends, and that later lists are not.
func TestListDuringDefinitionChangeIsRepeated(t *testing.T) {
	for age, want := range map[time.Duration]string{0: "9: a/1@5!new", time.Minute: "8: a/1@5"} {
		bubble.Test(t, func(t *testing.T) {
			s := &scriptedSource{version: 9, streams: []stream{
				{events: "ADDED a/1@5 END @8", end: errEOF},
				{events: "ADDED a/1@5!new END @9"},
			}}
			if age > 0 {
				s.streams[1].events = ""
			}
			m := cachetest.NewManager(t, s, cache.Limits{})
			defer m.Close()
			res := cachetest.PodResource()
			res.Custom, res.Changed = true, time.Now().Add(-age)
			c := cachetest.Collection(t, m, res, api.JSON)
			time.Sleep(time.Second)
			if got := scriptedState(c.Snapshot()); got != want {
				t.Errorf("%s after the change: %s, want %s; %q", age, got, want, s.calls)
			}
		})
	}
}

// manyServers is a scriptedSource with several servers.
type manyServers struct {
	*scriptedSource
	newest    uint64
	requested int
}

// NewestVersion implements source.ReplicatedSource. The server of the previous request catches up.
// At first the others do not respond.
func (s *manyServers) NewestVersion(context.Context, *source.Resource) (uint64, error) {
	if s.requested++; s.requested == 1 {
		return s.version, errors.New("connection reset by peer")
	}
	if s.requested == 3 {
		s.version = s.newest
	}
	return s.newest, nil
}

// TestLaggingServerIsAwaited checks that a server that lags behind others is waited for, and that
// nothing goes back.
func TestLaggingServerIsAwaited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		errEOF := errors.New("unexpected EOF")
		s := &manyServers{newest: 9, scriptedSource: &scriptedSource{
			version: 5, streams: []stream{{events: "ADDED a/1@5 END @8", end: errEOF}, {events: "ADDED a/2@9"}},
		}}
		m := cachetest.NewManager(t, s, cache.Limits{})
		defer m.Close()
		c := cachetest.PodCollection(t, m)
		synctest.Wait()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := scriptedState(c.Snapshot()); got != "9: a/1@5 a/2@9" || s.requested != 3 {
			t.Errorf("state %s, %d requests", got, s.requested)
		}
		if got := strings.Join(s.calls, ", "); got != "watch 0 initial=true, watch 8 initial=false" {
			t.Errorf("calls %s", got)
		}
	})
}
