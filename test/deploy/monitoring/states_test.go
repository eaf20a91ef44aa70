package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// TestFullDisk fills the disk of a standalone's store and follows the runbooks.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := newDisk(t, dir)
	mount(t, disk, "-t", "tmpfs", "-o", "size=1g", "kubeweir-monitoring")
	resize := func(bytes int64) { system(t, "mount", "-o", fmt.Sprintf("remount,size=%d", bytes), disk) }
	s := newScene(t, realkube.StandaloneOptions{Dir: dir})
	defer s.judge()
	config := s.create("settings", 1<<10)
	s.reads() // an object that nobody has read is not in the cache
	for i := range 10 {
		s.event(fmt.Sprint("event-", i))
	}
	s.sample(3)
	s.expect(nothing)

	resize(200 << 20)
	s.until("little room", func(m realkube.Metrics) bool { return value(m, "kubeweir_store_disk_free_bytes") < 200<<20 })
	s.sample(3)
	s.expect("KubeweirStoreDiskFilling")
	s.follow("KubeweirStoreDiskFilling")

	// A tmpfs cannot be made smaller than its contents.
	resize(used(t, disk) + 4<<20)
	if status, text := s.fill(); status != http.StatusServiceUnavailable || !strings.Contains(text, "it has no room") {
		t.Errorf("a creation on a full disk: %d %s", status, text)
	}
	s.sample(3)
	s.expect("KubeweirStoreDiskFilling", "KubeweirStoreReserveSpent", "KubeweirStoreUnavailable")
	s.logged("Store has used up its disk and accepts deletions only")
	s.follow("KubeweirStoreReserveSpent")
	s.update(config)
	s.kubectl("kubectl delete events --all --all-namespaces")

	// Another program uses the space that the reserve freed.
	filler := filepath.Join(disk, "filler")
	system(t, "sh", "-c", "cat /dev/zero > "+filler+" 2> /dev/null; test -s "+filler)
	status, text, version := 0, "", s.version(config, "")
	for range 100 { // the store's log has some free space
		if status, text = s.send("PUT", config, 500<<10); status != http.StatusOK {
			break
		}
		version = s.version(config, "")
	}
	// A write of the store itself or of the origin may detect the full disk first; then this write
	// is rejected and not made.
	foundOut := status == http.StatusGatewayTimeout && strings.Contains(text, "whether the change was made is not known")
	rejected := status == http.StatusServiceUnavailable && strings.Contains(text, "cannot be written now (no space left on device)")
	if !foundOut && !rejected {
		t.Errorf("the first failed write: %d %s", status, text)
	}
	if now := s.version(config, "0"); rejected && now != version {
		t.Errorf("a rejected write was made: version %s, was %s", now, version)
	}
	s.sample(3)
	s.expect("KubeweirStoreDiskFilling", "KubeweirStoreReserveSpent", "KubeweirStoreUnavailable")
	s.logged("Store waits for room on its disk")
	s.follow("KubeweirStoreUnavailable")
	if status, text := s.send("DELETE", config, 0); status != http.StatusServiceUnavailable {
		t.Errorf("a deletion: %d %s", status, text)
	}
	s.reads()

	resize(1 << 30)
	s.until("room again", func(m realkube.Metrics) bool {
		return value(m, "kubeweir_store_available") == 1 && value(m, "kubeweir_store_reserve_spent") == 0
	})
	s.create("again", 1<<10)
	s.sample(3)
	s.expect(nothing)
}

// TestStalledDisk makes the disk of a standalone's store hang, and then respond slowly.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mkfs := testbed.Installed(t, "mkfs.ext4", "e2fsprogs")
	image, disk := filepath.Join(dir, "image"), newDisk(t, dir)
	system(t, "truncate", "-s", "1G", image)
	system(t, mkfs, "-q", "-F", image)
	mount(t, disk, "-o", "loop", image)
	s := newScene(t, realkube.StandaloneOptions{Dir: dir})
	defer s.judge()
	t.Cleanup(func() { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() }) // before the process is killed
	s.create("settings", 1<<10)
	s.reads() // an object that nobody has read is not in the cache
	s.sampleIdle(3)
	s.expect(nothing)

	system(t, "fsfreeze", "--freeze", disk)
	log := s.p.Log()
	goesOn := s.waits("waits")
	s.sample(3)
	s.expect("KubeweirStoreUnavailable")
	if value(s.metrics(), "kubeweir_store_available") != 1 || strings.Contains(strings.TrimPrefix(s.p.Log(), log), "Store") {
		t.Errorf("the metrics or the log contradict the runbook: %s", s.p.Log())
	}
	s.reads()
	system(t, "fsfreeze", "--unfreeze", disk)
	goesOn()
	s.sampleIdle(3)
	s.expect(nothing)

	s.sample(1)
	for i := range 3 {
		system(t, "fsfreeze", "--freeze", disk)
		goesOn := s.waits(fmt.Sprint("slow-", i))
		testbed.Wait(t.Context(), slowDisk)
		system(t, "fsfreeze", "--unfreeze", disk)
		goesOn()
		s.sample(1)
	}
	s.expect("KubeweirStoreSlow")
	s.follow("KubeweirStoreSlow")
}

// slowDisk and slowEtcd are how long a slow disk, or a slow etcd, takes: longer than the alerts'
// thresholds.
const slowDisk, slowEtcd = 600 * time.Millisecond, 1200 * time.Millisecond

// TestEtcdFailures stops, kills and fills the etcd behind a standalone.
func TestEtcdFailures(t *testing.T) {
	t.Parallel()
	etcdctl := testbed.Installed(t, "etcdctl", "etcd-client")
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	cluster, err := realkube.Start(ctx, realkube.Options{EtcdOnly: true, EtcdArgs: []string{"--quota-backend-bytes=16777216"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	s := newScene(t, realkube.StandaloneOptions{Dir: t.TempDir(), Cluster: cluster, SharedStore: true})
	defer s.judge()
	s.env = append(s.env, "ETCDCTL_API=3", "ETCDCTL_ENDPOINTS="+cluster.EtcdURL(), "PATH="+filepath.Dir(etcdctl)+":"+path(s.env))
	config := s.create("settings", 1<<10)
	s.reads() // an object that nobody has read is not in the cache
	s.event("event")
	s.sample(3)
	s.expect(nothing)

	available := func(want float64) func(realkube.Metrics) bool {
		return func(m realkube.Metrics) bool { return value(m, "kubeweir_etcd_available") == want }
	}
	for name, trouble := range map[string][2]func() error{
		"stopped": {func() error { return realkube.Pause(cluster.EtcdPID()) }, func() error { return realkube.Resume(cluster.EtcdPID()) }},
		"killed":  {cluster.KillEtcd, func() error { return cluster.StartEtcd(ctx) }},
	} {
		if err := trouble[0](); err != nil {
			t.Fatal(name, err)
		}
		stop := s.knock(config) // so that there are requests
		s.until(name, available(0))
		s.sample(3)
		s.expect("KubeweirEtcdUnavailable")
		s.logged("etcd is unavailable")
		s.follow("KubeweirEtcdUnavailable")
		if status, text := s.send("POST", "not-made", 1); status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
			t.Errorf("%s: a write: %d %s", name, status, text)
		}
		s.reads()
		if err := trouble[1](); err != nil {
			t.Fatal(name, err)
		}
		s.until("available again", available(1))
		stop()
		s.update(config)
		s.sample(3)
		s.expect(nothing)
	}

	s.sample(1)
	for range 3 {
		if err := realkube.Pause(cluster.EtcdPID()); err != nil {
			t.Fatal(err)
		}
		stop := s.knock(config)
		s.until("etcd receives a request", func(m realkube.Metrics) bool {
			return m.Sum("kubeweir_requests_in_flight", map[string]string{"kind": "short"}) > 0
		})
		testbed.Wait(ctx, slowEtcd)
		if err := realkube.Resume(cluster.EtcdPID()); err != nil {
			t.Fatal(err)
		}
		stop()
		s.sample(1)
	}
	s.expect("KubeweirEtcdSlow")
	s.follow("KubeweirEtcdSlow")

	if status, text := s.fill(); status != http.StatusServiceUnavailable || !strings.Contains(text, "database space exceeded") {
		t.Errorf("a creation above the quota: %d %s", status, text)
	}
	for i := range 3 {
		s.send("POST", fmt.Sprint("refused-", i), 1)
		s.sample(1)
	}
	s.expect("KubeweirEtcdUnavailable")
	s.reads()
	s.kubectl("kubectl delete events --all --all-namespaces")
	s.kubectl("kubectl delete configmaps --all --all-namespaces")
	for _, command := range consoleCommands(t, "KubeweirEtcdUnavailable.md") {
		if strings.HasPrefix(command, "etcdctl ") {
			s.kubectl(command)
		}
	}
	s.create("again", 1<<10)
	s.sample(1)
	s.create("and-again", 1<<10)
	s.sample(2)
	s.expect(nothing)
}

// A scene is a standalone that is about to fail, and the samples that a Prometheus would have
// scraped from it.
type scene struct {
	t       *testing.T
	p       *realkube.Standalone
	client  *kubernetes.Clientset
	http    *http.Client // without retries
	env     []string     // the environment for runbook commands
	samples []realkube.Metrics
	cases   []*promTest
}

// nothing means that none of the store's alerts fires.
const nothing = ""

func newScene(t *testing.T, opts realkube.StandaloneOptions) *scene {
	t.Helper()
	testbed.Installed(t, "curl", "curl") // the runbooks use it
	promtoolPath(t)
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	p, err := realkube.StartStandalone(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	config, err := p.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := p.Kubeconfig()
	if c := opts.Cluster; c != nil {
		kubeconfig = filepath.Join(dir, "kubeconfig")
		if err := c.WriteKubeconfig(kubeconfig, p.URL(), c.ServingCAFile(), c.AdminToken()); err != nil {
			t.Fatal(err)
		}
	}
	s := &scene{t: t, p: p, client: client, http: plain}
	s.env = append(os.Environ(), "PATH="+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+dir, "ADMIN="+p.AdminURL())
	return s
}

func path(env []string) (path string) {
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	return path
}

// metrics returns the current metrics.
func (s *scene) metrics() realkube.Metrics {
	s.t.Helper()
	m, err := s.p.Metrics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func value(m realkube.Metrics, name string) float64 { return m.Sum(name, nil) }

// until waits for a state.
func (s *scene) until(what string, is func(realkube.Metrics) bool) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !is(s.metrics()); <-tick.C {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: this state was not reached\n%s", what, s.p.Log())
		}
	}
}

// sample adds n samples to what Prometheus has scraped.
func (s *scene) sample(n int) {
	s.t.Helper()
	for range n {
		s.samples = append(s.samples, s.metrics())
	}
}

// sampleIdle is sample, but the store's queue is empty at the first sample: the process itself
// writes, too, and that may take long on a busy machine's disk.
func (s *scene) sampleIdle(n int) {
	s.t.Helper()
	s.until("the queue is empty", func(m realkube.Metrics) bool {
		idle := value(m, "kubeweir_store_queued_changes") == 0
		if idle {
			s.samples = append(s.samples, m)
		}
		return idle
	})
	s.sample(n - 1)
}

// expect expects that exactly the named alerts fire if the samples since the last call continue.
// Samples are a second apart: the alerts' "for" is not tested.
func (s *scene) expect(alerts ...string) {
	s.t.Helper()
	test := &promTest{Name: fmt.Sprint(s.t.Name(), " ", len(s.cases)), Interval: "1s"}
	for name, values := range series(s.samples) {
		test.Series = append(test.Series, input(name+" "+values, "troubled"))
	}
	for _, rule := range rules(s.t) {
		if !strings.HasPrefix(rule.Alert, "KubeweirStore") && !strings.HasPrefix(rule.Alert, "KubeweirEtcd") {
			continue
		}
		named := slices.Contains(alerts, rule.Alert)
		if (rule.Alert == "KubeweirEtcdSlow" || rule.Alert == "KubeweirStoreSlow") && !named {
			continue // requests that waited for etcd were slow, and a busy machine's disk may be slow, too
		}
		e := promExpression{
			Expr: fmt.Sprintf(`group by (alert) (label_replace(%s, "alert", %q, "", ""))`, rule.Expr, rule.Alert),
			At:   fmt.Sprint(len(s.samples)-1, "s"), Samples: []promSample{},
		}
		if named {
			e.Samples = append(e.Samples, promSample{fmt.Sprintf("{alert=%q}", rule.Alert), 1})
		}
		test.Expressions = append(test.Expressions, e)
	}
	s.cases, s.samples = append(s.cases, test), nil
}

// judge checks all expectations with promtool.
func (s *scene) judge() { judge(s.t, "1s", s.cases) }

// series returns the samples of each series in promtool's notation.
func series(samples []realkube.Metrics) map[string]string {
	values := make(map[string][]string)
	for i, m := range samples {
		add := func(name, labels string, v float64) {
			key := name + "{" + strings.Trim(labels, ",") + "}"
			for len(values[key]) < i {
				values[key] = append(values[key], "_")
			}
			values[key] = append(values[key], strconv.FormatFloat(v, 'f', -1, 64))
		}
		for name, family := range m {
			if !strings.HasPrefix(name, "kubeweir_store_") && !strings.HasPrefix(name, "kubeweir_etcd_") {
				continue
			}
			for _, one := range family.GetMetric() {
				labels := ""
				for _, l := range one.GetLabel() {
					labels += fmt.Sprintf("%s=%q,", l.GetName(), l.GetValue())
				}
				h := one.GetHistogram()
				if h == nil {
					add(name, labels, one.GetCounter().GetValue()+one.GetGauge().GetValue())
					continue
				}
				add(name+"_count", labels, float64(h.GetSampleCount()))
				for _, b := range h.GetBucket() {
					add(name+"_bucket", labels+fmt.Sprintf("le=%q", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)), float64(b.GetCumulativeCount()))
				}
			}
		}
	}
	out := make(map[string]string, len(values))
	for key, v := range values {
		out[key] = strings.Join(v, " ")
	}
	return out
}

// follow runs the commands of a runbook.
func (s *scene) follow(alert string) {
	s.t.Helper()
	typeBlocks(s.t, filepath.Join(folder(s.t), alert+".md"), s.env)
}

// kubectl runs one command.
func (s *scene) kubectl(command string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
		s.t.Errorf("%s: %v\n%s", command, err, out)
	}
}

// logged checks that the log has a line that a runbook quotes.
func (s *scene) logged(line string) {
	s.t.Helper()
	if !strings.Contains(s.p.Log(), line) {
		s.t.Errorf("the log does not say %q:\n%s", line, s.p.Log())
	}
}

func configMap(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": strings.Repeat("x", size)}}
}

// send makes one request for a ConfigMap in the namespace default and returns status and body.
func (s *scene) send(method, name string, size int) (int, string) {
	body, err := json.Marshal(configMap(name, size))
	if err != nil {
		return 0, err.Error()
	}
	url := s.p.URL() + "/api/v1/namespaces/default/configmaps"
	if method != "POST" {
		url += "/" + name
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if method == "DELETE" {
		body = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// waits sends creates until some wait for the disk behind one that is being written. Once the disk
// responds, the caller must call the returned function, which waits until all objects are created.
func (s *scene) waits(prefix string) (goesOn func()) {
	s.t.Helper()
	var sent []chan int
	s.until("changes wait", func(m realkube.Metrics) bool {
		if value(m, "kubeweir_store_queued_changes") > 0 {
			return true
		}
		done, name := make(chan int, 1), fmt.Sprint(prefix, "-", len(sent))
		sent = append(sent, done)
		go func() {
			status, _ := s.send("POST", name, 1<<10)
			done <- status
		}()
		return false
	})
	return func() {
		s.t.Helper()
		for _, done := range sent {
			if status := <-done; status != http.StatusCreated {
				s.t.Errorf("a waiting create failed: %d", status)
			}
		}
	}
}

// knock updates an object repeatedly, whatever the response. stop waits until no update is in
// flight.
func (s *scene) knock(name string) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for size := 1; ; size++ {
			s.send("PUT", name, size)
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(end)
		<-ended
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *scene) create(name string, size int) string {
	s.t.Helper()
	if status, text := s.send("POST", name, size); status != http.StatusCreated {
		s.t.Fatal(status, text)
	}
	return name
}

// fill creates large objects until one is rejected, and returns the rejection.
func (s *scene) fill() (status int, text string) {
	for i := range 100 {
		if status, text = s.send("POST", fmt.Sprint("large-", i), 500<<10); status != http.StatusCreated {
			return status, text
		}
	}
	return status, "no create was rejected"
}

// update changes an existing object.
func (s *scene) update(name string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"data":{"at":%q}}`, time.Now())
	if _, err := s.client.CoreV1().ConfigMaps("default").Patch(s.t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Errorf("an update: %v", err)
	}
}

func (s *scene) event(name string) {
	s.t.Helper()
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if _, err := s.client.CoreV1().Events("default").Create(s.t.Context(), event, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// version returns the resourceVersion of an object, read at one not older than another, or at the
// most recent.
func (s *scene) version(name, notOlderThan string) string {
	s.t.Helper()
	c, err := s.client.CoreV1().ConfigMaps("default").Get(s.t.Context(), name, metav1.GetOptions{ResourceVersion: notOlderThan})
	if err != nil {
		s.t.Fatal(err)
	}
	return c.ResourceVersion
}

// reads checks that objects in the cache can be read.
func (s *scene) reads() {
	s.t.Helper()
	if _, err := s.client.CoreV1().ConfigMaps("default").List(s.t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		s.t.Errorf("a read: %v", err)
	}
}

// system runs a system command.
func system(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// newDisk mounts a disk as the data folder of a standalone in dir. The log is next to it.
func newDisk(t *testing.T, dir string) string {
	t.Helper()
	disk := filepath.Join(dir, "data")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	return disk
}

// mount mounts a disk and unmounts it after the test, however the test ends. It skips the test on
// machines that do not permit mounts.
func mount(t *testing.T, disk string, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a disk")
	}
	if out, err := exec.CommandContext(t.Context(), "mount", append(args, disk)...).CombinedOutput(); err != nil {
		if !slices.Contains(args, "loop") && !bytes.Contains(out, []byte("permi")) { // permission denied, not permitted
			t.Fatalf("mount: %v: %s", err, out)
		}
		t.Skipf("a disk cannot be mounted here: %v: %s", err, out)
	}
	// The pipe is closed even if this process is killed. A frozen file system could not be
	// unmounted.
	cmd := exec.Command("sh", "-c", `cat; fsfreeze --unfreeze "$0" 2> /dev/null; exec umount --lazy "$0"`, disk)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // keeps a terminal's Ctrl-C away from it
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pipe.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
}

// used returns how many bytes of a disk are used.
func used(t *testing.T, disk string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(disk, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Blocks-s.Bfree) * int64(s.Bsize)
}

var shellPrompt = regexp.MustCompile(`(?m)^\s*\$ (.*)$`)

// consoleCommands returns the commands in the console blocks of a runbook.
func consoleCommands(t *testing.T, name string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(t), name))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range shellPrompt.FindAllStringSubmatch(string(text), -1) {
		list = append(list, match[1])
	}
	return list
}

func folder(t *testing.T) string {
	t.Helper()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "docs", "runbooks")
}
