//go:build linux

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// A forwarder adapts a Runtime to the streaming server, whose methods have the same names as those
// of CRI.
type forwarder struct{ *Runtime }

// PortForward implements RuntimeServiceServer: it returns the URL of the stream.
func (r *Runtime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(req)
}

// PortForward implements streaming.Runtime: it joins a stream with a port of a pod's loopback
// interface.
func (f forwarder) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	f.mu.Lock()
	s := f.sandboxes[id]
	var n *network
	if s != nil {
		n = s.network
	}
	f.mu.Unlock()
	if n == nil {
		return status.Errorf(codes.NotFound, "the sandbox %s does not exist or was stopped", id)
	}
	conn, err := n.dial(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("failed to connect to localhost:%d inside the pod: %w", port, err)
	}
	if !n.hold(conn) {
		return errors.New("the sandbox was stopped")
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(stream, conn)
	_ = stream.Close()
	both.Wait()
	_ = conn.Close()
	return nil
}

var errNoShell = status.Error(codes.Unimplemented, "this runtime cannot start a second process in a container")

// Exec implements streaming.Runtime.
func (f forwarder) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoShell
}

// Attach implements streaming.Runtime.
func (f forwarder) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoShell
}
