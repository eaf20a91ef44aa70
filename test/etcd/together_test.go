package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestDeletedTogether deletes objects in one etcd transaction, so that all deletions have one
// version, while clients read continuously. Reads that start later see none of the objects, watches
// receive all deletions, and the reflector does not list again.
func TestDeletedTogether(t *testing.T) {
	const rounds, many, readers = 4, 300, 4
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := start(t, realkube.Options{EtcdOnly: true})
	s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir(), ExtraArgs: []string{"--etcd-servers", c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	cfg, err := s.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	weir := newFace(t, "kubeweir", cfg)
	count := func() int {
		list, err := weir.in(configMaps).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
			return -1
		}
		return len(list.Items)
	}
	list, err := weir.in(configMaps).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := weir.in(configMaps).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	restarts := restartsOf(ctx, t, s)

	for range rounds {
		var wg sync.WaitGroup
		for writer := range readers {
			wg.Go(func() {
				for i := writer; i < many; i += readers {
					_, err := weir.in(configMaps).Create(ctx, object(t, configMap(fmt.Sprintf("together-%03d", i), "v")), metav1.CreateOptions{})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for range many {
			if ev, ok := <-w.ResultChan(); !ok || ev.Type != watch.Added {
				t.Fatalf("%s: %v", ev.Type, ev.Object)
			}
		}
		var done atomic.Bool
		for range readers {
			wg.Go(func() {
				for !done.Load() {
					count()
				}
			})
		}
		err := c.DeletePrefix(ctx, "/registry/configmaps/default/together-")
		for range 2 {
			if n := count(); n != len(list.Items) {
				t.Errorf("%d objects, want %d", n, len(list.Items))
			}
		}
		done.Store(true)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		version := ""
		for i := range many {
			ev, ok := <-w.ResultChan()
			if !ok || ev.Type != watch.Deleted {
				t.Fatalf("event %d is %s: %v", i, ev.Type, ev.Object)
			}
			o := ev.Object.(metav1.Object)
			if version = max(version, o.GetResourceVersion()); o.GetName() != fmt.Sprintf("together-%03d", i) || o.GetResourceVersion() != version {
				t.Fatalf("event %d is the deletion of %s at version %s, the others have version %s", i, o.GetName(), o.GetResourceVersion(), version)
			}
		}
	}
	if n := restartsOf(ctx, t, s); n != restarts {
		t.Errorf("the reflector restarted %v times", n-restarts)
	}
}

// restartsOf returns how often the reflector of ConfigMaps has restarted its watch.
func restartsOf(ctx context.Context, t *testing.T, s *realkube.Standalone) float64 {
	t.Helper()
	m, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum("kubeweir_cache_feed_restarts_total", map[string]string{"resource": "configmaps"})
}
