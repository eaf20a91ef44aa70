package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// versions is the state of a collection at a client: resourceVersions by key.
type versions map[string]string

// firstDifference returns a key at which two states differ, or "".
func (v versions) firstDifference(want versions) string {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if v[key] != want[key] {
			return fmt.Sprintf("%s at version %q, want %q", key, v[key], want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if _, ok := want[key]; !ok {
			return fmt.Sprintf("%s at version %q should not be there", key, v[key])
		}
	}
	return ""
}

// versionsOf reads the most recent state of a collection from kube-apiserver itself.
func versionsOf(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource) (versions, error) {
	return selection{resource: resource}.versions(ctx, client)
}

// A follower is an informer with checks.
type follower struct {
	name     string
	resource schema.GroupVersionResource
	informer cache.SharedIndexInformer
	calls    *callCounter
	streamed bool // it uses streaming lists

	mu struct {
		sync.Mutex
		last  map[string]uint64 // highest version seen, by key
		held  map[string]bool   // reported as added, and not as deleted
		wrong []string
		again int // updates to the version already held
	}
}

// callCounter counts the requests of a client by kind.
type callCounter struct {
	lists, watchLists, watches atomic.Int64

	mu struct {
		sync.Mutex
		failures map[string]int // by status or error
	}
}

// failed returns how many requests failed, by status or error.
func (c *callCounter) failed() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.mu.failures)
}

func (c *callCounter) note(resp *http.Response, err error) {
	if err == nil && resp.StatusCode == http.StatusOK {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.failures == nil {
		c.mu.failures = map[string]int{}
	}
	if err != nil {
		c.mu.failures[err.Error()]++
	} else {
		c.mu.failures[resp.Status]++
	}
}

func (c *callCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") == "true":
			c.watchLists.Add(1)
		case q.Get("watch") != "":
			c.watches.Add(1)
		default:
			c.lists.Add(1)
		}
		resp, err := next.RoundTrip(r)
		c.note(resp, err)
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// listWatch is a ListWatch that says whether it supports streaming lists.
type listWatch struct {
	*cache.ListWatch
	noWatchList bool
}

// IsWatchListSemanticsUnSupported implements the interface that reflectors check.
func (l listWatch) IsWatchListSemanticsUnSupported() bool { return l.noWatchList }

// A reader makes the calls of one kind of client.
type reader struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	of    runtime.Object
}

// kinds are the kinds of clients that informers use.
var kinds = []struct {
	name string
	// typed clients support built-in types only.
	typed bool
	make  func(*rest.Config, schema.GroupVersionResource) (reader, error)
}{
	{"typed json", true, typedReader(typeJSON)},
	{"typed protobuf", true, typedReader(typeProto)},
	{"dynamic", false, dynamicReader},
	{"metadata", false, metadataReader},
}

func typedReader(contentType string) func(*rest.Config, schema.GroupVersionResource) (reader, error) {
	return func(cfg *rest.Config, resource schema.GroupVersionResource) (reader, error) {
		cfg.ContentType = contentType
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return reader{}, err
		}
		switch core := client.CoreV1(); resource {
		case podsResource:
			return newReader(core.Pods("").List, core.Pods("").Watch, &corev1.Pod{}), nil
		case secretsResource:
			return newReader(core.Secrets("").List, core.Secrets("").Watch, &corev1.Secret{}), nil
		case accountsResource:
			return newReader(core.ServiceAccounts("").List, core.ServiceAccounts("").Watch, &corev1.ServiceAccount{}), nil
		default:
			return newReader(core.ConfigMaps("").List, core.ConfigMaps("").Watch, &corev1.ConfigMap{}), nil
		}
	}
}

func newReader[List runtime.Object](
	list func(context.Context, metav1.ListOptions) (List, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error), of runtime.Object,
) reader {
	return reader{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }, watch: watch, of: of,
	}
}

func dynamicReader(cfg *rest.Config, resource schema.GroupVersionResource) (reader, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return reader{}, err
	}
	objects := client.Resource(resource)
	return newReader(objects.List, objects.Watch, &unstructured.Unstructured{}), nil
}

func metadataReader(cfg *rest.Config, resource schema.GroupVersionResource) (reader, error) {
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return reader{}, err
	}
	objects := client.Resource(resource)
	return newReader(objects.List, objects.Watch, &metav1.PartialObjectMetadata{}), nil
}

// newFollowers creates an informer of every kind of client for each resource, with streaming lists
// over HTTP/2 and without over HTTP/1.1.
func newFollowers(t *testing.T, base *rest.Config, resources ...schema.GroupVersionResource) []*follower {
	t.Helper()
	var out []*follower
	for _, resource := range resources {
		for _, kind := range kinds {
			if kind.typed && resource == widgetsResource {
				continue
			}
			for _, streamed := range []bool{true, false} {
				cfg, how := rest.CopyConfig(base), "streamed lists"
				if !streamed {
					cfg, how = http1(base), "plain lists"
				}
				f := &follower{
					name:     fmt.Sprintf("%s of %s, %s", kind.name, resource.Resource, how),
					resource: resource, calls: &callCounter{}, streamed: streamed,
				}
				f.mu.last, f.mu.held = map[string]uint64{}, map[string]bool{}
				cfg.Wrap(f.calls.wrap)
				r, err := kind.make(cfg, resource)
				must(t, err)
				lw := listWatch{noWatchList: !streamed, ListWatch: &cache.ListWatch{
					ListWithContextFunc: r.list, WatchFuncWithContext: r.watch,
				}}
				f.informer = cache.NewSharedIndexInformer(lw, r.of, 0, cache.Indexers{})
				_, err = f.informer.AddEventHandler(f.handler())
				must(t, err)
				out = append(out, f)
			}
		}
	}
	return out
}

// handler checks the notifications of the informer: added, updated, deleted.
func (f *follower) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.note("added", obj) },
		UpdateFunc: func(_, obj any) { f.note("updated", obj) },
		DeleteFunc: func(obj any) {
			// The informer missed the deletion and reports the last state it knew.
			if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.mu.held, missed.Key)
				return
			}
			f.note("deleted", obj)
		},
	}
}

func (f *follower) note(what string, obj any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := meta.Accessor(obj)
	if err != nil {
		f.mu.wrong = append(f.mu.wrong, err.Error())
		return
	}
	key := objectKey(m.GetNamespace(), m.GetName())
	rv, err := api.ParseResourceVersion(m.GetResourceVersion())
	last, held := f.mu.last[key], f.mu.held[key]
	if err != nil || rv < last || held != (what != "added") || what == "added" && rv == last {
		f.mu.wrong = append(f.mu.wrong, fmt.Sprintf("%s %s at version %s after %d, held: %t", what, key, m.GetResourceVersion(), last, held))
	}
	if what == "updated" && rv == last {
		f.mu.again++
	}
	f.mu.last[key] = max(last, rv)
	f.mu.held[key] = what != "deleted"
}

// wrong returns the wrong notifications: versions lower than an earlier one, additions of objects
// that were held, updates or deletions of others. An informer may report the version it already
// holds only when it lists again.
func (f *follower) wrong() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.mu.wrong)
	if lists := f.lists(); f.mu.again > 0 && lists <= 1 {
		out = append(out, fmt.Sprintf("%d updates to the version that was held, after %d lists", f.mu.again, lists))
	}
	return out
}

// lists returns how often the informer has listed.
func (f *follower) lists() int64 { return f.calls.lists.Load() + f.calls.watchLists.Load() }

// held returns the contents of the informer's store.
func (f *follower) held() versions {
	out := versions{}
	for _, obj := range f.informer.GetStore().List() {
		m, err := meta.Accessor(obj)
		if err != nil {
			out[err.Error()] = "?"
			continue
		}
		out[objectKey(m.GetNamespace(), m.GetName())] = m.GetResourceVersion()
	}
	return out
}
