package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// filesEnv, set in the environment, turns a process that calls ServeFloor into the file server.
const filesEnv = "KUBEWEIR_BENCH_FILES"

// startFileServer runs this program again to serve the objects in a folder, which shows the cost of
// a cache with one file per object. For each list it reads all files one after the other, decodes
// them into Go types and encodes the list with the libraries' serializer, as OpenYurt's yurthub
// (v1.7) does while offline. Unlike yurthub it does not authenticate clients and has no index and
// no selectors.
func startFileServer(certFile, keyFile, dir string, tlsConfig *tls.Config) (*child, error) {
	return startChild("files", filesEnv, strings.Join([]string{certFile, keyFile, dir}, ":"), tlsConfig)
}

// serveFiles runs the file server until standard input ends.
func serveFiles(arguments string) error {
	parts := strings.SplitN(arguments, ":", 3)
	if len(parts) != 3 {
		return fmt.Errorf("%s=%q", filesEnv, arguments)
	}
	cert, err := tls.LoadX509KeyPair(parts[0], parts[1])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	failed := make(chan error, 1)
	go func() {
		failed <- http.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			list, err := readFiles(serializer, parts[2])
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = serializer.Encode(list, w) // fails if the client has left
		}))
	}()
	fmt.Println(l.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return nil
	}
}

// readFiles reads the list of the pods from the files below a folder.
func readFiles(decoder runtime.Decoder, dir string) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	list.Kind, list.APIVersion = "PodList", "v1"
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		o, _, err := decoder.Decode(content, nil, nil)
		if err != nil {
			return err
		}
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("%s: a %T", path, o)
		}
		if pod.ResourceVersion > list.ResourceVersion { // versions have the same length
			list.ResourceVersion = pod.ResourceVersion
		}
		list.Items = append(list.Items, *pod)
		return nil
	})
	return list, err
}

// writeFiles writes one file for each pod of a synthetic API server.
func (s *synthetic) writeFiles(dir string) error {
	for i := range s.pods {
		path := filepath.Join(dir, namespaceName(i), podName(i))
		if i < seedNamespaces {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, s.template.append(nil, i, syntheticVersion+int64(i)+1), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// restarts measures a row of kind Restart: the time from the start of a gateway until a client has
// read all pods, with and without saved state, and beside it that of a server with one file per
// object.
func (m *measurer) restarts(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := errors.Join(s.process.Stop(ctx), os.RemoveAll(s.state)); err != nil {
		return nil, err
	}
	cold, err := s.started(ctx, func() error { return s.process.Start(ctx) })
	if err != nil {
		return nil, err
	}
	out := &measured{raw: s.upstream.rawBytes()}
	out.notes = append(out.notes, "without saved state: "+cold.text(out.raw))
	for range m.rounds() {
		if err := s.process.Stop(ctx); err != nil {
			return nil, err
		}
		for i := range s.upstream.pods / changedOf {
			s.upstream.update(i * 7 % s.upstream.pods)
		}
		var warm *started
		if err := out.kubeweir.timed(func() (err error) {
			warm, err = s.started(ctx, func() error { return s.process.Start(ctx) })
			return err
		}); err != nil {
			return nil, err
		}
		size, err := sizeOf(s.state)
		if err != nil {
			return nil, err
		}
		out.notes = append(out.notes, fmt.Sprintf("with saved state: %s, %.1f MB on disk", warm.text(out.raw), mega(size)))
	}
	note, err := m.fromFiles(ctx, s.upstream)
	out.notes = append(out.notes, note)
	return out, err
}

// started is the cost of a start until a client has read all pods.
type started struct {
	took, cpu time.Duration
	resident  int64
	read      float64 // bytes from the upstream
}

func (s *started) text(raw int64) string {
	return fmt.Sprintf("all pods read after %s, %s of processor time, %.0f MB of memory; from the cluster %.2f %% of the pods' JSON",
		s.took.Round(time.Millisecond), s.cpu, mega(s.resident), 100*s.read/float64(raw))
}

// started starts the gateway and reads all pods once its cache holds them.
func (s *scaled) started(ctx context.Context, start func() error) (*started, error) {
	begin := time.Now()
	if err := start(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.sync(ctx), s.read(ctx, requestSpec{path: allPods})); err != nil {
		return nil, err
	}
	out := &started{took: time.Since(begin)}
	s.pid, s.pids = s.process.PID(), []int{s.process.PID()}
	metrics, err := s.process.Families(ctx, "kubeweir_upstream_response_bytes_total")
	if err != nil {
		return nil, err
	}
	out.read = metrics.Sum("kubeweir_upstream_response_bytes_total", nil)
	if out.cpu, err = realkube.CPUTime(s.pid); err != nil {
		return nil, err
	}
	out.resident, _, err = residentMemory(s.pid)
	return out, err
}

// fromFiles returns a note with the cost of reading all pods twice from a freshly started file
// server.
func (m *measurer) fromFiles(ctx context.Context, upstream *synthetic) (note string, err error) {
	dir, err := os.MkdirTemp("", "kubeweir-bench-files-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := upstream.writeFiles(dir); err != nil {
		return "", err
	}
	size, err := sizeOf(dir)
	if err != nil {
		return "", err
	}
	pair, err := m.bed.cluster.IssueServingCert("127.0.0.1")
	if err != nil {
		return "", err
	}
	begin := time.Now()
	f, err := startFileServer(pair.CertFile, pair.KeyFile, dir, m.bed.tls)
	if err != nil {
		return "", err
	}
	defer f.close()
	c, err := dial(ctx, f.server, 64<<10)
	if err != nil {
		return "", err
	}
	defer c.close()
	if _, err := c.get(f.server.encode(requestSpec{path: allPods}), 200); err != nil {
		return "", err
	}
	first := time.Since(begin)
	cpu, err := realkube.CPUTime(f.server.pid)
	if err != nil {
		return "", err
	}
	resident, _, err := residentMemory(f.server.pid)
	if err != nil {
		return "", err
	}
	begin = time.Now()
	_, err = c.get(f.server.encode(requestSpec{path: allPods}), 200)
	return fmt.Sprintf("beside it a server with one file per object, which reads, decodes and encodes all of them for each list, as yurthub 1.7 does while offline (a small program with the same libraries, not yurthub; it serves the state of the files and sends nothing to the cluster): all pods read after %s, %s of processor time, %.0f MB of memory, and %s for the next list; %.1f MB on disk",
		first.Round(time.Millisecond), cpu, mega(resident), time.Since(begin).Round(time.Millisecond), mega(size)), err
}
