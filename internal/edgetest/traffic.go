//go:build unix

package edgetest

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// ClientRequest is a get by client-go with a service account's token.
var ClientRequest = fmt.Sprintf("GET /api/v1/namespaces/default/pods/web-0?resourceVersion=0 HTTP/1.1\r\nHost: 127.0.0.1:6443\r\n"+
	"User-Agent: kubectl/v1.36.3 (linux/amd64) kubernetes/abc\r\nAccept: application/json\r\nAuthorization: Bearer %s\r\nAccept-Encoding: gzip\r\n\r\n",
	strings.Repeat("t", 900))

// ResponseHeader is the header of kube-apiserver's response to it.
var ResponseHeader = api.Header{
	{Name: "Audit-Id", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
	{Name: "Cache-Control", Value: "no-cache, private"},
	{Name: "Content-Type", Value: "application/json"},
	{Name: "X-Kubernetes-Pf-Flowschema-Uid", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
	{Name: "X-Kubernetes-Pf-Prioritylevel-Uid", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
}

// CPU returns the processor time of this process.
func CPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// CountingListener counts the writes of its connections.
type CountingListener struct {
	net.Listener
	Writes atomic.Int32
}

// Accept implements net.Listener.
func (l *CountingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return &countingConn{nc, l}, err
}

type countingConn struct {
	net.Conn
	l *CountingListener
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.l.Writes.Add(1)
	return c.Conn.Write(p)
}
