package checkpoint_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestRestoreFromBackupIsDetectedBeforeServing checks that a source that was restored from a
// backup, and has since counted past the saved version, is detected before the checkpoint is
// served.
func TestRestoreFromBackupIsDetectedBeforeServing(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lost    func(*checkpointBench) // after the backup
		instead func(*checkpointBench) // after the restore
		found   bool
	}{{
		name:  "an object is lost",
		lost:  func(k *checkpointBench) { k.source.Create(cachetest.Pods, cachetest.Pod("default/lost", "")) },
		found: true,
	}, {
		name:  "a change is lost",
		lost:  func(k *checkpointBench) { k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "node")) },
		found: true,
	}, {
		name: "it was changed otherwise instead",
		lost: func(k *checkpointBench) {
			k.source.Bump(1)
			k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "node"))
		},
		instead: func(k *checkpointBench) { k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "other")) },
		found:   true,
	}, {
		name:    "a deletion is lost",
		lost:    func(k *checkpointBench) { k.source.Delete(cachetest.Pods, "default/pod-19") },
		instead: func(k *checkpointBench) { k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-00", "")) },
		found:   true,
	}, {
		name: "another collection tells it",
		lost: func(k *checkpointBench) {
			k.source.Create(cachetest.Nodes, cachetest.Node("lost"))
		},
		instead: func(k *checkpointBench) { k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-00", "restored")) },
		found:   true,
	}, {
		name: "nothing was lost",
		lost: func(k *checkpointBench) { k.source.Bump(3) },
	}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				nodes := cachetest.NodeResource()
				k.source = cachetest.New(k.res, nodes)
				k.wrap = func(s source.Source) source.Source { return cachetest.VersionLister{Source: s.(*cachetest.Source)} }
				for i := range 20 {
					k.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/pod-%02d", i), ""))
				}
				k.source.Create(cachetest.Nodes, cachetest.Node("first"))
				k.start()
				k.open()
				cachetest.Collection(t, k.manager, nodes, api.JSON)
				backup := k.source.Backup()
				tc.lost(k)
				time.Sleep(2 * time.Minute) // long enough for bookmarks
				synctest.Wait()
				k.stop()
				k.source.RewindSilently(backup)
				if tc.instead != nil {
					tc.instead(k)
				}
				k.source.Bump(20)
				k.source.Calls() // resets the list
				k.start()
				defer func() { k.stop() }()
				k.manager.Start(k.res, api.JSON)
				cachetest.Collection(t, k.manager, nodes, api.JSON)
				synctest.Wait() // until the finding of another collection is forgotten
				k.same(k.open())
				synctest.Wait()
				if found := strings.Contains(k.log.String(), "before it reached the cached version"); found != tc.found {
					t.Errorf("found %t: %s", found, k.log.String())
				}
				if tc.found != strings.Contains(k.calls(), "watch pods rv=0 initial=true") {
					t.Error("unexpected list of pods, or none")
				}
				k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-01", "later"))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				k.same(k.open())
			})
		})
	}
}

// TestResumeWithoutComparison checks that a source that cannot list one object is trusted, and that
// the request to a busy one is repeated.
func TestResumeWithoutComparison(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		listed bool
	}{
		"expired": {err: api.NewExpiredWatch(1, 2)},
		"busy":    {err: api.NewTooManyRequests("later", 1)},
		"away":    {err: cachetest.ErrDown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.start()
				k.open()
				k.stop()
				k.change()
				k.source.Calls()
				k.source.Fail("page", tc.err)
				k.start()
				defer func() { k.stop() }()
				k.same(k.open())
				if calls := k.calls(); strings.Contains(calls, "initial=true") {
					t.Errorf("relisted: %s", calls)
				}
			})
		})
	}
}

// behind is a source whose store begins pages after the given key, like kine: it drops the zero
// byte by which API servers exclude it.
type behind struct{ cachetest.VersionLister }

func (b behind) ListVersions(ctx context.Context, res *source.Resource, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	if opts.Continue != "" {
		token, err := api.DecodeContinue(opts.Continue)
		if err != nil {
			return source.ListMeta{}, err
		}
		token.Start = strings.TrimRight(token.Start, "\x00") + "\x00"
		opts.Continue = token.Encode()
	}
	return b.VersionLister.ListVersions(ctx, res, opts, visit)
}

// TestResumeComparesTheRightObject checks that a checkpoint is compared with the right object, the
// first one or another, even if the source's store is not etcd.
func TestResumeComparesTheRightObject(t *testing.T) {
	for _, newest := range []string{"default/pod-00", "default/pod-07", "default/pod-19"} {
		t.Run(newest, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.wrap = func(s source.Source) source.Source {
					return behind{cachetest.VersionLister{Source: s.(*cachetest.Source)}}
				}
				k.source.Update(cachetest.Pods, cachetest.Pod(newest, "node"))
				k.start()
				k.open()
				k.stop()
				k.source.Bump(3)
				k.source.Calls() // resets the list
				k.start()
				defer func() { k.stop() }()
				k.same(k.open())
				if calls := k.calls(); strings.Contains(calls, "initial=true") || !strings.Contains(calls, "references pods limit=1") {
					t.Errorf("%s\n%s", calls, k.log.String())
				}
			})
		})
	}
}
