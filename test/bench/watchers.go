package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// watchers are open watches of one server, whose events are counted and dropped.
type watchers struct {
	options   watchOptions
	all       []*watcher
	conns     []watchConn
	delivered atomic.Int64
	bytes     atomic.Int64
	closed    atomic.Int64 // those that the server ended
	readers   sync.WaitGroup
	ending    atomic.Bool
}

// A watcher is one of them. The reader of its connection alone uses what follows its number.
type watcher struct {
	number    int
	received  int
	cr        bool   // the last byte was a carriage return
	last      []byte // what may be the beginning of a mark
	latencies []time.Duration
}

// A watchConn is a connection with watches.
type watchConn interface {
	// read counts events until the server or close ends the watches.
	read()
	close()
}

// watchOptions say what is opened.
type watchOptions struct {
	server *server
	n      int
	over   Protocol
	// perConn is how many share a connection, over HTTP/2; zero for one.
	perConn int
	// request of the i-th watcher; nil for connections without watches, over HTTP/2.
	request func(i int) requestSpec
	// buffer is the size of a connection's reads.
	buffer int
	// begun, if set, tells when the write began that a watcher's k-th event comes from; the zero time for unknown.
	begun func(watcher, k int) time.Time
	// mark is what each event begins with and nothing else has; empty for events that end in a newline.
	mark string
	// stuck is how many more watches on each connection are not read, over HTTP/2. They count for nothing.
	stuck int
}

// openers is how many connections are opened at a time.
const openers = 16

// openWatchers returns when every watch's answer has begun.
func openWatchers(ctx context.Context, o watchOptions) (*watchers, error) {
	per := max(1, o.perConn)
	w := &watchers{options: o, all: make([]*watcher, o.n), conns: make([]watchConn, (o.n+per-1)/per)}
	for i := range w.all {
		w.all[i] = &watcher{number: i}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, openers)
	for opener := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(w.conns) && errs[opener] == nil; i = int(next.Add(1)) - 1 {
				w.conns[i], errs[opener] = w.open(ctx, w.all[i*per:min(o.n, (i+1)*per)])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.close()
		return nil, err
	}
	for _, c := range w.conns {
		w.readers.Go(c.read)
	}
	return w, nil
}

// open opens a connection and the watches on it. It returns no connection with an error.
func (w *watchers) open(ctx context.Context, share []*watcher) (watchConn, error) {
	switch w.options.over {
	case HTTP2:
		return w.openHTTP2(ctx, share)
	case WebSocket:
		return w.openWebSocket(ctx, share[0])
	}
	c, err := w.openStream(ctx, share[0].number, "", 200)
	if err != nil {
		return nil, err
	}
	return &streamConn{conn: c, of: w, one: share[0]}, nil
}

// openStream asks for the i-th watch and returns when its answer has begun.
func (w *watchers) openStream(ctx context.Context, i int, header string, status int) (*conn, error) {
	c, err := dial(ctx, w.options.server, 4<<10)
	if err != nil {
		return nil, err
	}
	spec := w.options.request(i)
	spec.header = header
	err = c.nc.SetDeadline(time.Now().Add(requestTime))
	if err == nil {
		var r response
		if r, err = c.begin(w.options.server.encode(spec)); err == nil && r.status != status {
			_ = c.body(&r)
			err = fmt.Errorf("watch %d: status %d: %.300s", i, r.status, c.head)
		}
	}
	if err == nil {
		err = c.nc.SetDeadline(time.Time{})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// A streamConn is a watch over HTTP/1.1.
type streamConn struct {
	*conn
	of  *watchers
	one *watcher
}

// read counts events. Each ends in a newline, as does nothing else but, after a carriage return, the framing of
// chunks.
func (s *streamConn) read() {
	buf := make([]byte, s.of.options.buffer)
	for {
		n, err := s.br.Read(buf)
		if n > 0 {
			s.of.events(s.one, buf[:n])
		}
		if err != nil || lastChunk(buf[:n]) {
			s.of.ended()
			return
		}
	}
}

// ended notes that a watch ended which was not closed.
func (w *watchers) ended() {
	if !w.ending.Load() {
		w.closed.Add(1)
	}
}

// lastChunk tells whether a read ends with the end of the stream, after which the connection may stay open.
func lastChunk(p []byte) bool {
	const end = "0\r\n\r\n"
	return string(p) == end || bytes.HasSuffix(p, []byte("\r\n"+end))
}

// events counts the events in what was read of a stream.
func (w *watchers) events(one *watcher, p []byte) {
	if n := len(w.options.mark); n > 0 {
		// A mark may be in two reads.
		seam := append(one.last, p[:min(len(p), n-1)]...)
		events := bytes.Count(p, []byte(w.options.mark)) + bytes.Count(seam, []byte(w.options.mark))
		if len(p) >= n-1 {
			seam = p
		}
		one.last = append(one.last[:0], seam[max(0, len(seam)-(n-1)):]...)
		w.count(one, events, len(p))
		return
	}
	events := bytes.Count(p, []byte("\n")) - bytes.Count(p, []byte("\r\n"))
	if one.cr && p[0] == '\n' {
		events--
	}
	one.cr = p[len(p)-1] == '\r'
	w.count(one, max(0, events), len(p))
}

// count notes that events came to a watcher.
func (w *watchers) count(one *watcher, events, size int) {
	w.bytes.Add(int64(size))
	if events == 0 {
		return
	}
	if w.options.begun != nil {
		now := time.Now()
		for k := range events {
			if at := w.options.begun(one.number, one.received+k); !at.IsZero() {
				one.latencies = append(one.latencies, now.Sub(at))
			}
		}
	}
	one.received += events
	w.delivered.Add(int64(events))
}

// await returns once n events were delivered in all, or none has come for long, and how many were.
func (w *watchers) await(ctx context.Context, n int64) (int64, error) {
	const patience, lessPatience = 20 * time.Second, 2 * time.Second
	seen, at := w.delivered.Load(), time.Now()
	for {
		now := w.delivered.Load()
		if now >= n {
			return now, nil
		}
		if now != seen {
			seen, at = now, time.Now()
		}
		if since := time.Since(at); since > patience || since > lessPatience && w.closed.Load() > 0 {
			return now, nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return now, err
		}
	}
}

// fastWindow is how many events watchers may be behind, on average, when events come as fast as possible. With more,
// kube-apiserver ends the watches of those who are slower than others.
const fastWindow = 8

// keepUp waits while the k-th event would be more ahead of the watchers than that.
func (w *watchers) keepUp(ctx context.Context, k int64) error {
	for k-w.delivered.Load()/int64(w.options.n) > fastWindow && w.closed.Load() == 0 {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// close ends all watches. Latencies may be read afterwards.
func (w *watchers) close() {
	w.ending.Store(true)
	for _, c := range w.conns {
		if c != nil {
			c.close()
		}
	}
	w.readers.Wait()
}

func (w *watchers) latencies() []time.Duration {
	var out []time.Duration
	for _, one := range w.all {
		out = append(out, one.latencies...)
	}
	return out
}
