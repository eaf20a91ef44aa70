package edge_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// memoryServer is set in the environment of a process that is only a server, so
// that its memory is nobody else's.
const memoryServer = "EDGE_TEST_MEMORY_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(memoryServer) != "" {
		serveForMemory()
		return
	}
	os.Exit(m.Run())
}

// serveForMemory serves streams and a report of its memory until its input ends.
func serveForMemory() {
	var stalled stalledWrites
	log := &edgetest.LogBuffer{}
	if files, _ := strconv.ParseUint(os.Getenv(memoryServer), 10, 64); files > 1 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}); err != nil {
			panic(err)
		}
	}
	s, err := edgetest.NewServer(edge.Options{
		Listen: "127.0.0.1:0", SidecarListen: "127.0.0.1:0", WriteTimeout: time.Hour,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Handler: edgetest.HandlerFunc(func(_ context.Context, r *api.Request) *api.Response {
			switch r.Path {
			case "/memory":
				if r.RawQuery == "collect=0" {
					return edgetest.Text(residentMemory())
				}
				for range 6 { // stacks shrink by half in a collection
					runtime.GC()
				}
				switch r.RawQuery {
				case "go":
					return edgetest.Text(goMemory())
				case "live":
					return edgetest.Text(liveMemory())
				}
				debug.FreeOSMemory()
				return edgetest.Text(residentMemory())
			case "/log":
				return edgetest.Text(log.String())
			case "/file":
				f, err := os.Open(os.DevNull)
				if err != nil {
					return edgetest.Text(err.Error())
				}
				_ = f.Close()
				return edgetest.Text("opened")
			case "/stalled":
				return edgetest.Text(strconv.Itoa(stalled.count()))
			case "/stall":
				return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { go stalled.stream(w) }}}
			case "/list":
				return &api.Response{Status: 200, Length: 1 << 40, Ready: true, BodyTo: edgetest.WriterTo(stalled.list)}
			case "/watch":
				return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) {
					_ = w.WriteFrames([][]byte{make([]byte, 6<<10)})
				}}}
			}
			return &api.Response{Status: 200, Body: make([]byte, 6<<10)}
		}),
	})
	if err != nil {
		panic(err)
	}
	bound, err := s.Start()
	if err != nil {
		panic(err)
	}
	fmt.Println(bound.Sidecar, bound.Secure, base64.StdEncoding.EncodeToString(edgetest.CertificatePEM()))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// residentMemory is VmRSS in bytes.
func residentMemory() string {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return strconv.Itoa(kb << 10)
		}
	}
	return "0"
}

// goMemory is what objects and stacks take, in bytes.
func goMemory() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return strconv.FormatUint(m.HeapInuse+m.StackInuse, 10)
}

// liveMemory is what objects that are in use and stacks take, in bytes: without what is
// free between them.
func liveMemory() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return strconv.FormatUint(m.HeapAlloc+m.StackInuse, 10)
}

// BenchmarkIdleMemory reports the resident memory of a server for each connection
// that is idle, with 10,000 open: in a watch, or kept alive after a get with a
// header above the small buffer. Run it with -benchtime 1x.
func BenchmarkIdleMemory(b *testing.B) {
	const connections = 10000
	if runtime.GOOS != "linux" {
		b.Skip("resident memory is read from /proc")
	}
	large := strings.Replace(edgetest.ClientRequest, "Bearer ", "Bearer "+strings.Repeat("t", 8<<10), 1)
	for _, bc := range []struct {
		name, request string
		tls, h2       bool
	}{
		{"watch/plain", "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n", false, false},
		{"watch/tls", "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n", true, false},
		{"watch/h2", "", true, true},
		{"keepalive/plain", large, false, false},
		{"keepalive/tls", large, true, false},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for range b.N {
				server := startMemoryServer(b)
				before := server.memory(b, "")
				if bc.h2 {
					server.openStreams(b, connections)
				} else {
					server.open(b, connections, bc.request, bc.tls)
				}
				b.ReportMetric(float64(server.memory(b, "?collect=0")-before)/connections/1024, "KiB/conn-with-garbage")
				b.ReportMetric(float64(server.memory(b, "")-before)/connections/1024, "KiB/conn")
				server.stop()
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

type memoryServerProcess struct {
	cmd           *exec.Cmd
	stdin         io.Closer
	plain, secure string
	tls           *tls.Config
	conns         []net.Conn
	cancel        context.CancelFunc
}

func startMemoryServer(b testing.TB) *memoryServerProcess { return startMemoryServerWith(b, 1) }

// startMemoryServerWith limits the server's open files, if that is more than one.
func startMemoryServerWith(b testing.TB, files int) *memoryServerProcess {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memoryServer+"="+strconv.Itoa(files), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	s := &memoryServerProcess{cmd: cmd, stdin: stdin, cancel: func() {}}
	var ca string
	if _, err := fmt.Fscan(stdout, &s.plain, &s.secure, &ca); err != nil {
		b.Fatal(err)
	}
	pem, _ := base64.StdEncoding.DecodeString(ca)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	s.tls = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return s
}

func (s *memoryServerProcess) stop() {
	s.cancel()
	for _, c := range s.conns {
		_ = c.Close()
	}
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
}

func (s *memoryServerProcess) memory(b testing.TB, query string) int {
	return s.get(b, "/memory"+query)
}

// get returns the number that the server answers with.
func (s *memoryServerProcess) get(b testing.TB, path string) int {
	b.Helper()
	resp, err := http.Get("http://" + s.plain + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	n, err := strconv.Atoi(string(body))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// open opens connections and reads one answer of 6 KB on each.
func (s *memoryServerProcess) open(b *testing.B, n int, request string, secure bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan struct{}, n)
	for range n {
		next <- struct{}{}
	}
	close(next)
	for range 8 {
		wg.Go(func() {
			for range next {
				nc, err := s.dialOne(request, secure)
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				s.conns = append(s.conns, nc)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func (s *memoryServerProcess) dialOne(request string, secure bool) (nc net.Conn, err error) {
	if secure {
		nc, err = tls.Dial("tcp", s.secure, s.tls)
	} else {
		nc, err = net.Dial("tcp", s.plain)
	}
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(edgetest.Timeout))
	if _, err := io.WriteString(nc, request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(resp.Body, make([]byte, 6<<10))
	return nc, err
}

// openStreams opens watches over as many HTTP/2 connections as the limit of
// streams asks for.
func (s *memoryServerProcess) openStreams(b *testing.B, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for done := 0; done < n; {
		tr := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true}
		for range min(defaults.MaxStreams, n-done) {
			req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+s.secure+"/watch", nil)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 6<<10)); err != nil {
				b.Fatal(err)
			}
			done++
		}
	}
}

// TestIdleHTTP2Memory bounds what an idle connection costs, and one more idle watch on
// it.
func TestIdleHTTP2Memory(t *testing.T) {
	connections, watches := 1000, 10 // so many that what the runtime rounds up is little for each
	if raceEnabled {
		connections = 50 // which are not measured
	}
	server := startMemoryServer(t)
	defer server.stop()
	before := server.memory(t, "?live")
	clients := make([]*edgetest.FrameConn, connections)
	get := func(c *edgetest.FrameConn, path string) {
		id, read := c.Request("GET", path, false, "authorization", strings.Repeat("t", 900)), 0
		for read < 6<<10 {
			c.Until(func(frame http2.Frame) bool {
				data, ok := frame.(*http2.DataFrame)
				if ok && data.StreamID == id {
					read += len(data.Data())
				}
				return ok
			})
		}
	}
	for i := range clients {
		cfg := server.tls.Clone()
		cfg.NextProtos = []string{"h2"}
		nc, err := tls.Dial("tcp", server.secure, cfg)
		if err != nil {
			t.Fatal(err)
		}
		server.conns = append(server.conns, nc)
		clients[i] = edgetest.NewFrameConn(t, nc)
		_ = clients[i].WriteWindowUpdate(0, 1<<20)
		get(clients[i], "/get")
	}
	idle := server.memory(t, "?live")
	for i, c := range clients {
		_ = server.conns[i].SetDeadline(time.Now().Add(edgetest.Timeout)) // that of its opening may be over
		for range watches {
			get(c, "/watch")
		}
	}
	watching := server.memory(t, "?live")
	each, more := (idle-before)/connections, (watching-idle)/connections/watches
	t.Logf("an idle connection costs %d bytes, a watch %d", each, more)
	if raceEnabled {
		return
	}
	if each > 16<<10 {
		t.Errorf("an idle connection costs %d bytes", each)
	}
	if more > 4<<10 {
		t.Errorf("a watch costs %d bytes more", more)
	}
}
