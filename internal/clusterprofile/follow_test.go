package clusterprofile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// made is a profile that was made at a minute, with a server.
func made(name string, minute int, server string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "multicluster.x-k8s.io/v1alpha2", "kind": "ClusterProfile"}}
	u.SetNamespace("fleet")
	u.SetName(name)
	u.SetCreationTimestamp(metav1.Unix(int64(minute)*60, 0))
	u.Object["status"] = map[string]any{"accessProviders": []any{map[string]any{"name": "first", "cluster": map[string]any{"server": server}}}}
	return u
}

// hubOf is a Follower of at most most profiles of a hub that has one version of the API.
func hubOf(most int, version string, objects ...runtime.Object) (*Follower, *fake.FakeDynamicClient) {
	kinds := make(map[schema.GroupVersionResource]string)
	for _, v := range versions {
		kinds[schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: v, Resource: "clusterprofiles"}] = "ClusterProfileList"
	}
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	hub.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Version != version {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}
		return false, nil, nil
	})
	return &Follower{o: Options{Max: most, Logger: slog.New(slog.DiscardHandler)}, hub: hub}, hub
}

// TestList: the oldest are taken, in the version that the hub has.
func TestList(t *testing.T) {
	f, _ := hubOf(2, "v1alpha2", made("young", 3, "https://a"), made("old", 1, "https://b"), made("middle", 2, "https://c"))
	list, err := f.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "old" || list[1].Name != "middle" || f.Left() != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	// A name that leads elsewhere as a folder, which no hub that is well has.
	f, _ = hubOf(2, "v1alpha2", made("../..", 1, "https://a"), made("b", 2, "https://b"))
	if list, err = f.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != "b" {
		t.Errorf("%+v, %v", list, err)
	}
	f, _ = hubOf(2, "v1")
	if _, err := f.List(t.Context()); err == nil || !strings.Contains(err.Error(), "custom resource definition is not there") {
		t.Error(err)
	}
}

// TestConcerns: what changes no cluster is no reason to list anew.
func TestConcerns(t *testing.T) {
	f, _ := hubOf(2, "v1alpha2", made("a", 1, "https://a"), made("b", 2, "https://b"))
	if _, err := f.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	healthy := made("a", 1, "https://a")
	if err := unstructured.SetNestedField(healthy.Object, "v1.36.0", "status", "version", "kubernetes"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind   watch.EventType
		object *unstructured.Unstructured
		want   bool
	}{
		{watch.Modified, healthy, false},
		{watch.Modified, made("a", 1, "https://other"), true},
		{watch.Deleted, made("b", 2, "https://b"), true},
		{watch.Added, made("c", 3, "https://c"), false}, // there is no place
		{watch.Deleted, made("c", 3, "https://c"), false},
		{watch.Bookmark, made("", 0, ""), false},
	} {
		if got := f.concerns(watch.Event{Type: c.kind, Object: c.object}); got != c.want {
			t.Errorf("%s %s: %t", c.kind, c.object.GetName(), got)
		}
	}
	f.o.Max = 3
	if !f.concerns(watch.Event{Type: watch.Added, Object: made("c", 3, "https://c")}) {
		t.Error("a new profile is no reason")
	}
}

// TestRun: what changes is taken; while the hub is away nothing is, and it is asked ever more seldom.
func TestRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f, hub := hubOf(10, "v1alpha1", made("a", 1, "https://a"))
		resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}
		var requested atomic.Int32
		var away atomic.Bool
		hub.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			requested.Add(1)
			return away.Load(), nil, errors.New("away")
		})
		ctx, cancel := context.WithCancel(t.Context())
		var taken [][]Profile
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Run(ctx, func(_ context.Context, list []Profile) { taken = append(taken, list) })
		}()
		synctest.Wait()
		for i := range 3 { // they count as one
			if _, err := hub.Resource(resource).Namespace("fleet").Create(ctx, made(fmt.Sprint("b", i), 2, "https://b"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(taken) != 2 || len(taken[0]) != 0 && len(taken[0]) != 1 || len(taken[1]) < 3 {
			t.Errorf("%d lists were taken: %v", len(taken), taken)
		}
		away.Store(true)
		requested.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := requested.Load(); len(taken) != 2 || n < 60 || n > 200 {
			t.Errorf("%d lists were taken, asked %d times", len(taken), n)
		}
		cancel()
		<-ended
	})
}

// TestRunWithoutWatch: a hub that lets nobody watch, whose watches end at once, or whose profiles change all the time, is not
// asked more often than every ten seconds in the long run, and told of once.
func TestRunWithoutWatch(t *testing.T) {
	ended := func(events ...watch.Event) watch.Interface {
		w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: len(events)})
		for _, e := range events {
			w.Action(e.Type, e.Object)
		}
		w.Stop()
		return w
	}
	changes := 0
	gone := apierrors.NewResourceExpired("gone").Status()
	for name, c := range map[string]struct {
		watch func() (watch.Interface, error)
		logs  int
	}{
		"forbidden":  {func() (watch.Interface, error) { return nil, errors.New("forbidden") }, 1},
		"ends":       {func() (watch.Interface, error) { return ended(), nil }, 0},
		"is expired": {func() (watch.Interface, error) { return ended(watch.Event{Type: watch.Error, Object: &gone}), nil }, 0},
		"changes": {func() (watch.Interface, error) {
			changes++
			return ended(watch.Event{Type: watch.Modified, Object: made("a", 1, fmt.Sprint("https://", changes))}), nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f, hub := hubOf(10, "v1alpha1", made("a", 1, "https://a"))
				var log bytes.Buffer
				f.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				hub.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
					w, err := c.watch()
					return true, w, err
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				taken := 0
				f.Run(ctx, func(context.Context, []Profile) { taken++ })
				if taken < 100 || taken > 380 {
					t.Errorf("taken %d times in an hour", taken)
				}
				if logs := strings.Count(log.String(), "level="); logs != c.logs {
					t.Errorf("told %d times: %.500s", logs, log.String())
				}
			})
		})
	}
}
