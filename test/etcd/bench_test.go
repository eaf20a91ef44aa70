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

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// BenchmarkPut durably creates keys with values of 6 KB, in the embedded engine and in an etcd on
// the same disk. The CPU time is the sum of all processes involved.
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

// cpu returns the CPU time that the processes have used, to a hundredth of a second.
func cpu(b *testing.B, pids []int) time.Duration {
	b.Helper()
	var ticks int64
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		// utime and stime are fields 14 and 15 (proc(5)). Count after the last parenthesis, because the
		// process name may contain spaces.
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

// BenchmarkRange reads 150,000 keys with values of 2 KB, as kubeweir does at its start: by one
// RangeStream (KEP-5966), and in pages, as from older servers. The CPU time is that of etcd and
// this process.
func BenchmarkRange(b *testing.B) {
	const keys, batch = 150_000, 100
	c, err := realkube.Start(b.Context(), realkube.Options{EtcdOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	value := strings.Repeat(`{"metadata":{"name"}`, 100)
	for i := 0; i < keys; i += batch {
		var puts []clientv3.Op
		for j := range batch {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/registry/pods/default/bench-%08d", i+j), value))
		}
		if _, err := client.Txn(b.Context()).Then(puts...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	e, err := etcd.Open(b.Context(), etcd.Options{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for name, limit := range map[string]int64{"stream": 0, "pages": keys} { // a range with a limit is read in pages
		b.Run(name, func(b *testing.B) {
			pids := []int{os.Getpid(), c.EtcdPID()}
			before := cpu(b, pids)
			for b.Loop() {
				res, err := e.Range(b.Context(), storage.RangeOptions{Prefix: "/registry/pods/", Limit: limit})
				if err != nil || len(res.KVs) != keys {
					b.Fatalf("%d keys, %v", len(res.KVs), err)
				}
			}
			b.ReportMetric(float64(cpu(b, pids)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}
