package reflector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestRestoreFromBackupIsDetected checks that a restore from a backup during a broken watch, after
// which the source has counted past the held version, is detected when it responds; that
// differences outside what it shows are not; and that nothing is detected without a restore.
func TestRestoreFromBackupIsDetected(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lost    func(*cachetest.Source) // after the backup
		instead func(*cachetest.Source) // after the restore
		found   bool
	}{{
		name:  "an object is lost",
		lost:  func(s *cachetest.Source) { s.Create(cachetest.Pods, cachetest.Pod("default/lost", "")) },
		found: true,
	}, {
		name: "it was changed otherwise instead",
		lost: func(s *cachetest.Source) {
			s.Bump(1)
			s.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "node"))
		},
		instead: func(s *cachetest.Source) { s.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "other")) },
		found:   true,
	}, {
		name:  "another collection tells it",
		lost:  func(s *cachetest.Source) { s.Create(cachetest.Nodes, cachetest.Node("lost")) },
		found: true,
	}, {
		name: "nothing was lost",
		lost: func(s *cachetest.Source) { s.Bump(3) },
	}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				pods, nodes := cachetest.PodResource(), cachetest.NodeResource()
				src := cachetest.New(pods, nodes)
				for i := range 20 {
					src.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/pod-%02d", i), ""))
				}
				src.Create(cachetest.Nodes, cachetest.Node("first"))
				m := cachetest.NewManager(t, cachetest.VersionLister{Source: src}, cache.Limits{})
				defer m.Close()
				open := func(res *source.Resource) *cache.Collection {
					t.Helper()
					c := cachetest.Collection(t, m, res, api.JSON)
					return c
				}
				before := []*cache.Collection{open(pods), open(nodes)}
				backup := src.Backup()
				tc.lost(src)
				time.Sleep(2 * time.Minute) // long enough for bookmarks
				src.SetDown(true)
				time.Sleep(10 * time.Second)
				src.RewindSilently(backup)
				if tc.instead != nil {
					tc.instead(src)
				}
				src.Bump(200)
				src.Calls() // resets the list
				src.SetDown(false)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				for _, c := range before {
					if state := c.State(); tc.found != errors.Is(state.Err, store.ErrRewound) {
						t.Errorf("%s: %v", c.Resource().Resource, state)
					}
				}
				calls := strings.Join(src.Calls(), ", ")
				if n := strings.Count(calls, "references"); n > 2 || n == 0 {
					t.Errorf("%d comparisons: %s", n, calls)
				}
				if tc.found != strings.Contains(calls, "initial=true") {
					t.Errorf("unexpected relist, or none: %s", calls)
				}
				for _, res := range []*source.Resource{pods, nodes} {
					c := open(res)
					if got, want := c.Snapshot().Len(), len(src.Objects(res.GroupVersionResource)); got != want {
						t.Errorf("%d %s, the source has %d", got, res.Resource, want)
					}
				}
				// A watch that ends cleanly is resumed without the comparison.
				src.Break(nil)
				time.Sleep(5 * time.Second)
				if calls := strings.Join(src.Calls(), ", "); strings.Contains(calls, "references") {
					t.Errorf("compared without an outage: %s", calls)
				}
			})
		})
	}
}
