// Command clusters measures several clusters in one gateway: memory and processor time beside one
// gateway per cluster or, with -disturbed, reads of the other clusters while one is down and one is
// slow.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/test/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o bench.ClustersOptions
	flag.StringVar(&o.Binary, "gateway", "bin/kubeweir", "`path` of the kubeweir program")
	flag.IntVar(&o.Clusters, "clusters", 20, "`number` of clusters")
	flag.IntVar(&o.Objects, "objects", 200, "`number` of ConfigMaps of 2 KB in each")
	flag.IntVar(&o.Watchers, "watchers", 5, "`number` of clients that list and watch them, each by a connection of its own")
	flag.IntVar(&o.WritesPerSecond, "writes", 5, "`number` of writes a second in each")
	flag.IntVar(&o.ReadsPerSecond, "reads", 20, "`number` of reads a second of each, with -disturbed")
	flag.DurationVar(&o.For, "for", 20*time.Second, "`time` to write, or to read, for")
	disturbed := flag.Bool("disturbed", false, "measure reads while two of the clusters are well, and are not")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(devNull{})
	dir, err := os.MkdirTemp("", "clusters")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	if *disturbed {
		return showDisturbed(ctx, o)
	}
	one, each, err := bench.MeasureClusters(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d clusters of %d objects, %d watchers and %d writes/s each, for %v\n\n", o.Clusters, o.Objects, o.Watchers, o.WritesPerSecond, o.For)
	fmt.Printf("%-24s %9s %14s %14s %10s %10s\n", "", "processes", "memory, idle", "memory, used", "CPU", "events/s")
	for _, row := range []struct {
		name string
		cost bench.ClustersCost
	}{{"one gateway", one}, {"a gateway for each", each}} {
		c := row.cost
		fmt.Printf("%-24s %9d %10.1f MiB %10.1f MiB %10v %10.0f\n", row.name, c.Processes, float64(c.Idle)/(1<<20), float64(c.Resident)/(1<<20), c.CPU, c.PerSecond)
	}
	return nil
}

func showDisturbed(ctx context.Context, o bench.ClustersOptions) error {
	all, err := bench.MeasureDisturbed(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d clusters in one gateway, each read %d times a second for %v: the %d others\n\n", o.Clusters, o.ReadsPerSecond, o.For, o.Clusters-2)
	fmt.Printf("%-26s %-8s %7s %7s %9s %9s %9s %11s %10s\n", "", "reads", "good", "failed", "p50", "p99", "max", "memory", "CPU")
	for _, d := range all {
		for i, l := range []bench.ReadLatency{d.Cached, d.Strict} {
			state, kind, cost := d.State, "cached", fmt.Sprintf("%7.1f MiB %10v", float64(d.Resident)/(1<<20), d.CPU)
			if i == 1 {
				state, kind, cost = "", "strict", ""
			}
			fmt.Printf("%-26s %-8s %7d %7d %9v %9v %9v %s\n", state, kind, l.Reads, l.Failed,
				l.P50.Round(time.Microsecond), l.P99.Round(time.Microsecond), l.Max.Round(time.Microsecond), cost)
		}
	}
	return nil
}

// devNull drops the log output of the Kubernetes libraries.
type devNull struct{}

func (devNull) Write(p []byte) (int, error) { return len(p), nil }
