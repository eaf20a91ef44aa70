package embedded

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// object is as large and about as hard to compress as a small Pod in protobuf: words, and names and
// numbers of its own.
func object() []byte {
	words := strings.Fields("metadata spec containers image imagePullPolicy IfNotPresent ports containerPort protocol TCP resources limits cpu memory requests volumeMounts mountPath /var/run/secrets/kubernetes.io/serviceaccount terminationMessagePath /dev/termination-log livenessProbe httpGet kube-root-ca.crt ownerReferences ReplicaSet managedFields kube-controller-manager f:spec f:containers f:terminationGracePeriodSeconds status conditions lastTransitionTime")
	var b strings.Builder
	for b.Len() < 3000 {
		if rand.IntN(4) == 0 {
			fmt.Fprintf(&b, "%x", rand.Uint64())
		}
		b.WriteString(words[rand.IntN(len(words))])
	}
	return []byte(b.String()[:3000])
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPut creates keys with a synced write each, as many at a time as there are clients.
func BenchmarkPut(b *testing.B) {
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			e := openAt(b, Options{Dir: b.TempDir()})
			defer e.Close()
			value := object()
			var n atomic.Int64
			b.ResetTimer()
			start := cpuTime()
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						key := fmt.Sprintf("/registry/pods/default/bench-%08d", i)
						if _, err := e.Put(context.Background(), key, value, storage.Precondition{}, 0); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(cpuTime()-start)/float64(b.N)/1e3, "cpu-us/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

func fill(b *testing.B, e *Engine, n int) {
	value := object()
	var wg sync.WaitGroup
	var next atomic.Int64
	order := rand.Perm(n)
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				key := fmt.Sprintf("/registry/pods/ns-%02d/pod-%06d", order[i]%20, order[i])
				if _, err := e.Put(context.Background(), key, value, storage.Precondition{}, 0); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkRange(b *testing.B) {
	e := openAt(b, Options{Dir: b.TempDir()})
	defer e.Close()
	fill(b, e, 5000)
	e.mu.RLock()
	old := e.mu.revision - 1
	e.mu.RUnlock()
	for _, bc := range []struct {
		name string
		opts storage.RangeOptions
	}{
		{"exact", storage.RangeOptions{Prefix: "/registry/pods/ns-07/pod-001007", Exact: true}},
		{"all=5000", storage.RangeOptions{Prefix: "/registry/pods/"}},
		{"old=5000", storage.RangeOptions{Prefix: "/registry/pods/", Revision: old}},
		{"page=500", storage.RangeOptions{Prefix: "/registry/pods/", Limit: 500, Count: true}},
		{"namespace=250", storage.RangeOptions{Prefix: "/registry/pods/ns-07/"}},
		{"count", storage.RangeOptions{Prefix: "/registry/pods/", Limit: 1, KeysOnly: true, Count: true}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Range(context.Background(), bc.opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatch is the time from a change to its arrival at the one of 100 watchers that it
// concerns, without that of the disk.
func BenchmarkWatch(b *testing.B) {
	e := openAt(b, memory())
	defer e.Close()
	ctx := context.Background()
	const n = 100
	arrived := make(chan uint64, 1)
	var wg sync.WaitGroup
	for i := range n {
		w, err := e.Watch(ctx, storage.WatchOptions{Prefix: fmt.Sprintf("/registry/resource-%02d/", i), After: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		wg.Go(func() {
			for {
				batch, err := w.Next(ctx)
				if err != nil {
					return
				}
				arrived <- batch.Revision
			}
		})
	}
	value := bytes.Clone(object())
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		key := fmt.Sprintf("/registry/resource-%02d/ns/name-%d", i%n, i)
		i++
		rev, err := e.Put(ctx, key, value, storage.Precondition{}, 0)
		if err != nil {
			b.Fatal(err)
		}
		if got := <-arrived; got < rev {
			b.Fatalf("revision %d, want %d", got, rev)
		}
	}
	_ = e.Close()
	wg.Wait()
}

// BenchmarkOpen opens a store of 10,000 objects, as it was left by a crash and again after that.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	e := openAt(b, Options{Dir: dir})
	fill(b, e, 10000)
	_ = e.Close()
	for b.Loop() {
		e := openAt(b, Options{Dir: dir})
		b.StopTimer()
		_ = e.Close()
		b.StartTimer()
	}
}
