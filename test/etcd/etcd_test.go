package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

func start(t *testing.T, opts realkube.Options) *realkube.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	c, err := realkube.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// plainClient returns etcd's own client, for operations that the engine does not have.
func plainClient(t *testing.T, c *realkube.Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func closing(t *testing.T, e storage.Engine) {
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAuth uses etcd's own users. A restart of etcd invalidates their tokens.
func TestAuth(t *testing.T) {
	c := start(t, realkube.Options{EtcdOnly: true})
	admin := plainClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, step := range []func() error{
		func() error { _, err := admin.RoleAdd(ctx, "root"); return err },
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "kube"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "kube", "/registry/", clientv3.GetPrefixRangeEnd("/registry/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "kube", "compact_rev_key", "", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserAdd(ctx, "kubeweir", "password"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "kubeweir", "kube"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	opts := etcd.Options{Endpoints: []string{c.EtcdURL()}, CompactionInterval: -1, DialTimeout: 5 * time.Second}
	for name, change := range map[string]func(*etcd.Options){
		"nobody":         func(*etcd.Options) {},
		"wrong password": func(o *etcd.Options) { o.Username, o.Password = "kubeweir", "guess" },
	} {
		o := opts
		change(&o)
		e, err := etcd.Open(ctx, o)
		if err == nil {
			_ = e.Close()
		}
		if err == nil || errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: Open returned %v", name, err)
		}
	}
	opts.Username, opts.Password = "kubeweir", "password"
	e, err := etcd.Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, e)
	rev, err := e.Put(ctx, "/registry/a", []byte("v"), storage.Precondition{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Put(ctx, "/elsewhere", nil, storage.Precondition{}, 0); err == nil || errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("put without permission: %v", err)
	}
	denied, err := e.Watch(ctx, storage.WatchOptions{Prefix: "/elsewhere/", After: rev})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := denied.Next(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("watch without permission: %v", err)
	}
	denied.Close()
	w, err := e.Watch(ctx, storage.WatchOptions{Prefix: "/registry/", After: rev})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 2 {
		rev = update(t, ctx, e, "/registry/a", rev)
		awaitEvent(t, ctx, w, rev)
		killAndStart(t, c)
	}
}

// update retries the write of a key until it succeeds.
func update(t *testing.T, ctx context.Context, e storage.Engine, key string, rev uint64) uint64 {
	t.Helper()
	for {
		now, err := e.Put(ctx, key, fmt.Append(nil, rev), storage.Precondition{Revision: rev}, 0)
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			return now
		case errors.As(err, &conflict) && conflict.Current != nil:
			rev = conflict.Current.Revision
		case ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

func awaitEvent(t *testing.T, ctx context.Context, w storage.Watcher, rev uint64) {
	t.Helper()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range b.Events {
			if ev.KV.Revision == rev {
				return
			}
		}
	}
}

// TestCompactionIsShared checks that two engines and a kube-apiserver on one etcd together compact
// it as often as one of them alone.
func TestCompactionIsShared(t *testing.T) {
	const interval = time.Second
	c := start(t, realkube.Options{ExtraArgs: []string{"--etcd-compaction-interval=" + interval.String()}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var engines []storage.Engine
	for range 2 {
		e, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{c.EtcdURL()}, CompactionInterval: interval})
		if err != nil {
			t.Fatal(err)
		}
		closing(t, e)
		engines = append(engines, e)
	}
	old, err := engines[0].Put(ctx, "/registry/kubeweir-test/a", []byte("v"), storage.Precondition{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := engines[1].Watch(ctx, storage.WatchOptions{Prefix: "/registry/kubeweir-test/", After: old})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	const rounds = 6
	began := time.Now()
	var versions, values []int64
	for resp := range plainClient(t, c).Watch(ctx, "compact_rev_key") {
		for _, ev := range resp.Events {
			value, err := strconv.ParseInt(string(ev.Kv.Value), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			versions, values = append(versions, ev.Kv.Version), append(values, value)
			// Compaction only progresses if the revision does. A watch that keeps up must not be affected.
			rev := update(t, ctx, engines[len(values)%2], "/registry/kubeweir-test/a", old)
			awaitEvent(t, ctx, w, rev)
		}
		if len(values) >= rounds {
			break
		}
	}
	// The first compaction can come at any time, each of the others an interval after the previous
	// one.
	if took := time.Since(began); took < (rounds-2)*interval {
		t.Errorf("%d compactions in %v, the interval is %v", rounds, took, interval)
	}
	for i := 1; i < len(values); i++ {
		if versions[i] != versions[i-1]+1 || values[i] < values[i-1] {
			t.Errorf("received versions %v, compacted revisions %v", versions, values)
		}
	}
	if values[len(values)-1] <= int64(old) {
		t.Fatalf("compacted at %v, want beyond %d", values, old)
	}
	for _, e := range engines {
		if _, err := e.Range(ctx, storage.RangeOptions{Prefix: "/registry/", Revision: old - 1}); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("range at %d: %v, want ErrCompacted", old-1, err)
		}
	}
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("kube-apiserver: %v", err)
	}
}

// TestSlowWatcherIsBounded checks that events which a watcher does not read stay in etcd, instead
// of in memory, and are delivered later.
func TestSlowWatcherIsBounded(t *testing.T) {
	const size, changes, most = 1 << 20, 96, 24 << 20
	e := openEngine(t, shared)
	closing(t, e)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	after, err := e.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.Watch(ctx, storage.WatchOptions{Prefix: "/registry/slow/", After: after})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	value := bytes.Repeat([]byte("x"), size)
	before := heap()
	var revs []uint64
	for i := range changes {
		expect := uint64(0)
		if i > 0 {
			expect = revs[i-1]
		}
		rev, err := e.Put(ctx, "/registry/slow/a", value, storage.Precondition{Revision: expect}, 0)
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, rev)
	}
	grown := heap() - before
	t.Logf("%d MiB of events occupy %d KiB of memory", changes*2, grown>>10)
	if grown > most {
		t.Errorf("%d MiB of unread events occupy %d MiB of memory", changes*2, grown>>20)
	}
	for len(revs) > 0 {
		b, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range b.Events {
			if ev.KV.Revision != revs[0] || len(ev.KV.Value) != size {
				t.Fatalf("event of %d with %d bytes, want %d", ev.KV.Revision, len(ev.KV.Value), revs[0])
			}
			revs = revs[1:]
		}
	}
}

// heap returns the size of the heap after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
