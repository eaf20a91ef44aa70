package standalone

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// kubelet starts a server that responds like a kubelet and echoes the input of containers.
func kubelet(t *testing.T) *net.TCPAddr {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/{ns}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first line\n")
		if r.URL.Query().Get("follow") == "true" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("/exec/{ns}/{pod}/{container}", echo)
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.Listener.Addr().(*net.TCPAddr)
}

// echo is the kubelet's side of exec: standard input goes to standard output.
func echo(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	opened := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		opened <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := make(map[string]httpstream.Stream)
	want := 1 // the error stream
	for _, name := range []string{"input", "output", "error"} {
		if r.URL.Query().Get(name) == "1" {
			want++
		}
	}
	for len(streams) < want {
		select {
		case s := <-opened:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.Copy(streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStdin])
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(metav1.Status{Status: metav1.StatusSuccess})
	for _, s := range streams {
		_ = s.Close()
	}
	<-conn.CloseChan()
}

// TestKubelet checks that exec, over both protocols, and logs go to the kubelet that the objects
// name.
func TestKubelet(t *testing.T) {
	p := start(t, t.TempDir(), "--disable-admission-plugins", "ServiceAccount")
	address := kubelet(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := p.client()
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "talker"},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "i", Stdin: true}}},
	}
	if pod, err = client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.kubectl("kubectl logs talker"); got != "first line\n" {
		t.Errorf("logs: %q", got)
	}
	for _, websocket := range []string{"true", "false"} {
		line := "echo hello | KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websocket + " kubectl exec -i talker -- cat"
		if got := p.kubectl(line); got != "hello\n" {
			t.Errorf("exec, websocket %s: %q", websocket, got)
		}
	}
	p.follow(ctx)
	p.stop() // although a client follows a log
	if log := p.stderr.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the end of an exec is logged as an error:\n%s", log)
	}
}

// follow starts following the log and returns after its first line.
func (p *process) follow(ctx context.Context) {
	p.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(tools(p.t).kubectl), "kubectl"), "logs", "-f", "talker")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "HOME="+p.t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Wait() })
	line := make([]byte, len("first line\n"))
	if _, err := io.ReadFull(out, line); err != nil || !strings.HasPrefix(string(line), "first line") {
		p.t.Errorf("followed log: %q, %v", line, err)
	}
}
