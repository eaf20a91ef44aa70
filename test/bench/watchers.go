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
	delivered atomic.Int64
	bytes     atomic.Int64
	closed    atomic.Int64 // those that the server ended
	readers   sync.WaitGroup
	ending    atomic.Bool
}

// A watcher is one of them. Its reader alone uses the fields below conn.
type watcher struct {
	number    int
	conn      *conn
	received  int
	cr        bool // the last byte was a carriage return
	latencies []time.Duration
}

// watchOptions say what is opened.
type watchOptions struct {
	server *server
	n      int
	// request of the i-th watcher.
	request func(i int) []byte
	// buffer is the size of a watcher's reads.
	buffer int
	// begun, if set, tells when the write began that a watcher's k-th event comes from; the zero time for unknown.
	begun func(watcher, k int) time.Time
}

// openers is how many watches are opened at a time.
const openers = 16

// openWatchers returns when every watch's answer has begun.
func openWatchers(ctx context.Context, o watchOptions) (*watchers, error) {
	w := &watchers{options: o, all: make([]*watcher, o.n)}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, openers)
	for opener := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < o.n && errs[opener] == nil; i = int(next.Add(1)) - 1 {
				w.all[i], errs[opener] = w.open(ctx, i)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.close()
		return nil, err
	}
	for _, one := range w.all {
		w.readers.Go(func() { w.read(one) })
	}
	return w, nil
}

func (w *watchers) open(ctx context.Context, i int) (*watcher, error) {
	c, err := dial(ctx, w.options.server, 4<<10)
	if err != nil {
		return nil, err
	}
	if err := c.nc.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return nil, err
	}
	r, err := c.begin(w.options.request(i))
	if err == nil && (r.status != 200 || !r.chunked) {
		_ = c.body(&r)
		err = fmt.Errorf("watch %d: status %d: %.300s", i, r.status, c.head)
	}
	if err == nil {
		err = c.nc.SetDeadline(time.Time{})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return &watcher{number: i, conn: c}, nil
}

// read counts events until the stream ends. Each ends in a newline, as does nothing else but, after a carriage
// return, the framing of chunks.
func (w *watchers) read(one *watcher) {
	buf := make([]byte, w.options.buffer)
	for {
		n, err := one.conn.br.Read(buf)
		if n > 0 {
			w.events(one, buf[:n])
		}
		if err != nil || lastChunk(buf[:n]) {
			if !w.ending.Load() {
				w.closed.Add(1)
			}
			return
		}
	}
}

// lastChunk tells whether a read ends with the end of the stream, after which the connection may stay open.
func lastChunk(p []byte) bool {
	const end = "0\r\n\r\n"
	return string(p) == end || bytes.HasSuffix(p, []byte("\r\n"+end))
}

func (w *watchers) events(one *watcher, p []byte) {
	events := bytes.Count(p, []byte("\n")) - bytes.Count(p, []byte("\r\n"))
	if one.cr && p[0] == '\n' {
		events--
	}
	one.cr = p[len(p)-1] == '\r'
	if events <= 0 {
		w.bytes.Add(int64(len(p)))
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
	w.bytes.Add(int64(len(p)))
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
	for _, one := range w.all {
		if one != nil {
			one.conn.close()
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
