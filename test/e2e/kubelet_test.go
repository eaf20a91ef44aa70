package e2e

import (
	"context"
	"encoding/json"
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	corev1 "k8s.io/api/core/v1"
)

const (
	kubeletNamespace = "kubelet"
	kubeletNode      = "kubelet-node"
	kubeletPod       = "talker"
	// streamTime bounds the wait for the streams of a session.
	streamTime = 10 * time.Second
)

// A kubelet is a fake node that serves kube-apiserver's requests on behalf of clients: logs, exec,
// attach and port-forward. It runs no containers, it echoes.
type kubelet struct {
	server *httptest.Server
	lines  chan string // of the followed log

	mu sync.Mutex
	// sizes are the terminal sizes received; guarded by mu.
	sizes []remotecommand.TerminalSize
}

// startKubelet starts a kubelet and registers its node with a running pod.
func startKubelet(ctx context.Context, t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{lines: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{ns}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{ns}/{pod}/{container}", k.exec)
	mux.HandleFunc("/attach/{ns}/{pod}/{container}", k.exec)
	mux.HandleFunc("/portForward/{ns}/{pod}", k.portForward)
	k.server = httptest.NewTLSServer(mux)
	t.Cleanup(k.server.Close)
	t.Cleanup(k.server.CloseClientConnections)
	k.register(ctx, t)
	return k
}

func (k *kubelet) register(ctx context.Context, t *testing.T) {
	t.Helper()
	typed, _ := directClients(t)
	addr, ok := k.server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("the kubelet has no port")
	}
	node, err := typed.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubeletNode}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = typed.CoreV1().Nodes().Delete(context.Background(), kubeletNode, metav1.DeleteOptions{})
	})
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(addr.Port)
	_, err = typed.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(t, err)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletPod},
		Spec: corev1.PodSpec{NodeName: kubeletNode, Containers: []corev1.Container{{
			Name: "main", Image: "example.com/image", Stdin: true, Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
		}}},
	}
	pod, err = typed.CoreV1().Pods(kubeletNamespace).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	pod.Status.Phase = corev1.PodRunning
	_, err = typed.CoreV1().Pods(kubeletNamespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	must(t, err)
}

// logs writes two lines and, if followed, each line that the test sends.
func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w).Flush
	_, _ = io.WriteString(w, "first line\nsecond line\n")
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		if flush() != nil {
			return
		}
		select {
		case line, more := <-k.lines:
			if !more {
				return
			}
			_, _ = io.WriteString(w, line+"\n")
		case <-r.Context().Done():
			return
		}
	}
}

// streams returns the streams that the other side opens.
func streams(w http.ResponseWriter, r *http.Request, protocols ...string) (httpstream.Connection, <-chan httpstream.Stream) {
	if _, err := httpstream.Handshake(r, w, protocols); err != nil {
		return nil, nil
	}
	opened := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		opened <- s
		return nil
	})
	return conn, opened
}

// exec echoes its input. The command "fail" exits with status 3, "say" prints its arguments.
func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	want := 1 // the error stream
	for _, key := range []string{"input", "output", "error", "tty"} {
		if q.Get(key) == "1" {
			want++ // with a terminal, the stream of its sizes
		}
	}
	conn, opened := streams(w, r, "v4.channel.k8s.io")
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	byType := map[string]httpstream.Stream{}
	late := time.NewTimer(streamTime)
	defer late.Stop()
	for len(byType) < want {
		select {
		case s := <-opened:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-late.C:
			return
		}
	}
	if sizes := byType[corev1.StreamTypeResize]; sizes != nil {
		go k.resize(sizes)
	}
	status := runCommand(q["command"], byType[corev1.StreamTypeStdin], byType[corev1.StreamTypeStdout], byType[corev1.StreamTypeStderr])
	_ = json.NewEncoder(byType[corev1.StreamTypeError]).Encode(status)
	for _, s := range byType {
		_ = s.Close()
	}
	// The other side closes the connection once it has everything.
	select {
	case <-conn.CloseChan():
	case <-r.Context().Done():
	case <-late.C:
	}
}

// runCommand is the container's command.
func runCommand(command []string, in io.Reader, out, errOut io.Writer) *metav1.Status {
	switch {
	case len(command) > 0 && command[0] == "fail":
		_, _ = io.WriteString(errOut, "it failed\n")
		return &metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "command terminated with exit code 3",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "3"}}}}
	case len(command) > 0 && command[0] == "say":
		_, _ = fmt.Fprintln(out, strings.Join(command[1:], " "))
	case in != nil:
		_, _ = io.Copy(out, in)
	}
	return &metav1.Status{Status: metav1.StatusSuccess}
}

func (k *kubelet) resize(s io.Reader) {
	for d := json.NewDecoder(s); ; {
		var size remotecommand.TerminalSize
		if d.Decode(&size) != nil {
			return
		}
		k.mu.Lock()
		k.sizes = append(k.sizes, size)
		k.mu.Unlock()
	}
}

// seenSizes returns the terminal sizes received so far.
func (k *kubelet) seenSizes() []remotecommand.TerminalSize {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]remotecommand.TerminalSize(nil), k.sizes...)
}

// portForward responds on each connection with the port and the data received.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	conn, opened := streams(w, r, "portforward.k8s.io")
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	errorStreams := map[string]httpstream.Stream{}
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-opened:
			id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				errorStreams[id] = s
				continue
			}
			port, _ := strconv.Atoi(s.Headers().Get(corev1.PortHeader))
			go func(failures httpstream.Stream) {
				_, _ = fmt.Fprintf(s, "port %d\n", port)
				_, _ = io.Copy(s, s)
				_ = s.Close()
				if failures != nil {
					_ = failures.Close()
				}
			}(errorStreams[id])
		}
	}
}
