package read_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// revalidateBench is a collection of pods in front of a source that lists versions.
type revalidateBench struct {
	t       *testing.T
	source  cachetest.VersionLister
	manager *cache.Manager
	reader  *read.Reader
	pods    *cache.Collection
}

func newRevalidateBench(t *testing.T, n int) *revalidateBench {
	t.Helper()
	res := cachetest.PodResource()
	res.Printer = table.NewDefaultPrinter()
	b := &revalidateBench{t: t, source: cachetest.VersionLister{Source: cachetest.New(res)}}
	for i := range n {
		b.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-%d/pod-%03d", i%3, i), fmt.Sprintf("node-%d", i%2), fmt.Sprintf("fifth=%d", i%5)))
	}
	b.manager = cachetest.NewManager(t, b.source, cache.Limits{})
	t.Cleanup(b.manager.Close)
	b.reader = cachetest.NewReader(t, read.Options{})
	b.pods = cachetest.Collection(t, b.manager, res, api.JSON)
	return b
}

// podsListed is what a test examines in a list.
type podsListed struct {
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
	}
	Items []struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
}

func (l *podsListed) names() []string {
	var names []string
	for _, i := range l.Items {
		names = append(names, i.Metadata.Namespace+"/"+i.Metadata.Name+"@"+i.Metadata.ResourceVersion)
	}
	return names
}

func (b *revalidateBench) read(ctx context.Context, path string) (*podsListed, error) {
	b.t.Helper()
	resp, err := b.reader.Revalidate(ctx, b.pods, cachetest.ReadRequest(b.t, path, api.Representation{}))
	if err != nil {
		return nil, err
	}
	l := &podsListed{}
	if err := json.Unmarshal(cachetest.Body(b.t, resp), l); err != nil {
		b.t.Fatal(err)
	}
	return l, nil
}

// now returns what the source has.
func (b *revalidateBench) now(keep func(name string, labels map[string]string) bool) []string {
	var names []string
	for _, o := range b.source.Objects(cachetest.Pods) {
		if name := o.GetNamespace() + "/" + o.GetName(); keep(name, o.GetLabels()) {
			names = append(names, name+"@"+o.GetResourceVersion())
		}
	}
	return names
}

func everything(string, map[string]string) bool { return true }

func (b *revalidateBench) expect(path string, keep func(string, map[string]string) bool) {
	b.t.Helper()
	l, err := b.read(b.t.Context(), path)
	if err != nil {
		b.t.Errorf("%q: %v", path, err)
		return
	}
	if want := b.now(keep); !slices.Equal(l.names(), want) {
		b.t.Errorf("%q: %v, want %v", path, l.names(), want)
	}
	if want := fmt.Sprint(b.source.Revision()); l.Metadata.ResourceVersion != want {
		b.t.Errorf("%q: resourceVersion %s, want %s", path, l.Metadata.ResourceVersion, want)
	}
}

// TestRevalidate checks that a list has the upstream's version as soon as the collection has the
// objects that the upstream names.
func TestRevalidate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 30)
		for range 2 {
			b.source.Bump(7) // writes to other resources, which the collection does not see
			began := time.Now()
			b.expect("", everything)
			b.expect("ns-1", func(name string, _ map[string]string) bool { return strings.HasPrefix(name, "ns-1/") })
			b.expect("?labelSelector=fifth=2", func(_ string, labels map[string]string) bool { return labels["fifth"] == "2" })
			b.expect("ns-2?labelSelector=fifth!=2", func(name string, labels map[string]string) bool {
				return strings.HasPrefix(name, "ns-2/") && labels["fifth"] != "2"
			})
			b.expect("?fieldSelector=metadata.name=pod-007", func(name string, _ map[string]string) bool { return name == "ns-1/pod-007" })
			b.expect("nowhere", func(string, map[string]string) bool { return false })
			if took := time.Since(began); took != 0 {
				t.Errorf("waited for %v", took)
			}
			b.source.Update(cachetest.Pods, cachetest.Pod("ns-1/pod-007", "node-0", "fifth=2"))
			b.source.Delete(cachetest.Pods, b.source.Objects(cachetest.Pods)[3].GetNamespace()+"/"+b.source.Objects(cachetest.Pods)[3].GetName())
			synctest.Wait()
		}
		// Once the watch has brought the newest version, the collection is current by itself.
		b.source.Create(cachetest.Pods, cachetest.Pod("ns-0/last", ""))
		synctest.Wait()
		b.expect("", everything)
	})
}

// TestRevalidateWaitsForTheWatch checks that objects on which the upstream and the collection
// differ are waited for.
func TestRevalidateWaitsForTheWatch(t *testing.T) {
	for name, change := range map[string]func(*cachetest.Source){
		"created": func(s *cachetest.Source) { s.Create(cachetest.Pods, cachetest.Pod("ns-0/new", "")) },
		"updated": func(s *cachetest.Source) { s.Update(cachetest.Pods, cachetest.Pod("ns-0/pod-003", "other")) },
		"deleted": func(s *cachetest.Source) { s.Delete(cachetest.Pods, "ns-0/pod-003") },
		"replaced": func(s *cachetest.Source) {
			s.Delete(cachetest.Pods, "ns-0/pod-003")
			s.Create(cachetest.Pods, cachetest.Pod("ns-0/pod-003", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newRevalidateBench(t, 10)
				b.source.Hold()
				change(b.source.Source)
				b.source.Bump(3)
				time.AfterFunc(50*time.Millisecond, b.source.Release)
				began := time.Now()
				b.expect("", everything)
				if took := time.Since(began); took != 50*time.Millisecond {
					t.Errorf("took %v", took)
				}
				b.source.Hold()
				b.source.Create(cachetest.Pods, cachetest.Pod("ns-1/later", ""))
				began = time.Now()
				if _, err := b.read(t.Context(), ""); !errors.Is(err, read.ErrForward) || time.Since(began) != 100*time.Millisecond {
					t.Errorf("the event did not arrive: %v after %v", err, time.Since(began))
				}
				// Unchanged namespaces are still proven current.
				b.expect("ns-2", func(name string, _ map[string]string) bool { return strings.HasPrefix(name, "ns-2/") })
			})
		})
	}
}

// TestRevalidatePages checks that the pages of a list show one version although the collection has
// changed meanwhile.
func TestRevalidatePages(t *testing.T) {
	for _, changed := range []bool{false, true} {
		for _, path := range []string{"?", "ns-1?", "?labelSelector=fifth!=3&"} {
			t.Run(fmt.Sprint(path, changed), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					b := newRevalidateBench(t, 40)
					b.source.Bump(5)
					want := b.now(func(name string, labels map[string]string) bool {
						return (path != "ns-1?" || strings.HasPrefix(name, "ns-1/")) && (!strings.Contains(path, "fifth") || labels["fifth"] != "3")
					})
					rv := fmt.Sprint(b.source.Revision())
					var got []string
					next := path + "limit=6"
					for pages := 0; ; pages++ {
						l, err := b.read(t.Context(), next)
						if err != nil || l.Metadata.ResourceVersion != rv {
							t.Fatalf("page %d: %v, %v, want version %s", pages, l, err, rv)
						}
						got = append(got, l.names()...)
						if l.Metadata.Continue == "" {
							break
						}
						if left := l.Metadata.RemainingItemCount; left != nil && int(*left) != len(want)-len(got) {
							t.Errorf("page %d: %d remain, want %d", pages, *left, len(want)-len(got))
						}
						next = path + "limit=6&continue=" + l.Metadata.Continue
						if changed && pages == 0 {
							b.source.Delete(cachetest.Pods, "ns-1/pod-037")
							synctest.Wait()
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("%v, want %v", got, want)
					}
				})
			})
		}
	}
}

func TestRevalidateIsShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 10)
		b.source.Bump(1)
		b.source.SetSilent(true)
		b.source.Calls()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { b.expect("", everything) })
			synctest.Wait()
		}
		b.source.SetSilent(false)
		wg.Wait()
		if calls := b.source.Calls(); len(calls) != 2 {
			t.Errorf("one caller and nine late ones made %v", calls)
		}
	})
}

// TestRevalidateUnderConstantEvents checks that, if events arrive constantly, the next one replaces
// the list of versions.
func TestRevalidateUnderConstantEvents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 300)
		busy, idle := context.WithCancel(t.Context())
		requested := func(want string) {
			t.Helper()
			b.source.Calls()
			rv := b.source.Bump(1)
			l, err := b.read(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			if shown, _ := strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64); shown < rv || len(l.Items) != 300 {
				t.Errorf("%d objects at %d, requested at %d", len(l.Items), shown, rv)
			}
			calls := b.source.Calls()
			if got, _, _ := strings.Cut(strings.Join(calls, ", "), " pods"); got != want {
				t.Errorf("requests %v, want %s first", calls, want)
			}
		}
		requested("references")
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				b.source.Update(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-0/pod-%03d", i%10*3), "", fmt.Sprint("n=", i)))
				time.Sleep(15 * time.Millisecond)
			}
		})
		time.Sleep(time.Second)
		requested("version")
		idle()
		writer.Wait()
		requested("version") // then for the versions, because no event arrives
		time.Sleep(time.Second)
		requested("references")
	})
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 300)
		backup := b.source.Backup()
		for i := range 5 {
			b.source.Update(cachetest.Pods, cachetest.Pod("ns-0/pod-000", "", fmt.Sprint("n=", i)))
		}
		synctest.Wait()
		b.source.RewindSilently(backup)
		if _, err := b.read(t.Context(), ""); !errors.Is(err, read.ErrForward) {
			t.Errorf("from a server that went back: %v", err)
		}
	})
}

// TestRevalidateForwardsUnprovableLists checks that unprovable lists are forwarded.
func TestRevalidateForwardsUnprovableLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 10)
		for _, path := range []string{"?resourceVersion=0", "?resourceVersion=105", "?continue=nonsense", "?continue=" + (api.ContinueToken{ResourceVersion: -1, Start: "a"}).Encode()} {
			if _, err := b.read(t.Context(), path); !errors.Is(err, read.ErrForward) {
				t.Errorf("%s: %v", path, err)
			}
		}
		b.source.Fail("references", errors.New("refused"))
		if _, err := b.read(t.Context(), ""); !errors.Is(err, read.ErrForward) {
			t.Errorf("refused: %v", err)
		}
		b.expect("", everything)

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.read(canceled, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("without a client: %v", err)
		}

		// A server below a version it reported earlier is examined and not believed.
		backup := b.source.Backup()
		b.source.Create(cachetest.Pods, cachetest.Pod("ns-0/new", ""))
		synctest.Wait()
		b.source.RewindSilently(backup)
		if _, err := b.read(t.Context(), ""); !errors.Is(err, read.ErrForward) {
			t.Errorf("from a server that went back: %v", err)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 10)
		b.source.Fail("references", fmt.Errorf("406: %w", source.ErrUnsupported))
		for range 3 {
			if _, err := b.read(t.Context(), ""); !errors.Is(err, read.ErrForward) {
				t.Errorf("unsupported: %v", err)
			}
		}
		if n := strings.Count(strings.Join(b.source.Calls(), "\n"), "references"); n != 1 {
			t.Errorf("%d unsupported requests", n)
		}
	})
}

// TestRevalidateWhileWatchLags checks that no versions are listed while the watch delivers changes
// late.
func TestRevalidateWhileWatchLags(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newRevalidateBench(t, 10)
		requests := func() int {
			b.source.Calls()
			_, err := b.read(t.Context(), "")
			n := strings.Count(strings.Join(b.source.Calls(), "\n"), "references")
			if (n == 0) != errors.Is(err, read.ErrForward) {
				t.Errorf("%d requests: %v", n, err)
			}
			return n
		}
		b.source.SetDelay(5 * time.Second)
		if n := requests(); n != 1 {
			t.Errorf("%d requests while nothing changes", n)
		}
		b.source.Create(cachetest.Pods, cachetest.Pod("ns-0/new", ""))
		synctest.Wait()
		if n := requests(); n != 0 {
			t.Errorf("%d requests while changes arrive late", n)
		}
		time.Sleep(11 * time.Second)
		if n := requests(); n != 1 {
			t.Errorf("%d requests after the changes", n)
		}
		b.source.SetDelay(50 * time.Millisecond)
		b.source.Create(cachetest.Pods, cachetest.Pod("ns-0/newer", ""))
		synctest.Wait()
		if n := requests(); n != 1 {
			t.Errorf("%d requests while changes arrive early", n)
		}
	})
}
