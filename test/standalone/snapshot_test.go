package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// run runs kubeweir with arguments and returns its exit code and output.
func run(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tools(t).kubeweir, args...)
	cmd.Env = append(realkube.KubeweirEnv(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// mustRun runs kubeweir, which must succeed, and returns its output.
func mustRun(t *testing.T, env []string, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, env, args...)
	if code != 0 {
		t.Fatalf("kubeweir %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// A writer creates numbered ConfigMaps, and remembers which were acknowledged, in their order.
type writer struct {
	mu    sync.Mutex
	acked []uint64 // resourceVersions by number, 0 if not acknowledged
	stop  context.CancelFunc
	done  sync.WaitGroup
}

const writesPerSecond = 1000

// write creates ConfigMaps until the writer is stopped.
func write(t *testing.T, p *process) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{stop: cancel}
	limit := flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, 10)
	var next atomic.Int64
	client := p.client().CoreV1().ConfigMaps("default")
	for range writers {
		w.done.Go(func() {
			for limit.Wait(ctx) == nil {
				n := int(next.Add(1)) - 1
				c, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(n)}, Data: map[string]string{"text": strings.Repeat("x", 500)}}, metav1.CreateOptions{})
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Errorf("%s: %v", name(n), err)
					return
				}
				rv, err := strconv.ParseUint(c.ResourceVersion, 10, 64)
				if err != nil {
					t.Error(err)
				}
				w.note(n, rv)
			}
		})
	}
	return w
}

func name(n int) string { return fmt.Sprintf("w-%07d", n) }

func (w *writer) note(n int, rv uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.acked) <= n {
		w.acked = append(w.acked, 0)
	}
	w.acked[n] = rv
}

// count returns the number of writes acknowledged, and the highest version of them.
func (w *writer) count() (n int, last uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rv := range w.acked {
		if last = max(last, rv); rv != 0 {
			n++
		}
	}
	return n, last
}

// end stops the writer and waits for it.
func (w *writer) end() {
	w.stop()
	w.done.Wait()
}

// await waits until n more writes are acknowledged.
func (w *writer) await(t *testing.T, n int) {
	t.Helper()
	first, _ := w.count()
	deadline := time.Now().Add(time.Minute)
	for now := first; now < first+n; now, _ = w.count() {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes acknowledged, then %d", first, now)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// checkPrefix checks that a process has the writes up to a version, with their versions, and no others.
func (w *writer) checkPrefix(t *testing.T, p *process, revision uint64) {
	t.Helper()
	list, err := p.client().CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, "w-") {
			rv, err := strconv.ParseUint(list.Items[i].ResourceVersion, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got[name] = rv; rv > revision {
				t.Errorf("%s has the version %d, newer than the snapshot, %d", name, rv, revision)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, rv := range w.acked {
		if want := rv != 0 && rv <= revision; want && got[name(n)] != rv || !want && rv != 0 && got[name(n)] != 0 {
			t.Errorf("%s was acknowledged at %d, the store of revision %d has it at %d", name(n), rv, revision, got[name(n)])
		}
	}
	t.Logf("%d of %d writes are in the snapshot of revision %d", len(got), len(w.acked), revision)
}

// copyKeys copies the keys and certificates of a data folder.
func copyKeys(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(from, "pki"), to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// restored starts a process on a snapshot, with the keys of another data folder.
func restored(t *testing.T, snapshot, keysOf string, args ...string) *process {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	copyKeys(t, keysOf, dir)
	mustRun(t, nil, append([]string{"standalone", "snapshot", "restore", snapshot, "--data-dir", dir}, args...)...)
	return start(t, dir)
}

// revisionOf returns the revision of a snapshot, which must be intact.
func revisionOf(t *testing.T, snapshot string) uint64 {
	t.Helper()
	var revision uint64
	lines := strings.Split(mustRun(t, nil, "standalone", "snapshot", "status", snapshot), "\n")
	if _, err := fmt.Sscan(lines[1], &revision); err != nil {
		t.Fatal(err)
	}
	return revision
}

// TestSnapshotUnderLoad saves snapshots while a client makes 1,000 writes per second, and kills some of the
// saves. Each restored snapshot is a prefix of the acknowledged history, with everything that was
// acknowledged before the save.
func TestSnapshotUnderLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	env := []string{"KUBECONFIG=" + p.kubeconfig}
	w := write(t, p)
	defer w.end()
	w.await(t, 500)

	out := t.TempDir()
	for i := range 5 {
		file := filepath.Join(out, fmt.Sprint("killed-", i))
		cmd := exec.Command(tools(t).kubeweir, "standalone", "snapshot", "save", file)
		cmd.Env = append(realkube.KubeweirEnv(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.await(t, 20*i)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := os.Stat(file); err == nil { // a file with this name is complete
			revisionOf(t, file)
		}
	}
	type save struct {
		file  string
		after uint64 // the highest version acknowledged before
	}
	var saves []save
	for i := range 3 {
		_, after := w.count()
		s := save{filepath.Join(out, fmt.Sprint("saved-", i)), after}
		mustRun(t, env, "standalone", "snapshot", "save", s.file)
		saves = append(saves, s)
		w.await(t, 300)
	}
	w.end()
	p.stop()
	for _, s := range saves {
		revision := revisionOf(t, s.file)
		if revision < s.after {
			t.Errorf("%s has the revision %d, but %d was acknowledged before", s.file, revision, s.after)
		}
		r := restored(t, s.file, dir)
		w.checkPrefix(t, r, revision)
		r.stop()
	}
}

// TestSnapshotRestoreKilled kills restores. The folder of the store is there completely, or not at all.
func TestSnapshotRestoreKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	w := write(t, p)
	w.await(t, 3000)
	w.end()
	p.stop()
	file := filepath.Join(t.TempDir(), "backup")
	mustRun(t, nil, "standalone", "snapshot", "save", file, "--data-dir", dir)
	revision := revisionOf(t, file)
	complete := 0
	for i := 0; complete == 0; i++ {
		target := filepath.Join(t.TempDir(), "data")
		copyKeys(t, dir, target)
		cmd := exec.Command(tools(t).kubeweir, "standalone", "snapshot", "restore", file, "--data-dir", target)
		cmd.Env = realkube.KubeweirEnv()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(i*20)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		if _, err := os.Stat(filepath.Join(target, "store")); err == nil {
			complete++
		} else {
			mustRun(t, nil, "standalone", "snapshot", "restore", file, "--data-dir", target)
		}
		if i%3 == 0 || complete > 0 {
			r := start(t, target)
			w.checkPrefix(t, r, revision)
			r.stop()
		}
	}
}

// TestRestoredVersions checks that clients from before a restore list again, unless nothing was lost.
func TestRestoredVersions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	file := filepath.Join(t.TempDir(), "backup")
	before := p.kubectl("kubectl create configmap before --from-literal=a=b -o jsonpath={.metadata.resourceVersion}")
	mustRun(t, []string{"KUBECONFIG=" + p.kubeconfig}, "standalone", "snapshot", "save", file)
	lost := p.kubectl("kubectl create configmap lost --from-literal=a=b -o jsonpath={.metadata.resourceVersion}")
	revision := revisionOf(t, file)
	p.stop()

	r := restored(t, file, dir)
	if got := r.kubectl("kubectl get configmap before -o jsonpath={.metadata.resourceVersion}"); got != before {
		t.Errorf("version %s, was %s", got, before)
	}
	for _, version := range []string{before, lost} {
		if err := watchError(t, r, version); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("watch from %s: %v, want 410", version, err)
		}
	}
	r.stop()

	r = restored(t, file, dir, "--bump-revision", "1")
	w, err := r.client().CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(revision)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.kubectl("kubectl create configmap after --from-literal=a=b")
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "after" {
		t.Errorf("event %+v", e)
	}
	r.stop()
}

// watchError returns the error of a watch from a version.
func watchError(t *testing.T, p *process, version string) error {
	t.Helper()
	seconds := int64(60)
	w, err := p.client().CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if e.Type != watch.Error {
		return fmt.Errorf("event %+v", e)
	}
	return apierrors.FromObject(e.Object)
}

// TestSnapshotIsForAdministrators checks who may download a snapshot.
func TestSnapshotIsForAdministrators(t *testing.T) {
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.log")
	p := start(t, filepath.Join(dir, "data"), "--audit-log-path", audit)
	client := p.client()
	ctx := t.Context()
	for _, role := range []rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: "all-paths"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "all-reads"}, Rules: []rbacv1.PolicyRule{
			{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "all-resources"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
	} {
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"all-paths", "all-reads", "all-resources", "cluster-admin"} {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/kubeweir/v1/snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := clientHTTP(p)
	if err != nil {
		t.Fatal(err)
	}
	request := func(user, method string) (int, string) {
		t.Helper()
		req := admin.Clone(ctx)
		if req.Method = method; user != "" {
			req.Header.Set("Impersonate-User", user)
		}
		resp, err := httpClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for user, want := range map[string]int{"": 200, "cluster-admin": 200, "nobody": 403, "all-paths": 403, "all-reads": 403, "all-resources": 403} {
		if code, body := request(user, "GET"); code != want || (code != 200) == strings.Contains(body, "kubeweir snapshot") {
			t.Errorf("%q: %d %.200q, want %d", user, code, body, want)
		}
	}
	if code, body := request("", "POST"); code != 405 {
		t.Errorf("POST: %d %.200q", code, body)
	}
	if list := p.kubectl("kubectl get --raw /"); strings.Contains(list, "kubeweir") {
		t.Errorf("the path is listed: %s", list)
	}

	file := filepath.Join(dir, "backup")
	anonymous := strings.TrimPrefix(withoutCert(t, p), "--kubeconfig=")
	code, _, stderr := run(t, nil, "standalone", "snapshot", "save", file, "--kubeconfig", anonymous)
	if code != 1 || !strings.Contains(stderr, "rejects the request: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("anonymous: %d %s", code, stderr)
	}
	if all, err := filepath.Glob(file + "*"); err != nil || len(all) > 0 {
		t.Errorf("left behind: %v, %v", all, err)
	}
	p.stop()
	if log, err := os.ReadFile(audit); err != nil || !regexp.MustCompile(`"requestURI":"/kubeweir/v1/snapshot".*"username":"kubernetes-admin".*"code":200`).Match(log) {
		t.Errorf("the audit log has no download: %v", err)
	}
}

// clientHTTP returns an HTTP client with the administrator's credentials.
func clientHTTP(p *process) (*http.Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return nil, err
	}
	return rest.HTTPClientFor(cfg)
}

// TestSnapshotErrors checks that mistakes are explained in one line, and that nothing is overwritten.
func TestSnapshotErrors(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	p := start(t, data)
	env := []string{"KUBECONFIG=" + p.kubeconfig}
	file := filepath.Join(dir, "backup")
	mustRun(t, env, "standalone", "snapshot", "save", file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged")
	flipped := bytes.Clone(content)
	flipped[len(flipped)/2] ^= 1
	cut := filepath.Join(dir, "cut")
	for path, content := range map[string][]byte{damaged: flipped, cut: content[:len(content)-1000]} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fresh := filepath.Join(dir, "fresh")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"save", file}, 1, "backup exists; set --force to overwrite it"},
		{[]string{"save", filepath.Join(dir, "none", "backup")}, 1, "backup cannot be written: no such file or directory"},
		{[]string{"save", filepath.Join(dir, "other"), "--data-dir", data}, 1, "--data-dir: the data folder " + data + "/store is in use by another process"},
		{[]string{"save", filepath.Join(dir, "other"), "--data-dir", fresh}, 1, "--data-dir: " + fresh + "/store: no such file or directory"},
		{[]string{"save", filepath.Join(dir, "other"), "--data-dir", data, "--context", "x"}, 2, "--data-dir reads a folder, and --kubeconfig and --context a running standalone"},
		{[]string{"save", filepath.Join(dir, "other"), "--context", "x"}, 1, `--kubeconfig: context "x" does not exist`},
		{[]string{"save"}, 2, "a file is required"},
		{[]string{"status", damaged}, 1, "damaged: damaged at offset "},
		{[]string{"status", cut}, 1, "cut: damaged at offset "},
		{[]string{"status", p.kubeconfig}, 1, "kubeconfig: not a kubeweir snapshot"},
		{[]string{"status", fresh}, 1, "fresh: no such file or directory"},
		{[]string{"restore", file, "--data-dir", data}, 1, "--data-dir: " + data + "/store exists; end its server and move it away"},
		{[]string{"restore", damaged, "--data-dir", fresh}, 1, "damaged: damaged at offset "},
		{[]string{"restore", file, "--data-dir", fresh, "--bump-revision", "0"}, 2, "--bump-revision must be from 1 to "},
	} {
		code, _, stderr := run(t, env, append([]string{"standalone", "snapshot"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d: %s, want %s", c.args, code, stderr, c.want)
		}
	}
	if all, err := filepath.Glob(filepath.Join(fresh, "*")); err != nil || len(all) > 0 {
		t.Errorf("left behind: %v, %v", all, err)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the first snapshot has changed: %v", err)
	}
	mustRun(t, env, "standalone", "snapshot", "save", file, "--force")
	p.stop()
}

// backupCommands returns the commands of a section of docs/backup.md.
func backupCommands(t *testing.T, section string) []string {
	t.Helper()
	_, text, found := strings.Cut(page(t, "docs/backup.md"), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		commands = append(commands, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	if !found || len(commands) == 0 {
		t.Fatalf("docs/backup.md has no commands in the section %s", section)
	}
	return commands
}

// shell runs commands in a folder.
func shell(t *testing.T, dir, kubeconfig string, commands []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, command := range commands {
		cmd := exec.CommandContext(ctx, "sh", "-ec", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+filepath.Dir(tools(t).kubeweir)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		t.Logf("%s\n%s", command, out)
	}
}

// TestBackupPage runs the commands of docs/backup.md.
func TestBackupPage(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "kubeweir-data")
	p := start(t, data)
	p.kubectl("kubectl create configmap before --from-literal=a=b")
	commands := backupCommands(t, "Save")
	last := len(commands) - 1 // of a server that does not run
	shell(t, dir, p.kubeconfig, commands[:last])
	if info, err := os.Stat(filepath.Join(dir, "pki.tar")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy of the keys: %v, %v, want mode 0600", info, err)
	}
	p.kubectl("kubectl create configmap later --from-literal=a=b")
	p.stop()
	shell(t, dir, p.kubeconfig, commands[last:])
	shell(t, dir, p.kubeconfig, backupCommands(t, "Check"))
	shell(t, dir, p.kubeconfig, backupCommands(t, "Restore"))
	for name, want := range map[string]string{"kubeweir-data": "before", "moved": "before later"} {
		if name == "moved" {
			copyKeys(t, data, filepath.Join(dir, name))
		}
		r := start(t, filepath.Join(dir, name))
		if got := r.kubectl("kubectl -n default get configmaps --field-selector metadata.name!=kube-root-ca.crt -o jsonpath='{.items[*].metadata.name}'"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		r.stop()
	}
}

// TestCheck checks a store after a kill, while it is in use, and with a flipped byte.
func TestCheck(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := start(t, data)
	p.kubectl("kubectl create secret generic marked --from-literal=a=a-value-to-be-damaged")
	check := []string{"standalone", "check", "--data-dir", data}
	if code, _, stderr := run(t, nil, check...); code != 1 || !strings.HasSuffix(stderr, "is in use by another process\n") {
		t.Errorf("in use: %d %s", code, stderr)
	}
	p.kill()
	if stdout := mustRun(t, nil, check...); !strings.Contains(stdout, "store is intact: revision ") {
		t.Errorf("after a kill: %s", stdout)
	}
	start(t, data).stop() // writes everything to tables
	mustRun(t, nil, check...)
	tables, err := filepath.Glob(filepath.Join(data, "store", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := ""
	for _, path := range tables {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(content, []byte("a-value-to-be-damaged")); at >= 0 {
			damaged = filepath.Base(path)
			content[at] ^= 1
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	code, stdout, stderr := run(t, nil, check...)
	line := regexp.MustCompile(`(?m)^(\S+): offset \d+: /registry/secrets/default/marked at revision \d+: it cannot be read$`).FindStringSubmatch(stdout)
	if code != 1 || line == nil || line[1] != damaged || !strings.Contains(stderr, "faults") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("damaged %q: %d\n%s\n%s", damaged, code, stdout, stderr)
	}
	if code, _, stderr := run(t, nil, "standalone", "check", "--data-dir", t.TempDir()); code != 1 || !strings.Contains(stderr, "is not the store of a standalone") {
		t.Errorf("no store: %d %s", code, stderr)
	}
}
