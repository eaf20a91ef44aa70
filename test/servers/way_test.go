package servers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// way forwards connections from the advertised addresses to the servers: as an HTTP proxy, or by
// dial.
type way struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	to     map[string]string // address of the server by advertised address
	counts map[string]int    // connections by advertised address
	open   map[net.Conn]bool
}

func startWay(t *testing.T) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &way{listener: l, to: map[string]string{}, counts: map[string]int{}, open: map[net.Conn]bool{}}
	w.running.Go(w.run)
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for conn := range w.open {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w
}

func (w *way) url() string { return "http://" + w.listener.Addr().String() }

// lead sets the servers. The first in the list has the first advertised address.
func (w *way) lead(servers []*realkube.Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range servers {
		w.to[advertised(i+1)] = strings.TrimPrefix(s.URL(), "https://")
	}
}

// carried returns the number of connections to the n-th server.
func (w *way) carried(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[advertised(n)]
}

// dial connects to the server with an advertised address.
func (w *way) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	to := w.to[host]
	w.counts[host]++
	w.mu.Unlock()
	if to == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no server at " + address)}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// run serves CONNECT requests.
func (w *way) run() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.carry(near) })
	}
}

func (w *way) carry(near net.Conn) {
	defer w.keep(near)()
	in := bufio.NewReader(near)
	req, err := http.ReadRequest(in)
	if err != nil || req.Method != http.MethodConnect {
		return
	}
	far, err := w.dial(context.Background(), "tcp", req.Host)
	if err != nil {
		_, _ = io.WriteString(near, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer w.keep(far)()
	if _, err := io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	w.running.Go(func() {
		_, _ = io.Copy(far, in)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
}

// keep registers a connection, which is closed at the end of the test or by end.
func (w *way) keep(conn net.Conn) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[conn] = true
	return func() {
		w.mu.Lock()
		delete(w.open, conn)
		w.mu.Unlock()
		_ = conn.Close()
	}
}

// nameServer is a DNS server that serves one name.
type nameServer struct {
	conn net.PacketConn
	name string

	mu        sync.Mutex
	addresses []netip.Addr
}

func startDNS(t *testing.T, name string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	s := &nameServer{conn: conn, name: name}
	var running sync.WaitGroup
	running.Go(s.run)
	t.Cleanup(func() {
		_ = conn.Close()
		running.Wait()
	})
	return s
}

// lead sets the IPv4 addresses of the name.
func (s *nameServer) lead(to ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = to
}

// resolver returns a resolver that queries s.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) run() {
	b := make([]byte, 4<<10)
	for {
		n, from, err := s.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if response, err := s.respond(b[:n]); err == nil {
			_, _ = s.conn.WriteTo(response, from)
		}
	}
}

func (s *nameServer) respond(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not a query"))
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if q.Name.String() != s.name {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.addresses {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return m.Pack()
}
