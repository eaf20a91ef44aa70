package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// ClustersOptions configure the comparison of one gateway for several clusters with one gateway per
// cluster.
type ClustersOptions struct {
	Clusters, Objects, Watchers int
	WritesPerSecond             int // in each cluster
	ReadsPerSecond              int // of each cluster, for MeasureDisturbed
	For                         time.Duration
	Binary, Dir                 string
}

// ClustersCost is the total cost of the gateways in one arrangement.
type ClustersCost struct {
	Processes int
	Idle      int64 // resident bytes before any client connected
	Resident  int64 // resident bytes under load
	CPU       time.Duration
	Events    int64 // delivered to clients
	PerSecond float64
}

// A lab is one of the clusters: a standalone kubeweir in this process.
type lab struct {
	*app.Standalone
	name, kubeconfig, ca string
	client               *kubernetes.Clientset
}

// MeasureClusters starts the clusters and measures one gateway for all of them, then one gateway
// per cluster.
func MeasureClusters(ctx context.Context, o ClustersOptions) (one, each ClustersCost, err error) {
	labs, stop, err := startLabs(ctx, o)
	defer stop()
	if err != nil {
		return one, each, err
	}
	if one, err = measureArrangement(ctx, o, [][]*lab{labs}); err != nil {
		return one, each, err
	}
	var alone [][]*lab
	for _, l := range labs {
		alone = append(alone, []*lab{l})
	}
	each, err = measureArrangement(ctx, o, alone)
	return one, each, err
}

// startLabs starts the clusters. The caller must call stop even after an error.
func startLabs(ctx context.Context, o ClustersOptions) (labs []*lab, stop func(), err error) {
	stop = func() {
		for _, l := range labs {
			l.Cut()
			l.Close()
		}
	}
	for i := range o.Clusters {
		l, err := startLab(ctx, fmt.Sprintf("c%02d", i), o)
		if err != nil {
			return labs, stop, err
		}
		labs = append(labs, l)
	}
	return labs, stop, nil
}

func startLab(ctx context.Context, name string, o ClustersOptions) (*lab, error) {
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen, c.Admission.DisablePlugins = "127.0.0.1:0", "", []string{"ServiceAccount"}
	s, err := app.NewStandalone(ctx, c, app.StandaloneOptions{NoDataDir: true, UserAgent: "bench", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	l := &lab{Standalone: s, name: name, kubeconfig: filepath.Join(o.Dir, name+".kubeconfig"), ca: filepath.Join(o.Dir, name+".crt")}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(s.Material().WriteKubeconfig(l.kubeconfig, s.URL()), os.WriteFile(l.ca, s.Material().CA.CertPEM, 0o600)); err != nil {
		return nil, err
	}
	cfg := s.RESTConfig()
	cfg.QPS = -1
	if l.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	for i := range o.Objects {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", i)}, Data: map[string]string{"text": strings.Repeat("x", 2000)}}
		if _, err := l.client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// An edgeProcess is a gateway of some of the clusters.
type edgeProcess struct {
	cmd *exec.Cmd
	url string
}

// startEdge runs a gateway, for several clusters if all is set, otherwise for the first one.
func startEdge(ctx context.Context, o ClustersOptions, labs []*lab) (*edgeProcess, error) {
	dir, err := os.MkdirTemp(o.Dir, "gateway")
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "listen: 127.0.0.1:0\nadminListen: \"\"\ncertDir: %s\nclusters:\n", dir)
	for _, l := range labs {
		fmt.Fprintf(&text, "- {name: %s, kubeconfig: %s, authentication: {clientCAFile: %s}}\n", l.name, l.kubeconfig, l.ca)
	}
	args := []string{"gateway", "--config", filepath.Join(dir, "gateway.yaml")}
	if len(labs) == 1 && o.Clusters > 1 {
		l := labs[0]
		text.Reset()
		fmt.Fprintf(&text, "listen: 127.0.0.1:0\nadminListen: \"\"\ncertDir: %s\nkubeconfig: %s\nauthentication: {clientCAFile: %s}\n", dir, l.kubeconfig, l.ca)
	}
	if err := os.WriteFile(args[2], []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	p := &edgeProcess{cmd: exec.CommandContext(ctx, o.Binary, args...)}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	in := bufio.NewScanner(stderr)
	for in.Scan() {
		if url, ready := strings.CutPrefix(in.Text(), "kubeweir: ready on "); ready {
			p.url = url
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // until the process ends
			return p, nil
		}
	}
	return nil, errors.Join(errors.New("the gateway ended"), p.cmd.Wait())
}

// stop ends the gateway.
func (p *edgeProcess) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// measureArrangement starts a gateway for each group and puts the same load on all clusters.
func measureArrangement(ctx context.Context, o ClustersOptions, groups [][]*lab) (cost ClustersCost, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var edges []*edgeProcess
	defer func() {
		for _, e := range edges {
			_ = e.cmd.Process.Signal(syscall.SIGTERM)
		}
		cancel()
		for _, e := range edges {
			_ = e.cmd.Wait()
		}
	}()
	urls := make(map[*lab]string)
	for _, group := range groups {
		e, err := startEdge(ctx, o, group)
		if err != nil {
			return cost, err
		}
		edges = append(edges, e)
		for _, l := range group {
			if urls[l] = e.url; len(group) > 1 {
				urls[l] += "/clusters/" + l.name
			}
		}
	}
	cost.Processes = len(edges)
	if cost.Idle, err = residentOf(edges); err != nil {
		return cost, err
	}
	var events atomic.Int64
	var running sync.WaitGroup
	for l, url := range urls {
		for range o.Watchers {
			if err := watchConfigMaps(ctx, l, url, &running, &events); err != nil {
				return cost, err
			}
		}
	}
	before, err := realkube.CPUTime(pidsOf(edges)...)
	if err != nil {
		return cost, err
	}
	had := events.Load()
	if err := writeAll(ctx, o, urls); err != nil {
		return cost, err
	}
	after, err := realkube.CPUTime(pidsOf(edges)...)
	if err != nil {
		return cost, err
	}
	cost.CPU, cost.Events = after-before, events.Load()-had
	cost.PerSecond = float64(cost.Events) / o.For.Seconds()
	cost.Resident, err = residentOf(edges)
	cancel()
	running.Wait()
	return cost, err
}

// watchConfigMaps lists ConfigMaps and then watches them from resourceVersion 0, with a client of its
// own, until ctx ends.
func watchConfigMaps(ctx context.Context, l *lab, url string, running *sync.WaitGroup, events *atomic.Int64) error {
	cfg := l.RESTConfig()
	cfg.Host, cfg.TLSClientConfig.CAData, cfg.TLSClientConfig.Insecure = url, nil, true
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, "bench"))
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		return err
	}
	w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	running.Go(func() {
		for range w.ResultChan() {
			events.Add(1)
		}
	})
	return nil
}

// writeAll updates objects of all clusters, directly in the clusters.
func writeAll(ctx context.Context, o ClustersOptions, urls map[*lab]string) error {
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	var running sync.WaitGroup
	var failed atomic.Pointer[error]
	for l := range urls {
		running.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(o.WritesPerSecond))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", i%o.Objects)}, Data: map[string]string{"text": strings.Repeat("y", 2000), "i": time.Now().String()}}
				if _, err := l.client.CoreV1().ConfigMaps("default").Update(ctx, object, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func pidsOf(edges []*edgeProcess) (pids []int) {
	for _, e := range edges {
		pids = append(pids, e.cmd.Process.Pid)
	}
	return pids
}

func residentOf(edges []*edgeProcess) (sum int64, err error) {
	for _, pid := range pidsOf(edges) {
		now, _, err := residentMemory(pid)
		if err != nil {
			return 0, err
		}
		sum += now
	}
	return sum, nil
}
