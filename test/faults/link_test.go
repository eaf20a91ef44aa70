package faults

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A link is the way to a server: a TCP proxy that can fail.
//
//	gateway <== down == pump <==== server
//	        === up ===> pump ====>
type link struct {
	address string // where it listens
	target  string
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		listener net.Listener // nil while connections are refused
		now      condition
		changed  chan struct{} // closed, and replaced, when now changes
		paths    map[*path]struct{}
	}
	up, down shaper
}

// A condition is what a link does to the bytes on it. The zero value does nothing.
type condition struct {
	// refuse closes what there is and refuses new connections.
	refuse bool
	// holdUp and holdDown keep bytes back, until they do not; lose throws them away instead, and a connection that has
	// lost some is dead for ever.
	holdUp, holdDown, lose bool
	// cutAfter closes each connection after so many bytes of the server's, if it is not 0.
	cutAfter int64
	// corrupt changes one bit of every chunk of the server's.
	corrupt bool
	// delay is how long each byte is under way, rate how many bytes a second all connections have together, each way; 0 is
	// no limit.
	delay time.Duration
	rate  int
}

// A path is one connection of the gateway's and the one to the server that it was given.
type path struct {
	client, server *net.TCPConn

	mu   sync.Mutex
	dead bool // bytes were lost
}

// newLink makes a link to a server, at an address of its own, until the test ends.
func newLink(t *testing.T, target string) *link {
	t.Helper()
	l := &link{target: target}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.mu.changed, l.mu.paths = make(chan struct{}), make(map[*path]struct{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l.address = listener.Addr().String()
	l.serve(listener)
	t.Cleanup(func() {
		l.stop()
		l.mu.Lock()
		if l.mu.listener != nil {
			_ = l.mu.listener.Close()
		}
		l.mu.Unlock()
		l.cut()
		l.running.Wait()
	})
	return l
}

func (l *link) url() string { return "https://" + l.address }

// set makes the link do as c says from now on.
func (l *link) set(c condition) error {
	l.mu.Lock()
	refused := l.mu.now.refuse
	l.mu.now = c
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	if c.refuse && l.mu.listener != nil {
		_ = l.mu.listener.Close()
		l.mu.listener = nil
	}
	l.mu.Unlock()
	switch {
	case c.refuse:
		l.cut()
	case refused:
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			return err
		}
		l.serve(listener)
	}
	return nil
}

// condition is what the link does now, and what is closed when that changes.
func (l *link) condition() (condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.now, l.mu.changed
}

// cut closes all connections there are.
func (l *link) cut() {
	for _, p := range l.paths() {
		p.close()
	}
}

// halfClose tells the gateway that nothing more will come, and goes on to take what it sends.
func (l *link) halfClose() {
	for _, p := range l.paths() {
		_ = p.client.CloseWrite()
	}
}

func (l *link) paths() []*path {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*path
	for p := range l.mu.paths {
		all = append(all, p)
	}
	return all
}

// carried is how many bytes have come from the server so far.
func (l *link) carried() int64 {
	l.down.mu.Lock()
	defer l.down.mu.Unlock()
	return l.down.sent
}

func (l *link) serve(listener net.Listener) {
	l.mu.Lock()
	l.mu.listener = listener
	l.mu.Unlock()
	l.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() { l.join(conn.(*net.TCPConn)) })
		}
	})
}

// join gives a connection one to the server, and passes on what comes from either.
func (l *link) join(client *net.TCPConn) {
	conn, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		_ = client.SetLinger(0) // as the server itself refuses
		_ = client.Close()
		return
	}
	p := &path{client: client, server: conn.(*net.TCPConn)}
	l.mu.Lock()
	l.mu.paths[p] = struct{}{}
	refuse := l.mu.now.refuse || l.ctx.Err() != nil
	l.mu.Unlock()
	defer func() {
		p.close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.mu.paths, p)
	}()
	if refuse {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, p.server, p.client, &l.up, true) })
	both.Go(func() { l.pump(p, p.client, p.server, &l.down, false) })
	both.Wait()
}

func (p *path) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// lost reports whether the path has lost bytes; it has from now on if now is set.
func (p *path) lost(now bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = p.dead || now
	return p.dead
}

// A parcel is some bytes and when they arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// Where there is a rate, chunk is how many bytes travel together at most, at 50 kbit/s a sixth of a second's, and queued
// how many of these wait for their turn.
const (
	chunk  = 1 << 10
	queued = 32
)

// pump passes on what comes from one side to the other, until either ends.
func (l *link) pump(p *path, to, from *net.TCPConn, shape *shaper, up bool) {
	parcels := make(chan parcel, queued)
	var writing sync.WaitGroup
	writing.Go(func() {
		for one := range parcels {
			l.wait(one)
			if !l.held(p, up) || writeAll(to, one.bytes) != nil {
				p.close()
			}
		}
	})
	passed := int64(0)
	for {
		c, _ := l.condition()
		size := 32 << 10
		if c.rate > 0 {
			size = chunk
		}
		buf := make([]byte, size)
		n, err := from.Read(buf)
		if n > 0 {
			c, _ = l.condition()
			if !up && c.corrupt {
				buf[n/2] ^= 0x10
			}
			if passed += int64(n); !up && c.cutAfter > 0 && passed > c.cutAfter {
				p.close()
			}
			parcels <- parcel{buf[:n], shape.send(n, c).Add(c.delay)}
		}
		if err != nil {
			close(parcels)
			writing.Wait()
			if !errors.Is(err, io.EOF) || p.lost(false) {
				p.close()
			}
			_ = to.CloseWrite()
			return
		}
	}
}

func writeAll(to *net.TCPConn, b []byte) error {
	_, err := to.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return nil // half of it is closed; the other goes on
	}
	return err
}

// held waits as long as bytes are kept back. It returns false when the link is taken down.
func (l *link) held(p *path, up bool) bool {
	for {
		c, changed := l.condition()
		hold := c.holdDown
		if up {
			hold = c.holdUp
		}
		if p.lost(hold && c.lose) {
			hold, changed = true, nil // and will never be heard of again
		}
		if !hold {
			return true
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

// wait waits until a parcel is due, or nothing is slow any more.
func (l *link) wait(p parcel) {
	for d := time.Until(p.due); d > 0; d = time.Until(p.due) {
		c, changed := l.condition()
		if c.rate == 0 && c.delay == 0 {
			return
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-changed:
		case <-l.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// A shaper gives all connections of a link a rate together: first come, first served.
type shaper struct {
	mu   sync.Mutex
	free time.Time // when what was sent before has left
	sent int64
}

// send tells when n bytes have left.
func (s *shaper) send(n int, c condition) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += int64(n)
	now := time.Now()
	if c.rate == 0 {
		s.free = now
		return now
	}
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(n) * time.Second / time.Duration(c.rate))
	return s.free
}

// The link itself is what the rest relies on.
func TestLink(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = echo.Close() }()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	l := newLink(t, echo.Addr().String())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.address)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// says sends a word and tells what comes back within a time.
	says := func(conn net.Conn, word string, within time.Duration) string {
		_, _ = io.WriteString(conn, word)
		_ = conn.SetReadDeadline(time.Now().Add(within))
		got := make([]byte, len(word))
		n, _ := io.ReadFull(conn, got)
		return string(got[:n])
	}
	const long, short = 10 * time.Second, 50 * time.Millisecond
	first := dial()
	if got := says(first, "hello", long); got != "hello" {
		t.Fatalf("%q came back", got)
	}
	must(t, l.set(condition{holdDown: true}))
	if got := says(first, "held", short); got != "" {
		t.Errorf("%q came through what holds", got)
	}
	must(t, l.set(condition{}))
	if got := says(first, "", long) + says(first, "x", long); got != "h" {
		t.Errorf("%q came first after the hold", got)
	}
	must(t, l.set(condition{holdUp: true, holdDown: true, lose: true}))
	second := dial()
	if got := says(second, "lost", short); got != "" {
		t.Errorf("%q came through what loses", got)
	}
	must(t, l.set(condition{}))
	if got := says(second, "lost", short); got != "" {
		t.Errorf("%q came through a connection that has lost bytes", got)
	}
	third := dial()
	must(t, l.set(condition{corrupt: true}))
	if got := says(third, "word", long); got == "word" || len(got) != 4 {
		t.Errorf("%q is what came through what corrupts", got)
	}
	must(t, l.set(condition{refuse: true}))
	if got := says(third, "word", long); got != "" {
		t.Errorf("%q came over a connection that was closed", got)
	}
	if conn, err := net.Dial("tcp", l.address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a refused connection: %v, %v", conn, err)
	}
	must(t, l.set(condition{rate: chunk * 4}))
	began := time.Now()
	if got := says(dial(), string(slices.Repeat([]byte("r"), 2*chunk)), long); len(got) != 2*chunk {
		t.Errorf("%d bytes came through slowly", len(got))
	}
	if took := time.Since(began); took < time.Second/2 {
		t.Errorf("half a second's bytes took %s", took)
	}
}
