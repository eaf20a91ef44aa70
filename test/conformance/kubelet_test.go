package conformance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// A kubelet that knows one pod's logs and commands: enough for kube-apiserver to connect streams to.
type kubelet struct {
	server *httptest.Server
	port   int

	mu struct {
		sync.Mutex
		followers []chan string // one for each reader that follows the log
	}
}

// streamTimeout bounds what a kubelet waits for within one request.
const streamTimeout = 30 * time.Second

func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	k.server = httptest.NewTLSServer(mux)
	t.Cleanup(k.server.Close)
	_, number, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if k.port, err = strconv.Atoi(number); err != nil {
		t.Fatal(err)
	}
	return k
}

// objects are the node that the kubelet serves and a pod on it.
func (k *kubelet) objects() []byte {
	return fmt.Appendf(nil, `
apiVersion: v1
kind: Node
metadata: {name: streaming}
status:
  addresses: [{type: InternalIP, address: 127.0.0.1}]
  daemonEndpoints: {kubeletEndpoint: {Port: %d}}
---
apiVersion: v1
kind: Pod
metadata: {name: streaming, namespace: default}
spec: {nodeName: streaming, containers: [{name: c, image: i}]}
status: {phase: Running, containerStatuses: [{name: c, image: i, imageID: "", ready: true, restartCount: 0, state: {running: {}}}]}
`, k.port)
}

// logs writes two lines, and with follow each line that say is called with.
func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "first\nsecond\n")
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	flush := http.NewResponseController(w)
	lines := make(chan string, 16)
	k.mu.Lock()
	k.mu.followers = append(k.mu.followers, lines)
	k.mu.Unlock()
	for {
		_ = flush.Flush()
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, line+"\n")
		case <-r.Context().Done():
			return
		}
	}
}

// say writes a line to everyone who follows the log; hush ends their streams.
func (k *kubelet) say(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.mu.followers {
		f <- line
	}
}

func (k *kubelet) hush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.mu.followers {
		close(f)
	}
	k.mu.followers = nil
}

// streams upgrades to SPDY and collects the streams that the client opens.
func streams(w http.ResponseWriter, r *http.Request, protocol string) (httpstream.Connection, <-chan httpstream.Stream, bool) {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		return nil, nil, false // answered
	}
	opened := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replySent <-chan struct{}) error {
		go func() {
			<-replySent
			opened <- s
		}()
		return nil
	})
	return conn, opened, conn != nil
}

// exec answers each line of standard input in capitals on standard output, says on standard error what the command
// was, and exits with status 0, or, for the command "fail", with 3.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	conn, opened, ok := streams(w, r, "v4.channel.k8s.io")
	if !ok {
		return
	}
	defer func() { _ = conn.Close() }()
	query := r.URL.Query()
	wanted := map[string]bool{"error": true, "stdin": query.Get("input") == "1", "stdout": query.Get("output") == "1", "stderr": query.Get("error") == "1"}
	have := make(map[string]httpstream.Stream)
	for name, want := range wanted {
		for want && have[name] == nil {
			select {
			case s := <-opened:
				have[s.Headers().Get("streamType")] = s
			case <-time.After(streamTimeout):
				return
			}
		}
	}
	command := strings.Join(query["command"], " ")
	if s := have["stderr"]; s != nil {
		_, _ = io.WriteString(s, "ran "+command)
	}
	if in, out := have["stdin"], have["stdout"]; in != nil && out != nil {
		b, _ := io.ReadAll(in)
		_, _ = out.Write([]byte(strings.ToUpper(string(b))))
	}
	status := `{"metadata":{},"status":"Success"}`
	if command == "fail" {
		status = `{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`
	}
	_, _ = io.WriteString(have["error"], status)
	for _, s := range have {
		_ = s.Close()
	}
}

// portForward sends back what each forwarded connection sends, behind the number of the port.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	conn, opened, ok := streams(w, r, "portforward.k8s.io")
	if !ok {
		return
	}
	defer func() { _ = conn.Close() }()
	for {
		select {
		case s := <-opened:
			if s.Headers().Get("streamType") != "data" {
				_ = s.Close() // no errors to tell
				continue
			}
			go func() {
				defer func() { _ = s.Close() }()
				_, _ = io.WriteString(s, s.Headers().Get("port")+" ")
				_, _ = io.Copy(s, s)
			}()
		case <-conn.CloseChan():
			return
		}
	}
}
