package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const podPath = "/api/v1/namespaces/" + kubeletNamespace + "/pods/" + kubeletPod

// TestUpgrade checks sessions with containers through the gateway, over WebSocket and SPDY, and
// that followed logs arrive without delay.
func TestUpgrade(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, kubeletNamespace)
	node := startKubelet(ctx, t)
	g := startGateway(t, "--shutdown-drain=1s")
	k := newKubectl(ctx, t, g)
	for _, websocket := range []string{"true", "false"} {
		t.Run("websocket "+websocket, func(t *testing.T) {
			t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websocket)
			t.Setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websocket)
			t.Run("exec", func(t *testing.T) { testExec(ctx, t, k) })
			t.Run("attach", func(t *testing.T) { testAttach(ctx, t, k) })
			t.Run("port-forward", func(t *testing.T) { testPortForward(ctx, t, k) })
		})
	}
	t.Run("terminal", func(t *testing.T) { testTerminal(ctx, t, g, node) })
	t.Run("refused", func(t *testing.T) { testUpgradeRejected(ctx, t, g) })
	t.Run("logs", func(t *testing.T) { testLogs(ctx, t, k, node) })
	t.Run("logs over HTTP/2", func(t *testing.T) { testFollow(ctx, t, g, node) })
	t.Run("drain", func(t *testing.T) { testDrainSessions(ctx, t, g, k) })
}

// throughGateway returns a kubectl command in the pod's namespace.
func (k *kubectl) throughGateway(ctx context.Context, args ...string) *exec.Cmd {
	return k.command(ctx, k.configs[1], append([]string{"-n", kubeletNamespace}, args...)...)
}

func testExec(ctx context.Context, t *testing.T, k *kubectl) {
	out, err := k.throughGateway(ctx, "exec", kubeletPod, "--", "say", "a", "b & <c>").CombinedOutput()
	if err != nil || string(out) != "a b & <c>\n" {
		t.Errorf("say: %q, %v", out, err)
	}
	var exit *exec.ExitError
	out, err = k.throughGateway(ctx, "exec", kubeletPod, "--", "fail").CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasPrefix(string(out), "it failed\n") {
		t.Errorf("fail: %q, %v", out, err)
	}
	echo(t, k.throughGateway(ctx, "exec", "-i", kubeletPod, "--", "cat"))
	out, err = k.throughGateway(ctx, "exec", kubeletPod, "-c", "absent", "--", "say").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "absent") {
		t.Errorf("missing container: %q, %v", out, err)
	}
}

// echo sends all byte values through a command that returns its input.
func echo(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	sent := make([]byte, 1<<20)
	_, err := rand.Read(sent)
	must(t, err)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(sent), &out, &errOut
	if err := cmd.Run(); err != nil || !bytes.Equal(out.Bytes(), sent) {
		t.Errorf("%q: received %d of %d bytes: %v: %s", cmd.Args, out.Len(), len(sent), err, errOut.Bytes())
	}
}

func testAttach(ctx context.Context, t *testing.T, k *kubectl) {
	cmd := k.throughGateway(ctx, "attach", "-i", "-q", kubeletPod)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("hello\n"), &out, &errOut
	if err := cmd.Run(); err != nil || out.String() != "hello\n" {
		t.Errorf("attach: %q, %v: %s", out.String(), err, errOut.Bytes())
	}
}

var forwardingFrom = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

func testPortForward(ctx context.Context, t *testing.T, k *kubectl) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := k.throughGateway(ctx, "port-forward", kubeletPod, ":8080")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	var addr string
	eventually(ctx, t, waitTimeout, func() error {
		m := forwardingFrom.FindStringSubmatch(out.String())
		if m == nil {
			return fmt.Errorf("port-forward printed %q", out)
		}
		addr = m[1]
		return nil
	})
	var talking sync.WaitGroup
	for i := range 4 {
		talking.Go(func() {
			if err := talk(addr, strings.Repeat(fmt.Sprint(i), 300<<10)); err != nil {
				t.Errorf("connection %d: %v; %s", i, err, out)
			}
		})
	}
	talking.Wait()
}

// talk sends a text to a forwarded port and expects the port and the text.
func talk(addr, text string) error {
	conn, err := net.DialTimeout("tcp", addr, streamTime)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(streamTime)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, text)
		sent <- err
	}()
	want := "port 8080\n" + text
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("reading after %d bytes: %w", n, err)
	}
	if string(got) != want {
		return errors.New("received other bytes than sent")
	}
	return <-sent
}

// sizeQueue returns two terminal sizes.
type sizeQueue struct {
	sizes chan remotecommand.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (q sizeQueue) Next() *remotecommand.TerminalSize {
	size, more := <-q.sizes
	if !more {
		return nil
	}
	return &size
}

// testTerminal runs an interactive client-go session with changing terminal sizes.
func testTerminal(ctx context.Context, t *testing.T, g *realkube.Gateway, node *kubelet) {
	cfg := rest.CopyConfig(g.AdminConfig())
	cfg.GroupVersion, cfg.NegotiatedSerializer, cfg.APIPath = &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion(), "/api"
	base, err := url.Parse(g.URL() + podPath + "/exec?stdin=true&stdout=true&tty=true&container=main&command=cat")
	must(t, err)
	for name, make := range map[string]func() (remotecommand.Executor, error){
		"websocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, base.String())
		},
		"spdy": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(cfg, http.MethodPost, base)
		},
	} {
		executor, err := make()
		must(t, err)
		before := len(node.seenSizes())
		in, typed := io.Pipe()
		queue := sizeQueue{sizes: newSizes()}
		out := &output{}
		ended := goStream(ctx, executor, remotecommand.StreamOptions{Stdin: in, Stdout: out, Tty: true, TerminalSizeQueue: queue})
		_, err = io.WriteString(typed, "typed\n")
		must(t, err)
		eventually(ctx, t, streamTime, func() error {
			if sizes := node.seenSizes()[before:]; len(sizes) < 2 || sizes[1].Width != 100 || out.String() != "typed\n" {
				return fmt.Errorf("%s: sizes %v, output %q", name, sizes, out)
			}
			return nil
		})
		must(t, typed.Close())
		close(queue.sizes)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func newSizes() chan remotecommand.TerminalSize {
	sizes := make(chan remotecommand.TerminalSize, 2)
	sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
	sizes <- remotecommand.TerminalSize{Width: 100, Height: 30}
	return sizes
}

func goStream(ctx context.Context, executor remotecommand.Executor, o remotecommand.StreamOptions) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- executor.StreamWithContext(ctx, o) }()
	return ended
}

// testUpgradeRejected compares the rejections for a user without permissions, and of invalid
// upgrades.
func testUpgradeRejected(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	for _, who := range []string{realkube.Alice, realkube.Admin} {
		up, gw := newClient(t, "kube-apiserver", kube.URL(), as(who), false), newClient(t, "gateway", g.URL(), as(who), false)
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := request{method: method, path: podPath + "/exec?command=say&stdout=true"}
			want := http.StatusForbidden
			if who == realkube.Admin {
				want = http.StatusBadRequest
			}
			sameResponse(ctx, t, up, gw, r, want)
			if who == realkube.Alice {
				upgrade := func(c *client) *client { return c.with("Connection", "Upgrade").with("Upgrade", "SPDY/3.1") }
				sameResponse(ctx, t, upgrade(up), upgrade(gw), r, want)
			}
		}
	}
}

func testLogs(ctx context.Context, t *testing.T, k *kubectl, node *kubelet) {
	out, err := k.throughGateway(ctx, "logs", kubeletPod).CombinedOutput()
	if err != nil || string(out) != "first line\nsecond line\n" {
		t.Errorf("logs: %q, %v", out, err)
	}
	cmd := k.throughGateway(ctx, "logs", "-f", kubeletPod)
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	follow(ctx, t, pipe, node)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
}

// testFollow follows a log over HTTP/2 and HTTP/1.1 without kubectl.
func testFollow(ctx context.Context, t *testing.T, g *realkube.Gateway, node *kubelet) {
	for _, http2 := range []bool{true, false} {
		ctx, cancel := context.WithCancel(ctx)
		resp, err := newClient(t, "gateway", g.URL(), as(realkube.Admin), http2).open(ctx, request{path: podPath + "/log?follow=true"})
		must(t, err)
		if got := resp.Header.Get("Content-Type"); got != "text/plain" {
			t.Errorf("Content-Type %q", got)
		}
		follow(ctx, t, resp.Body, node)
		cancel()
		_ = resp.Body.Close()
	}
}

// follow reads a log while it is written. Every line must arrive within a second.
func follow(ctx context.Context, t *testing.T, log io.Reader, node *kubelet) {
	t.Helper()
	lines := make(chan string)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for in := bufio.NewScanner(log); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	next := func(want string, within time.Duration) {
		t.Helper()
		late := time.NewTimer(within)
		defer late.Stop()
		select {
		case got := <-lines:
			if got != want {
				t.Fatalf("the log has line %q, want %q", got, want)
			}
		case <-late.C:
			t.Fatalf("%q did not arrive within %s", want, within)
		}
	}
	next("first line", streamTime)
	next("second line", time.Second)
	for i := range 5 {
		line := fmt.Sprintf("line %d", i)
		select {
		case node.lines <- line:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		next(line, time.Second)
	}
}

// testDrainSessions checks that open sessions do not prevent the gateway's shutdown.
func testDrainSessions(ctx context.Context, t *testing.T, g *realkube.Gateway, k *kubectl) {
	cmd := k.throughGateway(ctx, "exec", "-i", kubeletPod, "--", "cat")
	in, err := cmd.StdinPipe()
	must(t, err)
	out := &output{}
	cmd.Stdout = out
	must(t, cmd.Start())
	_, err = io.WriteString(in, "there\n")
	must(t, err)
	eventually(ctx, t, streamTime, func() error {
		if out.String() != "there\n" {
			return fmt.Errorf("exec printed %q", out)
		}
		return nil
	})
	resp, err := through(t, g, as(realkube.Admin)).open(ctx, request{path: podPath + "/log?follow=true"})
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	began := time.Now()
	if err := g.Stop(ctx); err != nil {
		t.Errorf("the gateway exited with: %v", err)
	}
	t.Logf("the gateway exited after %s", time.Since(began).Round(time.Millisecond))
	_ = in.Close()
	_ = cmd.Wait() // its connection was closed
}
