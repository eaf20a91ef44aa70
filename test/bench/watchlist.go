package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
)

// endMark is in the bookmark that ends the initial events, both in JSON and in protobuf.
const endMark = "k8s.io/initial-events-end"

// An endFinder receives the body of a watch and calls found once, when its initial events end.
type endFinder struct {
	found func()
	tail  []byte // the last bytes, in which the mark may begin
	over  bool
	// pipe leads to a goroutine that decompresses, if needed. The goroutine ends with the watch.
	pipe *io.PipeWriter
}

func newEndFinder(encoding string, found func()) *endFinder {
	f := &endFinder{found: found}
	if encoding != "gzip" {
		return f
	}
	compressed, in := io.Pipe()
	plain := &endFinder{found: func() {
		found()
		_ = compressed.Close() // the rest is not needed
	}}
	f.pipe = in
	go func() {
		z, err := gzip.NewReader(compressed)
		if err == nil {
			_, err = io.Copy(plain, z)
		}
		_ = compressed.CloseWithError(err)
	}()
	return f
}

func (f *endFinder) Write(p []byte) (int, error) {
	if f.pipe != nil {
		return f.pipe.Write(p)
	}
	if f.over {
		return len(p), nil
	}
	const most = len(endMark) - 1
	seam := append(f.tail, p[:min(len(p), most)]...)
	if bytes.Contains(seam, []byte(endMark)) || bytes.Contains(p, []byte(endMark)) {
		f.over = true
		f.found()
		return len(p), nil
	}
	last := seam
	if len(p) > most {
		last = p
	}
	f.tail = append(f.tail[:0], last[max(0, len(last)-most):]...)
	return len(p), nil
}

// close ends the goroutine of a watch that ended without the mark.
func (f *endFinder) close() {
	if f.pipe != nil {
		_ = f.pipe.Close()
	}
}

// A listWatcher is a caller of watch lists over HTTP/1.1, where canceling a watch closes its
// connection. It opens a connection for each watch in advance, so that connecting is not counted.
type listWatcher struct {
	ctx       context.Context
	server    *server
	ready     []*conn
	requested []*conn // connections with outstanding responses
}

// open opens connections until n are ready.
func (l *listWatcher) open(n int) error {
	for len(l.ready) < n {
		c, err := dial(l.ctx, l.server, 64<<10)
		if err != nil {
			return err
		}
		l.ready = append(l.ready, c)
	}
	return nil
}

func (l *listWatcher) send(spec requestSpec) error {
	if err := l.open(1); err != nil {
		return err
	}
	c := l.ready[0]
	l.ready, l.requested = l.ready[1:], append(l.requested, c)
	return c.send(spec)
}

func (l *listWatcher) receive() (response, error) {
	c := l.requested[0]
	l.requested = l.requested[1:]
	defer c.close()
	r, err := c.respond()
	if err != nil || r.status != 200 {
		return r, errors.Join(err, c.body(&r))
	}
	found := make(chan struct{})
	finder := newEndFinder(r.encoding, func() {
		close(found)
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	})
	defer finder.close()
	c.keep = finder
	err = c.body(&r)
	r.head, r.took = c.head, c.sent.next()
	select {
	case <-found:
		return r, nil
	default:
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.Join(errors.New("the watch ended before its initial events did"), err)
	}
	return r, err
}

func (l *listWatcher) close() {
	for _, c := range append(l.ready, l.requested...) {
		c.close()
	}
}
