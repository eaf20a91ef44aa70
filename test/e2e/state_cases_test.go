package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// writeKey writes a key file for --state-key-file.
func writeKey(t *testing.T, file string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(randomBytes(32))+"\n"), 0o600))
}

// withArgs starts the gateway with flags.
func withArgs(args ...string) func(context.Context, *testing.T, *stateScene) {
	return func(_ context.Context, _ *testing.T, s *stateScene) {
		s.opts.ExtraArgs = append(s.opts.ExtraArgs, args...)
	}
}

// withKey starts the gateway with a key.
func withKey(name string) func(context.Context, *testing.T, *stateScene) {
	return func(_ context.Context, _ *testing.T, s *stateScene) {
		s.opts.ExtraArgs = append(s.opts.ExtraArgs, "--state-key-file", filepath.Join(s.keys, name))
	}
}

// changeImage changes the checkpoint of ConfigMaps.
func changeImage(change func([]byte) []byte) func(context.Context, *testing.T, *stateScene) {
	return func(_ context.Context, t *testing.T, s *stateScene) {
		t.Helper()
		file := filepath.Join(s.dir, stateFile)
		b, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, change(b), 0o600))
	}
}

// changeMarker replaces the marker file of the state directory.
func changeMarker(content string) func(context.Context, *testing.T, *stateScene) {
	return func(_ context.Context, t *testing.T, s *stateScene) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(s.dir, "kubeweir-state"), []byte(content), 0o600))
	}
}

// putOwn writes an object of this case and returns its version.
func (s *stateScene) putOwn(ctx context.Context, t *testing.T, c *client, text string) uint64 {
	t.Helper()
	s.changed = "own-" + strconv.Itoa(s.n)
	path := "/api/v1/namespaces/" + stateNamespace + "/configmaps/" + s.changed + "?fieldManager=e2e&force=true"
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"text":%q}}`, s.changed, text)
	return written(ctx, t, c, request{method: http.MethodPatch, path: path, typ: "application/apply-patch+yaml", body: body})
}

// runAndEnd runs a gateway on the state and ends it once a client has seen a write, which may not
// be saved. While there is no gateway, it makes another write.
func runAndEnd(end func(context.Context, *testing.T, *realkube.Gateway)) func(context.Context, *testing.T, *stateScene) {
	return func(ctx context.Context, t *testing.T, s *stateScene) {
		t.Helper()
		g := startGateway(t, append(s.opts.ExtraArgs, "--state-dir", s.dir)...)
		s.from = s.putOwn(ctx, t, through(t, g, as(realkube.Admin)), "seen")
		s.sees(ctx, t, g)
		end(ctx, t, g)
		s.putOwn(ctx, t, direct(t, as(realkube.Admin)), "written while there is no gateway")
	}
}

// sees waits until a client has read the newest version, so that the client has seen it.
func (s *stateScene) sees(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	t.Helper()
	path := fmt.Sprintf("%s?resourceVersion=%d", allConfigMaps, s.from)
	if a := through(t, g, as(realkube.Admin)).get(ctx, t, path, typeJSON); a.status != http.StatusOK {
		t.Fatal(a)
	}
}

// fullDisk runs a gateway on a disk that becomes full, until the gateway logs that, and kills it.
func fullDisk(ctx context.Context, t *testing.T, s *stateScene) {
	t.Helper()
	disk, original := t.TempDir(), s.dir
	s.dir = filepath.Join(disk, "state")
	mount := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "size=8m", "kubeweir-e2e", disk)
	out, err := mount.CombinedOutput()
	mounted := err == nil
	if mounted {
		t.Cleanup(func() {
			if out, err := exec.Command("umount", "--lazy", disk).CombinedOutput(); err != nil {
				t.Errorf("umount: %v: %s", err, out)
			}
		})
	}
	must(t, os.CopyFS(s.dir, os.DirFS(original)))
	g := startGateway(t, append(s.opts.ExtraArgs, "--state-dir", s.dir)...)
	if mounted {
		fill(t, filepath.Join(disk, "filler"))
	} else {
		// Without permission to mount, limit the size of files instead.
		t.Logf("cannot mount a disk (%s), limiting the size of files instead", out)
		info, err := os.Stat(filepath.Join(s.dir, stateFile))
		must(t, err)
		out, err := exec.CommandContext(ctx, "prlimit", "--pid", strconv.Itoa(g.PID()), fmt.Sprintf("--fsize=%d", info.Size())).CombinedOutput()
		if err != nil {
			t.Fatalf("prlimit: %v: %s", err, out)
		}
	}
	gw := through(t, g, as(realkube.Admin))
	s.from = s.putOwn(ctx, t, gw, noise(64<<10))
	s.sees(ctx, t, g)
	eventually(ctx, t, time.Minute, func() error {
		if lineWith(g.Log(), []string{"checkpoint failed"}) == "" {
			return fmt.Errorf("the log does not mention the full disk: %s", g.Log())
		}
		return nil
	})
	s.putOwn(ctx, t, gw, "serving goes on")
	if err := s.sameObjects(ctx, g); err != nil {
		t.Error(err)
	}
	s.earlierLogs = g.Log()
	g.Kill()
	if mounted {
		must(t, os.Remove(filepath.Join(disk, "filler")))
	}
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	t.Logf("the disk is full: %v", err)
	_ = f.Close()
}

// otherCluster starts the gateway with the address of another cluster.
func otherCluster(ctx context.Context, t *testing.T, s *stateScene) {
	t.Helper()
	lab, _ := startLab(t)
	s.opts.Upstream = lab.URL()
	s.upstream.Host = lab.URL()
}

// grownOld starts the gateway once the state is older than --state-max-age.
func grownOld(ctx context.Context, t *testing.T, s *stateScene) {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.dir, stateFile))
	must(t, err)
	testbed.Wait(ctx, time.Until(info.ModTime().Add(1500*time.Millisecond)))
	s.opts.ExtraArgs = append(s.opts.ExtraArgs, "--state-max-age=1s")
}

// inUse starts another gateway with the same state directory.
func inUse(_ context.Context, t *testing.T, s *stateScene) {
	t.Helper()
	startGateway(t, append(s.opts.ExtraArgs, "--state-dir", s.dir)...)
}

// otherFolder uses a directory with other files as the state directory.
func otherFolder(_ context.Context, t *testing.T, s *stateScene) {
	t.Helper()
	s.dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(s.dir, "notes.txt"), nil, 0o600))
}
