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

// forwarder is what the server of streams asks a Runtime for, which has methods of the same names for CRI.
type forwarder struct{ *Runtime }

// PortForward implements RuntimeServiceServer: it says where the stream is.
func (r *Runtime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(req)
}

// PortForward implements streaming.Runtime: a stream is joined with a port of a pod's loopback interface.
func (f forwarder) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	f.mu.Lock()
	s := f.sandboxes[id]
	var n *network
	if s != nil {
		n = s.network
	}
	f.mu.Unlock()
	if n == nil {
		return status.Errorf(codes.NotFound, "the sandbox %s is not there, or stopped", id)
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
