package etcd

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// BenchmarkPut creates keys of 6 KB, durably, in the engine of this process and in an etcd on the same disk. The CPU
// time is that of all processes that take part.
func BenchmarkPut(b *testing.B) {
	value := make([]byte, 6<<10)
	for i := range value {
		value[i] = "{\"metadata\":{\"name\":"[i%20]
	}
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("embedded/clients=%d", clients), func(b *testing.B) {
			e, err := embedded.Open(embedded.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			put(b, e, value, clients, os.Getpid())
		})
		b.Run(fmt.Sprintf("etcd/clients=%d", clients), func(b *testing.B) {
			c, err := realkube.Start(b.Context(), realkube.Options{EtcdOnly: true, Fsync: true})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			e, err := etcd.Open(b.Context(), etcd.Options{Endpoints: []string{c.EtcdURL()}})
			if err != nil {
				b.Fatal(err)
			}
			put(b, e, value, clients, os.Getpid(), c.EtcdPID())
		})
	}
}

func put(b *testing.B, e storage.Engine, value []byte, clients int, pids ...int) {
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	before := cpu(b, pids)
	for range clients {
		wg.Go(func() {
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				if _, err := e.Put(context.Background(), fmt.Sprintf("/registry/pods/default/bench-%08d", i), value, storage.Precondition{}, 0); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(cpu(b, pids)-before)/float64(b.N)/1e3, "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}

// cpu is the time that processes have used, to a hundredth of a second.
func cpu(b *testing.B, pids []int) time.Duration {
	b.Helper()
	var ticks int64
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		// Fields 14 and 15, counted behind the name, which may hold anything (proc(5)).
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, f := range fields[11:13] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100
}
