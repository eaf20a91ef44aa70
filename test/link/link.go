// Package link provides an unreliable network link: a TCP proxy that drops, freezes, cuts,
// corrupts, delays and throttles what passes through it.
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
	address string // address on which the link listens
	target  string
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		listener net.Listener // nil while connections are refused
		now      Condition
		changed  chan struct{} // closed and replaced when now changes
		paths    map[*path]struct{}
	}
	up, down shaper
}

// A Condition is what a link does to the bytes on it. The zero value forwards them unchanged.
type Condition struct {
	// Reject closes existing connections and refuses new ones.
	Reject bool
	// HoldUp and HoldDown delay bytes until the condition changes. Lose drops them instead; a
	// connection that has lost bytes never recovers.
	HoldUp, HoldDown, Lose bool
	// CutAfter closes each connection after so many bytes from the server, if it is not 0.
	CutAfter int64
	// Corrupt flips one bit of every chunk from the server.
	Corrupt bool
	// Delay is the latency of each byte, Rate the bytes per second in each direction for all
	// connections together; 0 means no limit. Queue bounds how long bytes of all connections
	// together wait for that, like the buffer of a modem or router; 0 means that each connection
	// can queue 32 KB.
	Delay time.Duration
	Rate  int
	Queue time.Duration
}

// A path is a client's connection and its connection to the server.
type path struct {
	client, server *net.TCPConn

	mu   sync.Mutex
	dead bool // the path has lost bytes
}

// Start starts a link to the server at target, "HOST:PORT", on an address of its own. Close ends
// it.
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

// Close closes the link and all connections on it.
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

// Address returns the address at which clients reach the server through the link.
func (l *Link) Address() string { return l.address }

// URL returns Address as an HTTPS URL.
func (l *Link) URL() string { return "https://" + l.address }

// Set changes the link's condition.
func (l *Link) Set(c Condition) error {
	l.mu.Lock()
	rejected := l.mu.now.Reject
	l.mu.now = c
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	if c.Reject && l.mu.listener != nil {
		_ = l.mu.listener.Close()
		l.mu.listener = nil
	}
	l.mu.Unlock()
	switch {
	case c.Reject:
		l.Cut()
	case rejected:
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			return err
		}
		l.serve(listener)
	}
	return nil
}

// condition returns the current condition and a channel that is closed when it changes.
func (l *Link) condition() (Condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.now, l.mu.changed
}

// Cut closes all existing connections.
func (l *Link) Cut() {
	for _, p := range l.paths() {
		p.close()
	}
}

// HalfClose closes the direction to the clients and still accepts what they send.
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

// Carried returns how many bytes have come from the server so far.
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

// join connects a client to the server and forwards data in both directions.
func (l *Link) join(client *net.TCPConn) {
	conn, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		_ = client.SetLinger(0) // as if the server refused the connection
		_ = client.Close()
		return
	}
	p := &path{client: client, server: conn.(*net.TCPConn)}
	l.mu.Lock()
	l.mu.paths[p] = struct{}{}
	reject := l.mu.now.Reject || l.ctx.Err() != nil
	l.mu.Unlock()
	defer func() {
		p.close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.mu.paths, p)
	}()
	if reject {
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

// lost reports whether the path has lost bytes. If now is set, it marks the path as such first.
func (p *path) lost(now bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = p.dead || now
	return p.dead
}

// A parcel is a piece of data and its arrival time.
type parcel struct {
	bytes []byte
	due   time.Time
}

// With a Rate, chunk is the maximum number of bytes sent together (a sixth of a second at 50
// kbit/s), and queued the number of chunks that a connection can queue.
const (
	chunk  = 1 << 10
	queued = 32
)

// pump forwards data from one side to the other until either ends.
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
		return nil // one direction is closed; the other goes on
	}
	return err
}

// held waits while bytes are held. It returns false when the link is closed.
func (l *Link) held(p *path, up bool) bool {
	for {
		c, changed := l.condition()
		hold := c.HoldDown
		if up {
			hold = c.HoldUp
		}
		if p.lost(hold && c.Lose) {
			hold, changed = true, nil // the path delivers nothing any more
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

// wait waits until a parcel is due, or until the link is neither delayed nor limited.
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

// room waits for room in the queue if Queue limits it, and returns the condition.
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

// A shaper limits the rate of all connections of a link together: first come, first served.
type shaper struct {
	mu   sync.Mutex
	free time.Time // when all earlier data has been sent
	sent int64
}

// queued returns how long sending all earlier data takes.
func (s *shaper) queued() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.free)
}

// send returns when n bytes will have been sent.
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
