package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// The changes correspond to ten seconds of a real cluster: each kubelet reports its node's status
// every five minutes if nothing happens, and one pod of a thousand is replaced.
const (
	uplinkNodes = 500
	nodesOf     = 30
	podsOf      = 1000
)

// uplinkStart measures a row of kind UplinkStart: a gateway with saved state starts behind a slow
// link after pods and nodes have changed. It measures until a client has a list of all pods; a note
// says when pods and nodes were current.
func (m *measurer) uplinkStart(ctx context.Context, r *Row) (*measured, error) {
	nodes := uplinkNodes
	if m.effort.objects < r.Objects {
		nodes = uplinkNodes / 10
	}
	client, err := seedClient(m.bed.cluster.AdminConfig(), "kubelet")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bench=uplink"})
	}()
	if err := seedUplinkNodes(ctx, client, nodes); err != nil {
		return nil, err
	}
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	if _, _, err := fetch(ctx, s.server, requestSpec{path: "/api/v1/nodes?resourceVersion=0"}); err != nil {
		return nil, err
	}
	if err := s.process.Stop(ctx); err != nil {
		return nil, err
	}
	s.process.Close()
	for i := range max(1, s.upstream.pods/podsOf) {
		s.upstream.update(i * 7 % s.upstream.pods)
	}
	for i := range max(1, nodes/nodesOf) {
		if err := reportNode(ctx, client, i, "changed"); err != nil {
			return nil, err
		}
	}
	return m.behind(ctx, s, r.Uplink)
}

// writeKey makes a key that encrypts the state, so that authentication and authorization decisions
// are saved, too.
func writeKey() (string, error) {
	f, err := os.CreateTemp("", "kubeweir-bench-key-")
	if err != nil {
		return "", err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	_, err = f.Write(key)
	return f.Name(), errors.Join(err, f.Close())
}

// behind starts a gateway with saved state behind a slow link and measures until it serves a list
// of all pods.
func (m *measurer) behind(ctx context.Context, s *scaled, rate int) (*measured, error) {
	if err := s.link.Set(link.Condition{Rate: rate / 8}); err != nil {
		return nil, err
	}
	out := &measured{raw: s.upstream.rawBytes()}
	var ready time.Duration
	var marked bool
	before := s.link.Carried()
	begin := time.Now()
	if err := out.kubeweir.timed(func() error {
		gw, err := m.bed.startGatewayWith(ctx, realkube.GatewayOptions{Path: m.bed.binary, Upstream: s.link.URL(),
			ExtraArgs: []string{"--state-dir", s.state, "--state-key-file", s.key, "--offline=allow"}})
		if err != nil {
			return err
		}
		s.gateway, m.current.kubeweir = gw, gw
		ready = time.Since(begin)
		marked, err = s.firstRead(ctx, allPods)
		return err
	}); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.process.Log())
	}
	first := s.link.Carried() - before
	out.notes = append(out.notes, fmt.Sprintf("ready after %s; the list is marked as stale: %t; %d KB have come over the link by then, of %.0f MB of pods",
		ready.Round(10*time.Millisecond), marked, first/1000, mega(out.raw)))
	current, err := s.untilCurrent(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.process.Log())
	}
	out.notes = append(out.notes, fmt.Sprintf("current %s after the start: %s; %d KB have come over the link by then",
		time.Since(begin).Round(100*time.Millisecond), current, (s.link.Carried()-before)/1000))
	return out, nil
}

// uplinkTime bounds the wait until pods and nodes are current.
const uplinkTime = 3 * time.Minute

// untilCurrent lists pods and nodes until neither response is marked stale, and notes when each
// became current.
func (s *scaled) untilCurrent(ctx context.Context) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, uplinkTime)
	defer cancel()
	begin := time.Now()
	var when []string
	for _, resource := range []string{"nodes", "pods"} {
		path := "/api/v1/" + resource + "?resourceVersion=0&fieldSelector=metadata.name%3Dnone"
		for {
			marked, err := s.firstRead(ctx, path)
			if err == nil && !marked {
				break
			}
			if sleep(ctx, 100*time.Millisecond) != nil {
				return "", fmt.Errorf("%s are not current after %s: %w", resource, uplinkTime, errors.Join(err, ctx.Err()))
			}
		}
		when = append(when, fmt.Sprintf("%s %s later", resource, time.Since(begin).Round(100*time.Millisecond)))
	}
	return strings.Join(when, ", "), nil
}

// firstRead repeats the list until it succeeds, and reports whether the response is marked stale.
func (s *scaled) firstRead(ctx context.Context, path string) (marked bool, err error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls}}
	defer client.CloseIdleConnections()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.process.URL()+path, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return slices.ContainsFunc(resp.Header.Values("Warning"), func(w string) bool { return strings.HasPrefix(w, "110 ") }), nil
			}
			err = errors.New(resp.Status)
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return false, fmt.Errorf("no list at %s: %w", path, err)
		}
	}
}

func uplinkNode(i int) string { return fmt.Sprintf("uplink-%03d", i) }

// seedUplinkNodes creates nodes as kubelets register them, with their images.
func seedUplinkNodes(ctx context.Context, client *kubernetes.Clientset, n int) error {
	var wg sync.WaitGroup
	errs := make([]error, seedWorkers)
	for w := range errs {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += seedWorkers {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: uplinkNode(i), Labels: map[string]string{
					"bench": "uplink", "kubernetes.io/hostname": uplinkNode(i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
					"topology.kubernetes.io/region": "eu-north-1", "topology.kubernetes.io/zone": fmt.Sprintf("eu-north-1%c", 'a'+i%3),
				}}}
				if _, errs[w] = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); errs[w] == nil {
					errs[w] = reportNode(ctx, client, i, "registered")
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reportNode writes a node's status as its kubelet does.
func reportNode(ctx context.Context, client *kubernetes.Clientset, i int, message string) error {
	amount := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("200Gi"),
	}
	status := corev1.NodeStatus{Capacity: amount, Allocatable: amount, NodeInfo: corev1.NodeSystemInfo{
		KernelVersion: "6.12.0", OSImage: "Debian GNU/Linux 13", ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.37.0", OperatingSystem: "linux", Architecture: "arm64",
	}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Kubelet", Message: message,
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()})
	}
	for k := range 20 {
		name := fmt.Sprintf("registry.example.com/platform/service-%d", k)
		status.Images = append(status.Images, corev1.ContainerImage{SizeBytes: 100_000_000 + int64(k),
			Names: []string{fmt.Sprintf("%s@sha256:%064x", name, k*2654435761), name + ":v1.2.3"}})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	if _, err = client.CoreV1().Nodes().Patch(ctx, uplinkNode(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of node %d: %w", i, err)
	}
	return nil
}
