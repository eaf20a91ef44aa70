package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// hasty is a source that ends resumed watches at once and cleanly, like a kube-apiserver that is
// shutting down, and whose streaming lists do not begin.
type hasty struct {
	*cachetest.Source
	ends, hangs *atomic.Bool
}

func (h hasty) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	switch {
	case opts.SendInitialEvents && h.hangs.Load():
		<-ctx.Done()
		return ctx.Err()
	case !opts.SendInitialEvents && h.ends.Load():
		return handle(source.Event{Type: source.WatchAccepted})
	}
	return h.Source.Watch(ctx, res, enc, opts, handle)
}

// TestInterruptedCatchUpConfirmsNothing checks that a watch that ended early, without bringing
// everything, confirms nothing.
func TestInterruptedCatchUpConfirmsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		var ends, hangs atomic.Bool
		k.wrap = func(s source.Source) source.Source { return hasty{s.(*cachetest.Source), &ends, &hangs} }
		k.start()
		k.open()
		k.stop()
		k.change()
		ends.Store(true)
		k.start()
		defer func() { k.stop() }()
		if c, err := k.manager.Collection(t.Context(), k.res, api.JSON); err == nil {
			t.Errorf("collection at %d is served, the source is at %d", c.RV(), k.source.Revision())
		}
		ends.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		c := k.open()
		k.same(c)
		if c.RV() != k.source.Revision() {
			t.Errorf("at %d, the source at %d", c.RV(), k.source.Revision())
		}
	})
}

// narrow is a source behind a link that takes a while per event: a watch that times out ends
// cleanly in between.
type narrow struct {
	*cachetest.Source
	each time.Duration
}

func (n narrow) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	errOver := errors.New("over")
	opened := time.Now()
	err := n.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.Type != source.WatchAccepted {
			time.Sleep(n.each)
		}
		if opts.TimeoutSeconds > 0 && time.Since(opened) > time.Duration(opts.TimeoutSeconds)*time.Second {
			return errOver
		}
		return handle(ev)
	})
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// TestCatchUpOverLinkWithShortWatches checks that, over a link that carries fewer events per watch
// than there are, a loaded state is not taken for current before all of them have arrived, and that
// they do arrive.
func TestCatchUpOverLinkWithShortWatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.start()
		k.open()
		k.stop()
		for range 10 { // three events each, which take 21 s together
			k.change()
		}
		k.wrap = func(s source.Source) source.Source { return narrow{s.(*cachetest.Source), 700 * time.Millisecond} }
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		began := time.Now()
		c := k.open()
		if c.RV() != k.source.Revision() {
			t.Errorf("at %d, the source at %d", c.RV(), k.source.Revision())
		}
		k.same(c)
		if calls := k.calls(); strings.Contains(calls, "initial=true") || strings.Contains(calls, "list pods") && !strings.Contains(calls, "limit=1") {
			t.Errorf("relisted: %s", calls)
		}
		if took := time.Since(began); took > 35*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// large is a source behind a link on which one event takes longer than most watches last.
type large struct {
	*cachetest.Source
	takes time.Duration
}

func (l large) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return l.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if ev.Type != source.WatchAccepted {
			select {
			case <-time.After(l.takes):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return handle(ev)
	})
}

// TestCatchUpWaitsForLargeChange checks that a change that takes minutes to arrive is eventually
// waited for, before its version expires.
func TestCatchUpWaitsForLargeChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.start()
		k.open()
		k.stop()
		k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-07", "node"))
		k.wrap = func(s source.Source) source.Source { return large{s.(*cachetest.Source), 3 * time.Minute} }
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.same(k.open())
		if calls := k.calls(); strings.Contains(calls, "initial=true") {
			t.Errorf("relisted: %s", calls)
		}
	})
}

// TestStateOfOldServerIsRelisted checks that a state saved just before a new server is listed
// belongs to the old server, and is relisted after a restart too.
func TestStateOfOldServerIsRelisted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.source.SetServer("1")
		var ends, hangs atomic.Bool
		k.wrap = func(s source.Source) source.Source { return hasty{s.(*cachetest.Source), &ends, &hangs} }
		k.start()
		k.open()
		hangs.Store(true)
		k.source.SetServer("2")
		k.source.Break(nil)
		time.Sleep(10 * time.Second)
		k.stop()
		hangs.Store(false)
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.same(k.open())
		if calls := k.calls(); !strings.Contains(calls, "initial=true") {
			t.Errorf("the state of the old server was not relisted: %s", calls)
		}
	})
}

// TestProvisionalStateIsNotSaved checks that a state that an old definition may have left is not
// saved as that of the new one until it was relisted.
func TestProvisionalStateIsNotSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		res := k.res
		restart := func() {
			k.stop()
			k.source.Calls() // resets the list
			k.start()
		}
		k.start()
		defer func() { k.stop() }()
		k.res = res.Reinstate(time.Now())
		k.open()
		time.Sleep(5 * time.Second)
		k.res = res
		restart()
		k.same(k.open())
		if calls := k.calls(); !strings.Contains(calls, "initial=true") {
			t.Errorf("the provisional list was restored: %s", calls)
		}
		k.manager.Drop(cachetest.Pods, errRedefinition)
		k.res = res.Reinstate(time.Now())
		k.open()
		time.Sleep(time.Minute)
		k.source.Break(nil)
		time.Sleep(time.Minute)
		k.res = res
		restart()
		k.same(k.open())
		if calls := k.calls(); strings.Contains(calls, "initial=true") {
			t.Errorf("the relisted state was not saved: %s", calls)
		}
	})
}

// TestUnidentifiedClusterIsNotSaved checks that nothing is saved while it is unknown whether the
// loaded checkpoint belongs to the cluster, which may be a different one at each attempt.
func TestUnidentifiedClusterIsNotSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.options.ServeUnconfirmed = func() bool { return true }
		var name atomic.Value
		name.Store("one")
		k.options.Cluster = func(context.Context) (string, error) { return name.Load().(string), nil }
		k.start()
		k.open()
		k.stop()
		// A crash has left part of the next write, so the checkpoint must be rewritten.
		f, err := k.disk.OpenReadWrite("/state/pods.v1.json.image", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("xxxxx"), info.Size()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		k.source.SetDown(true)
		k.start()
		c := k.open()
		time.Sleep(10 * time.Second)
		name.Store("two")
		time.Sleep(10 * time.Second)
		k.kill(rand.New(rand.NewPCG(1, 1)))
		if state := c.State(); state.Phase == reflector.Synced {
			t.Errorf("%v", state)
		}
		k.source.SetDown(false)
		k.source.Bump(1000)
		k.source.Calls() // resets the list
		k.start()
		k.open()
		if calls := k.calls(); !strings.Contains(calls, "initial=true") {
			t.Errorf("the checkpoint of one cluster was used for another: %s", calls)
		}
		k.stop()

		// The cluster is identified again at each attempt.
		name.Store("two")
		k.source.SetDown(true)
		k.options.ServeUnconfirmed = func() bool { return false }
		k.start()
		defer func() { k.stop() }()
		if _, err := k.manager.Collection(t.Context(), k.res, api.JSON); err == nil {
			t.Error("the collection is served")
		}
		name.Store("three")
		k.source.SetDown(false)
		k.source.Bump(1000)
		time.Sleep(time.Minute)
		k.open()
		if !strings.Contains(k.log.String(), "different cluster: three, not two") {
			t.Errorf("the change of cluster was not detected: %s", k.log.String())
		}
	})
}

// TestTooLargeCollectionIsNotSaved checks that a collection that does not fit costs little disk and
// one log line, and that the others are saved.
func TestTooLargeCollectionIsNotSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.limit = 3 << 20
		nodes := cachetest.NodeResource()
		k.source = cachetest.New(k.res, nodes)
		random := rand.NewChaCha8([32]byte{})
		noise := make([]byte, 512<<10)
		for n := range 8 {
			for i := range noise {
				noise[i] = 'a' + byte(random.Uint64()%26)
			}
			k.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/large-%d", n), string(noise)))
		}
		k.start()
		defer func() { k.stop() }()
		for range 60 {
			k.open()
			cachetest.Collection(t, k.manager, nodes, api.JSON)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if _, written := k.dir.Bytes(); written > 30<<20 {
			t.Errorf("%d bytes were written in an hour", written)
		}
		if lines := strings.Count(k.log.String(), "checkpoint failed"); lines != 1 {
			t.Errorf("%d lines in the log: %.2000s", lines, k.log.String())
		}
	})
}

// stuck is a disk on which syncing a file hangs after reached is closed, until hangs is closed.
type stuck struct {
	vfs.FS
	reached func()
	hangs   chan struct{}
}

type stuckFile struct {
	vfs.File
	disk stuck
}

func (s stuck) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, category, opts...)
	return stuckFile{f, s}, err
}

func (f stuckFile) SyncData() error {
	f.disk.reached()
	<-f.disk.hangs
	return f.File.SyncData()
}

// TestHangingWriteDelaysNobody checks that a hanging disk delays neither a change of definition nor
// the end of the process. It runs in real time because the clock of a bubble stands still while a
// goroutine waits for a mutex.
func TestHangingWriteDelaysNobody(t *testing.T) {
	checkpoint.SetDiskTimeout(t, 50*time.Millisecond)
	k := newCheckpointBench(t)
	reached, hangs := make(chan struct{}), make(chan struct{})
	k.fs = func(fs vfs.FS) vfs.FS { return stuck{fs, sync.OnceFunc(func() { close(reached) }), hangs} }
	k.start()
	k.open()
	<-reached
	release := sync.OnceFunc(func() { close(hangs) })
	defer release()
	defer time.AfterFunc(30*time.Second, func() {
		t.Error("waited for the disk")
		release()
	}).Stop()
	k.manager.Drop(cachetest.Pods, errRedefinition)
	k.same(k.open())
	k.stop()
}

// unread is a disk on which reading a checkpoint hangs while hangs is open.
type unread struct {
	vfs.FS
	hangs chan struct{}
}

type unreadFile struct {
	vfs.File
	hangs chan struct{}
}

func (u unread) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.Open(name, opts...)
	if err == nil && strings.HasSuffix(name, ".image") {
		f = unreadFile{f, u.hangs}
	}
	return f, err
}

func (f unreadFile) Read(p []byte) (int, error) {
	<-f.hangs
	return f.File.Read(p)
}

// TestHangingReadDelaysFirstCollectionsOnly checks that a disk that hangs while it is read delays
// the first collections by some seconds and others not at all, and that they are saved again once
// it responds.
func TestHangingReadDelaysFirstCollectionsOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		nodes := cachetest.NodeResource()
		k.source = cachetest.New(k.res, nodes)
		k.source.Create(cachetest.Pods, cachetest.Pod("default/one", ""))
		open := func(res *source.Resource, timeout time.Duration) {
			t.Helper()
			began := time.Now()
			cachetest.Collection(t, k.manager, res, api.JSON)
			if took := time.Since(began); took > timeout {
				t.Errorf("%s took %s", res.Resource, took)
			}
		}
		k.start()
		open(k.res, time.Second)
		open(nodes, time.Second)
		k.stop()
		hangs := make(chan struct{})
		k.fs = func(fs vfs.FS) vfs.FS { return unread{fs, hangs} }
		k.start()
		open(k.res, 11*time.Second)
		open(nodes, time.Second)
		k.same(k.open())
		if lines := strings.Count(k.log.String(), "the disk does not respond"); lines != 2 {
			t.Errorf("%d lines: %s", lines, k.log.String())
		}
		close(hangs)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		k.change()
		k.stop()
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.same(k.open())
		if calls := k.calls(); strings.Contains(calls, "initial=true") {
			t.Errorf("relisted: %s", calls)
		}
	})
}

// TestRecreatedCollectionIsSavedAfterHangingRead checks that a collection recreated while its
// checkpoint is still being read, from a hanging disk, is saved once the disk responds.
func TestRecreatedCollectionIsSavedAfterHangingRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.start()
		k.open()
		k.stop()
		hangs := make(chan struct{})
		k.fs = func(fs vfs.FS) vfs.FS { return unread{fs, hangs} }
		k.start()
		k.manager.Start(k.res, api.JSON)
		time.Sleep(time.Second)
		k.manager.Drop(cachetest.Pods, errRedefinition)
		k.open()
		close(hangs)
		k.change()
		time.Sleep(2 * time.Minute) // long enough for bookmarks
		synctest.Wait()
		k.stop()
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.same(k.open())
		if calls := k.calls(); !strings.Contains(calls, fmt.Sprintf("watch pods rv=%d ", k.source.Revision())) {
			t.Errorf("the last state was not saved: %s", calls)
		}
	})
}

// TestHistoryOfLoadedCollectionIsExtended resumes a watch at a version before the checkpoint.
func TestHistoryOfLoadedCollectionIsExtended(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		from := k.source.Revision()
		k.change()
		k.start()
		k.open()
		k.stop()
		k.change()
		k.start()
		defer func() { k.stop() }()
		c := k.open()
		synctest.Wait()
		if calls := k.calls(); strings.Count(calls, "initial=true") != 1 {
			t.Fatalf("not loaded: %s", calls)
		}
		if err := c.Backfill(t.Context(), from, nil); err != nil {
			t.Fatal(err)
		}
		w, err := c.Mux().Watch(from, nil, func() {})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		var want []string
		for _, change := range k.source.History(cachetest.Pods) {
			if change.RV > from {
				want = append(want, fmt.Sprintf("%s %s@%d", change.Type, change.Key, change.RV))
			}
		}
		if got := cachetest.Deliveries(w); got != strings.Join(want, " ") {
			t.Errorf("%s\nwant %v", got, want)
		}
	})
}
