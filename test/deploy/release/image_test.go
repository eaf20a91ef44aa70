package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// user is the user id of the image's program.
const user = 65532

// TestImageServes unpacks the image and starts it as a container engine would: its program, as its
// user, with files that this user cannot change, and nothing else. A gateway reads from a
// standalone.
func TestImageServes(t *testing.T) {
	root := unpacked(t)
	before := names(t, root)

	standalone := start(t, root, "standalone", "--data-dir", "/var/lib/kubeweir", "--listen", "127.0.0.1:0", "--admin-listen", "")
	expectReady(t, standalone)
	gateway := start(t, root, "gateway", "--kubeconfig", "/var/lib/kubeweir/kubeconfig", "--cert-dir", "/var/lib/kubeweir/gateway",
		"--listen", "127.0.0.1:0", "--admin-listen", "")
	expectReady(t, gateway)
	expectTimeZones(t, filepath.Join(root, "var/lib/kubeweir/kubeconfig"))
	gateway.stop(t)
	standalone.stop(t)

	if after := names(t, root); !slices.Equal(before, after) {
		t.Errorf("something was written outside of /var/lib/kubeweir:\nbefore %q\nafter  %q", before, after)
	}
}

// expectTimeZones validates a CronJob with a time zone. The image has no time zone files, so the
// program must contain them.
func expectTimeZones(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 3 * * *", TimeZone: new("Europe/Berlin"),
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
	}}
	if _, err := client.BatchV1().CronJobs("default").Create(t.Context(), job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
}

// TestImageErrorsNameTheCause starts the unmodified image without a writable folder.
func TestImageErrorsNameTheCause(t *testing.T) {
	root := unpacked(t)
	for want, args := range map[string][]string{
		"Usage":             {},
		"permission denied": {"standalone", "--data-dir", "/data", "--listen", "127.0.0.1:0", "--admin-listen", ""},
		"/no/such/file":     {"gateway", "--kubeconfig", "/no/such/file"},
	} {
		cmd := contained(t.Context(), root, args...)
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(string(out), want) {
			t.Errorf("kubeweir %q: %v, %s; want %s", args, err, out, want)
		}
	}
}

// unpacked returns a folder with the image's files, from the archive for docker load.
func unpacked(t *testing.T) string {
	t.Helper()
	files := untar(t, bytes.NewReader(read(t, file(t, prefix+"image.tar"))))
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("manifest.json: %v, %s", err, files["manifest.json"])
	}
	root := t.TempDir()
	for _, layer := range manifest[0].Layers {
		r, err := gzip.NewReader(bytes.NewReader(files[layer]))
		if err != nil {
			t.Fatal(err)
		}
		if err := unpack(tar.NewReader(r), root); err != nil {
			t.Fatal(err)
		}
	}
	// An engine makes the root read-only. A user other than root owns the files here.
	if err := os.Chmod(root, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(root, 0o755) })
	return root
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if out[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(archive *tar.Reader, root string) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, header.FileInfo().Mode())
		} else {
			var data []byte
			if data, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, data, header.FileInfo().Mode())
			}
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, header.Uid, header.Gid)
		}
		if err != nil {
			return err
		}
	}
}

// names returns the files below a folder, except in the program's own folder.
func names(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "/var/lib/kubeweir") {
			return fs.SkipDir
		}
		out = append(out, strings.TrimPrefix(path, root))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// contained returns a command that runs the image's program with the image's files as the root, as
// the image's user, and without environment. If the test does not run as root, the command uses a
// user namespace in which the caller is that user.
func contained(ctx context.Context, root string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/kubeweir", args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	} else {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// A running is a running program of the image.
type running struct {
	cmd    *exec.Cmd
	exited chan error
	mu     sync.Mutex
	stderr bytes.Buffer
}

// Write implements io.Writer for what the program prints.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.Write(p)
}

func (r *running) printed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

func start(t *testing.T, root string, args ...string) *running {
	t.Helper()
	r := &running{cmd: contained(context.Background(), root, args...), exited: make(chan error, 1)}
	r.cmd.Stderr = r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exited <- r.cmd.Wait() }()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.exited:
		if err != nil {
			t.Errorf("%q ended with %v\n%s", r.cmd.Args, err, r.printed())
		}
	case <-time.After(time.Minute):
		t.Fatalf("%q does not exit\n%s", r.cmd.Args, r.printed())
	}
}

var readyLine = regexp.MustCompile(`(?m)^kubeweir: ready on (https://\S+)$`)

// expectReady waits for the line with the program's address, and for /readyz there.
func expectReady(t *testing.T, r *running) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	var last error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		select {
		case err := <-r.exited:
			t.Fatalf("%q ended with %v\n%s", r.cmd.Args, err, r.printed())
		case <-time.After(20 * time.Millisecond):
		}
		line := readyLine.FindStringSubmatch(r.printed())
		if line == nil {
			continue
		}
		if last = getOK(client, line[1]+"/readyz"); last == nil {
			return
		}
	}
	t.Fatalf("%q is not ready: %v\n%s", r.cmd.Args, last, r.printed())
}

func getOK(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
