//go:build linux

package cri

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A network is a network namespace with only a loopback interface, and the connections into and out
// of it.
type network struct {
	ns *os.File

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	relaying  sync.WaitGroup
}

// newNetwork makes a network in which the addresses of services lead outside.
func newNetwork(services map[string]string) (*network, error) {
	n := &network{conns: make(map[net.Conn]struct{})}
	inside := make(map[string]net.Listener)
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := loopbackUp(); err != nil {
			return err
		}
		if n.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		for address := range services {
			if inside[address], err = net.Listen("tcp4", address); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		n.close()
		return nil, err
	}
	for address, to := range services {
		n.relay(inside[address], func() (net.Conn, error) { return net.DialTimeout("tcp4", to, dialTimeout) })
	}
	return n, nil
}

const dialTimeout = 10 * time.Second

// onThread calls do on a new thread that ends afterwards, so that no other goroutine sees changes
// to the thread.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- do()
	}()
	return <-done
}

// do calls f in the network. Sockets that f opens and processes that it starts remain in the
// network.
func (n *network) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// dial connects to an address in the network.
func (n *network) dial(address string) (conn net.Conn, err error) {
	err = n.do(func() (err error) {
		conn, err = net.DialTimeout("tcp4", address, dialTimeout)
		return err
	})
	return conn, err
}

// expose forwards an address outside to one inside.
func (n *network) expose(outside, inside string) error {
	l, err := net.Listen("tcp4", outside)
	if err != nil {
		return err
	}
	n.relay(l, func() (net.Conn, error) { return n.dial(inside) })
	return nil
}

// relay forwards each connection of a listener until the network is closed.
func (n *network) relay(l net.Listener, dial func() (net.Conn, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners = append(n.listeners, l)
	n.relaying.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			n.relaying.Go(func() {
				to, err := dial()
				if err != nil { // closing it is as close to a refused connection as possible
					_ = from.(*net.TCPConn).SetLinger(0)
					_ = from.Close()
					return
				}
				n.join(from, to)
			})
		}
	})
}

// join copies data between two connections until both have ended.
func (n *network) join(a, b net.Conn) {
	if !n.hold(a, b) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range []net.Conn{a, b} {
		_ = c.Close()
		delete(n.conns, c)
	}
}

// hold registers connections that close closes. If close was called before, hold closes them
// immediately.
func (n *network) hold(conns ...net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range conns {
		if n.closed {
			_ = c.Close()
		} else {
			n.conns[c] = struct{}{}
		}
	}
	return !n.closed
}

// pass copies from to to until from ends.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if err != nil { // one side is closed
		_ = from.Close()
		_ = to.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

// close closes all connections. The namespace itself ends with its last process.
func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.listeners {
		_ = l.Close()
	}
	for c := range n.conns {
		_ = c.Close()
	}
	n.mu.Unlock()
	n.relaying.Wait()
	if n.ns != nil {
		_ = n.ns.Close()
	}
}

// loopbackUp enables the loopback interface of the thread's network.
func loopbackUp() (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return err
	}
	return nil
}
