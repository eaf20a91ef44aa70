package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubeweir/kubeweir/test/realkube"
)

const streamingPod = "/api/v1/namespaces/default/pods/streaming"

// TestStreams runs commands, forwards ports and follows logs at kube-apiserver and through the gateway: what arrives
// must be the same, and in time.
func TestStreams(t *testing.T) {
	o := startOracle(t, realkube.Options{ExtraArgs: []string{"--kubelet-preferred-address-types=InternalIP"}})
	k := startKubelet(t)
	if err := o.seeder.documents(t.Context(), k.objects()); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, o)
	for name, cfg := range map[string]*rest.Config{"kube-apiserver": o.Cluster.AdminConfig(), "gateway": g.AdminConfig()} {
		t.Run(name, func(t *testing.T) {
			t.Run("stream/70 exec by WebSocket", func(t *testing.T) { testExec(t, cfg, webSocketExecutor) })
			t.Run("stream/70 exec by SPDY", func(t *testing.T) { testExec(t, cfg, remotecommand.NewSPDYExecutor) })
			t.Run("stream/70 exec fails", func(t *testing.T) { testExecFails(t, cfg) })
			t.Run("stream/70 exec is refused", func(t *testing.T) { testExecRefused(t, cfg, o.Cluster.Token(alice)) })
			t.Run("stream/70 port-forward by tunnel", func(t *testing.T) { testPortForward(t, cfg, tunnelDialer) })
			t.Run("stream/70 port-forward by SPDY", func(t *testing.T) { testPortForward(t, cfg, spdyDialer) })
			t.Run("stream/71 log follow", func(t *testing.T) { testLogFollow(t, cfg, k) })
		})
	}
	oracle, gateway := target(t, o.Target, false), gatewayTarget(t, o, g, false)
	RunReads(t.Context(), t, o.Env, oracle, gateway, []Case{
		get("stream/71 log", streamingPod+"/log").says("first\nsecond\n"),
		get("stream/71 log of a container", streamingPod+"/log?container=c&tailLines=5"),
		fails("stream/71 log of no container", streamingPod+"/log?container=x", 400),
		fails("stream/71 log of no pod", streamingPod+"none/log", 404),
		fails("stream/71 log, bad parameter", streamingPod+"/log?tailLines=x", 400),
		fails("stream/70 exec without upgrade", streamingPod+"/exec?command=ls&stdout=1", 400),
		either("stream/70 port-forward without upgrade", streamingPod+"/portforward?ports=80"),
		either("stream/70 attach without upgrade", streamingPod+"/attach"),
		fails("stream/70 exec in no pod", streamingPod+"none/exec?command=ls", 404),
	})
}

func podURL(cfg *rest.Config, rest string) *url.URL {
	u, err := url.Parse(cfg.Host + streamingPod + rest)
	if err != nil {
		panic(err) // the host is a test server's
	}
	return u
}

func webSocketExecutor(cfg *rest.Config, _ string, u *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, u.String())
}

type newExecutor func(cfg *rest.Config, method string, u *url.URL) (remotecommand.Executor, error)

func testExec(t *testing.T, cfg *rest.Config, executor newExecutor) {
	e, err := executor(cfg, http.MethodPost, podURL(cfg, "/exec?container=c&command=upper&command=case&stdin=1&stdout=1&stderr=1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
	defer cancel()
	input := strings.Repeat("some input, ", 20000) // more than any buffer on the way
	var out, errOut bytes.Buffer
	if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errOut}); err != nil {
		t.Fatal(err)
	}
	if out.String() != strings.ToUpper(input) || errOut.String() != "ran upper case" {
		t.Errorf("%d bytes of output, want %d; errors %q", out.Len(), len(input), &errOut)
	}
}

func testExecFails(t *testing.T, cfg *rest.Config) {
	for name, executor := range map[string]newExecutor{"WebSocket": webSocketExecutor, "SPDY": remotecommand.NewSPDYExecutor} {
		e, err := executor(cfg, http.MethodPost, podURL(cfg, "/exec?container=c&command=fail&stdout=1"))
		if err != nil {
			t.Fatal(err)
		}
		var status clientexec.CodeExitError
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if !errors.As(err, &status) || status.Code != 3 {
			t.Errorf("%s: %v, want exit status 3", name, err)
		}
	}
}

func testExecRefused(t *testing.T, cfg *rest.Config, token string) {
	cfg = rest.CopyConfig(cfg)
	cfg.BearerToken = token
	for name, executor := range map[string]newExecutor{"WebSocket": webSocketExecutor, "SPDY": remotecommand.NewSPDYExecutor} {
		e, err := executor(cfg, http.MethodPost, podURL(cfg, "/exec?container=c&command=x&stdout=1"))
		if err != nil {
			t.Fatal(err)
		}
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

type newDialer func(cfg *rest.Config) (httpstream.Dialer, error)

func tunnelDialer(cfg *rest.Config) (httpstream.Dialer, error) {
	return portforward.NewSPDYOverWebsocketDialerForStreaming(podURL(cfg, "/portforward"), cfg)
}

func spdyDialer(cfg *rest.Config) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, podURL(cfg, "/portforward")), nil
}

func testPortForward(t *testing.T, cfg *rest.Config, dialer newDialer) {
	d, err := dialer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddressesForStreaming(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		return
	case <-time.After(streamTimeout):
		t.Fatal("the forwarder does not get ready")
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		message := fmt.Sprintf("hello %d", i)
		if got, err := echo(ports[0].Local, message); err != nil || got != "8080 "+message {
			t.Errorf("sent %q, got %q: %v", message, got, err)
		}
	}
}

// echo sends a message through a forwarded port and reads it back.
func echo(port uint16, message string) (string, error) {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), streamTimeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(streamTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, message); err != nil {
		return "", err
	}
	b := make([]byte, len("8080 ")+len(message))
	_, err = io.ReadFull(conn, b)
	return string(b), err
}

// testLogFollow reads a log that grows: each line must be there within a second of being written.
func testLogFollow(t *testing.T, cfg *rest.Config, k *kubelet) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), streamTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, podURL(cfg, "/log?follow=true").String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("%s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	r := bufio.NewReader(resp.Body)
	line := func() string {
		s, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := line(), line(); a != "first\n" || b != "second\n" {
		t.Errorf("log begins with %q, %q", a, b)
	}
	for i := range 5 {
		want, said := fmt.Sprintf("line %d", i), time.Now()
		k.say(want)
		if got := line(); got != want+"\n" {
			t.Errorf("line %q, want %q", got, want)
		}
		if late := time.Since(said); late > time.Second {
			t.Errorf("%s came %s late", want, late)
		}
	}
	k.hush()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}
