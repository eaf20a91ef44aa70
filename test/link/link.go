// Package link is the way to a server that can fail: a TCP proxy that drops, freezes, cuts, corrupts, delays and
// throttles what passes through it.
package link

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A Link is the way to a server.
//
//	client <== down == pump <==== server
//	       === up ===> pump ====>
type Link struct {
	address string // where it listens
	target  string
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		listener net.Listener // nil while connections are refused
		now      Condition
		changed  chan struct{} // closed, and replaced, when now changes
		paths    map[*path]struct{}
	}
	up, down shaper
}

// A Condition is what a link does to the bytes on it. The zero value does nothing.
type Condition struct {
	// Refuse closes what there is and refuses new connections.
	Refuse bool
	// HoldUp and HoldDown keep bytes back, until they do not; Lose throws them away instead, and a connection that has
	// lost some is dead for ever.
	HoldUp, HoldDown, Lose bool
	// CutAfter closes each connection after so many bytes of the server's, if it is not 0.
	CutAfter int64
	// Corrupt changes one bit of every chunk of the server's.
	Corrupt bool
	// Delay is how long each byte is under way, Rate how many bytes a second all connections have together, each way; 0 is
	// no limit. Queue is for how long bytes of all connections together wait for that at most, in what a modem or router
	// holds; 0: each connection has 32 KB there.
	Delay time.Duration
	Rate  int
	Queue time.Duration
}

// A path is one connection of a client and the one to the server that it was given.
type path struct {
	client, server *net.TCPConn

	mu   sync.Mutex
	dead bool // bytes were lost
}

// Start makes a link to the server at target, "HOST:PORT", at an address of its own. Close ends it.
func Start(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{target: target, address: listener.Addr().String()}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.mu.changed, l.mu.paths = make(chan struct{}), make(map[*path]struct{})
	l.serve(listener)
	return l, nil
}

// Close ends the link and all connections on it.
func (l *Link) Close() {
	l.stop()
	l.mu.Lock()
	if l.mu.listener != nil {
		_ = l.mu.listener.Close()
	}
	l.mu.Unlock()
	l.Cut()
	l.running.Wait()
}

// Address is where clients reach the server through the link.
func (l *Link) Address() string { return l.address }

// URL is Address for clients that speak HTTPS.
func (l *Link) URL() string { return "https://" + l.address }

// Set makes the link do as c says from now on.
func (l *Link) Set(c Condition) error {
	l.mu.Lock()
	refused := l.mu.now.Refuse
	l.mu.now = c
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	if c.Refuse && l.mu.listener != nil {
		_ = l.mu.listener.Close()
		l.mu.listener = nil
	}
	l.mu.Unlock()
	switch {
	case c.Refuse:
		l.Cut()
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
func (l *Link) condition() (Condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.now, l.mu.changed
}

// Cut closes all connections there are.
func (l *Link) Cut() {
	for _, p := range l.paths() {
		p.close()
	}
}

// HalfClose tells clients that nothing more will come, and goes on to take what they send.
func (l *Link) HalfClose() {
	for _, p := range l.paths() {
		_ = p.client.CloseWrite()
	}
}

func (l *Link) paths() []*path {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*path
	for p := range l.mu.paths {
		all = append(all, p)
	}
	return all
}

// Carried is how many bytes have come from the server so far.
func (l *Link) Carried() int64 {
	l.down.mu.Lock()
	defer l.down.mu.Unlock()
	return l.down.sent
}

func (l *Link) serve(listener net.Listener) {
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
func (l *Link) join(client *net.TCPConn) {
	conn, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		_ = client.SetLinger(0) // as the server itself refuses
		_ = client.Close()
		return
	}
	p := &path{client: client, server: conn.(*net.TCPConn)}
	l.mu.Lock()
	l.mu.paths[p] = struct{}{}
	refuse := l.mu.now.Refuse || l.ctx.Err() != nil
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
func (l *Link) pump(p *path, to, from *net.TCPConn, shape *shaper, up bool) {
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
		size := 32 << 10
		if c := l.room(shape); c.Rate > 0 {
			size = chunk
		}
		buf := make([]byte, size)
		n, err := from.Read(buf)
		if n > 0 {
			c, _ := l.condition()
			if !up && c.Corrupt {
				buf[n/2] ^= 0x10
			}
			if passed += int64(n); !up && c.CutAfter > 0 && passed > c.CutAfter {
				p.close()
			}
			parcels <- parcel{buf[:n], shape.send(n, c).Add(c.Delay)}
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
func (l *Link) held(p *path, up bool) bool {
	for {
		c, changed := l.condition()
		hold := c.HoldDown
		if up {
			hold = c.HoldUp
		}
		if p.lost(hold && c.Lose) {
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
func (l *Link) wait(p parcel) {
	for d := time.Until(p.due); d > 0; d = time.Until(p.due) {
		c, changed := l.condition()
		if c.Rate == 0 && c.Delay == 0 {
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

// room waits for room in the queue, if that is limited, and returns what the link does.
func (l *Link) room(s *shaper) Condition {
	for {
		c, changed := l.condition()
		full := s.queued() - c.Queue
		if c.Rate == 0 || c.Queue == 0 || full <= 0 {
			return c
		}
		timer := time.NewTimer(full)
		select {
		case <-timer.C:
		case <-changed:
		case <-l.ctx.Done():
			timer.Stop()
			return c
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

// queued is how long what was sent before takes to leave.
func (s *shaper) queued() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.free)
}

// send tells when n bytes have left.
func (s *shaper) send(n int, c Condition) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent += int64(n)
	now := time.Now()
	if c.Rate == 0 {
		s.free = now
		return now
	}
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(n) * time.Second / time.Duration(c.Rate))
	return s.free
}
