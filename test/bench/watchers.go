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

// watchers are open watches of one server. Their events are counted and dropped.
type watchers struct {
	options   watchOptions
	all       []*watcher
	conns     []watchConn
	delivered atomic.Int64
	bytes     atomic.Int64
	closed    atomic.Int64 // watches that the server ended
	readers   sync.WaitGroup
	ending    atomic.Bool
}

// A watcher is one watch. Only the reader of its connection uses the fields after number.
type watcher struct {
	number    int
	received  int
	cr        bool   // the last byte was a carriage return
	last      []byte // possible beginning of a mark
	latencies []time.Duration
}

// A watchConn is a connection with watches.
type watchConn interface {
	// read counts events until the server or close ends the watches.
	read()
	close()
}

// watchOptions describe the watches to open.
type watchOptions struct {
	server *server
	n      int
	over   Protocol
	// perConn is how many share an HTTP/2 connection; zero means one.
	perConn int
	// request returns the request of the i-th watcher; nil means HTTP/2 connections without
	// watches.
	request func(i int) requestSpec
	// buffer is the size of a connection's reads.
	buffer int
	// begun, if set, returns when the write behind a watcher's k-th event began; the zero time if
	// unknown.
	begun func(watcher, k int) time.Time
	// mark begins each event and occurs nowhere else; empty for events that end in a newline.
	mark string
	// stuck is how many additional, uncounted watches on each HTTP/2 connection are never read.
	stuck int
}

// openers is how many connections are opened at a time.
const openers = 16

// openWatchers opens the watches and returns once every response has begun.
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

// open opens a connection and its watches. It returns either a connection or an error.
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

// openStream sends the i-th watch and returns once its response has begun.
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

// read counts events. Each event ends in a newline. The only other newlines are those of chunked
// encoding, which follow a carriage return.
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

// ended counts a watch that ended before it was closed.
func (w *watchers) ended() {
	if !w.ending.Load() {
		w.closed.Add(1)
	}
}

// lastChunk reports whether a read ends with the last chunk, after which the connection may stay
// open.
func lastChunk(p []byte) bool {
	const end = "0\r\n\r\n"
	return string(p) == end || bytes.HasSuffix(p, []byte("\r\n"+end))
}

// events counts the events in a piece of a stream.
func (w *watchers) events(one *watcher, p []byte) {
	if n := len(w.options.mark); n > 0 {
		// A mark may be split between two reads.
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

// count records that events arrived at a watcher.
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

// await waits until n events were delivered in total or none has arrived for a while, and returns
// how many were delivered.
func (w *watchers) await(ctx context.Context, n int64) (int64, error) {
	const waitTimeout, shortTimeout = 20 * time.Second, 2 * time.Second
	seen, at := w.delivered.Load(), time.Now()
	for {
		now := w.delivered.Load()
		if now >= n {
			return now, nil
		}
		if now != seen {
			seen, at = now, time.Now()
		}
		if since := time.Since(at); since > waitTimeout || since > shortTimeout && w.closed.Load() > 0 {
			return now, nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return now, err
		}
	}
}

// fastWindow is how many events watchers may lag on average when events come as fast as possible.
// With more, kube-apiserver ends the watches of slower clients.
const fastWindow = 8

// keepUp waits while the k-th event would be more than fastWindow ahead of the watchers.
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
