package h2

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/writertest"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
)

// TestHTTP2QueuedFramesArriveWhole tries every size around the limit of the queue: either the delivery is not taken, or
// its last byte arrives too.
func TestHTTP2QueuedFramesArriveWhole(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = c.WriteWindowUpdate(0, 1<<30)
	c.Request("GET", "/", false)
	w := edgetest.Receive(t, edgetest.Receive(t, streams, "stream").Writer, "writer").(api.SharedWriter)
	text := make([]byte, queueLimit)
	taken := 0
	for size := queueLimit - 200; size <= queueLimit; size++ {
		want := 0
		if w.QueueFrames([][]byte{text[:size/2], text[size/2 : size]}) {
			want = size
			taken++
		}
		w.Flush()
		if err := c.WritePing(false, [8]byte{1}); err != nil {
			t.Fatal(err)
		}
		got := 0
		c.Until(func(frame http2.Frame) bool {
			switch f := frame.(type) {
			case *http2.DataFrame:
				got += len(f.Data())
			case *http2.PingFrame:
				return f.IsAck()
			}
			return false
		})
		if got != want {
			t.Errorf("%d bytes: %d of %d arrived", size, got, want)
		}
	}
	if taken < 100 {
		t.Errorf("only %d deliveries were taken", taken)
	}
}

// limits are the sizes at which the writers of this package do something else.
var limits = []int{
	leastData, edge.SmallBuffer, edge.SmallBuffer - frameHead, edge.RecordSize, edge.LargeBuffer, quantum, initialWindow, frameSize,
	queueLimit - 8*frameHead, queueLimit, edge.WriteSlice, edge.RecordsBuffer,
}

// TestWritersDeliverWhatTheyAccept runs writertest over every transport of this package.
func TestWritersDeliverWhatTheyAccept(t *testing.T) {
	for name, tc := range map[string]struct {
		streams int
		open    func(ts *writersServer) func(t *testing.T) writertest.Pipe
	}{
		"HTTP/1.0":                             {1, func(ts *writersServer) opener { return ts.http1Stream("1.0", false) }},
		"chunked":                              {1, func(ts *writersServer) opener { return ts.http1Stream("1.1", false) }},
		"chunked, TLS":                         {1, func(ts *writersServer) opener { return ts.http1Stream("1.1", true) }},
		"chunked, TLS, narrow socket":          {1, func(ts *writersServer) opener { return ts.narrow().http1Stream("1.1", true) }},
		"duplex":                               {1, func(ts *writersServer) opener { return ts.http1Duplex("/duplex", false) }},
		"duplex, TLS":                          {1, func(ts *writersServer) opener { return ts.http1Duplex("/duplex", true) }},
		"WebSocket":                            {1, func(ts *writersServer) opener { return overWebSocket(ts.http1Duplex("/websocket", true)) }},
		"HTTP/2":                               {4, func(ts *writersServer) opener { return ts.http2Stream("/stream", 1<<30) }},
		"HTTP/2, narrow windows":               {4, func(ts *writersServer) opener { return ts.http2Stream("/stream", 5000) }},
		"HTTP/2, narrow socket":                {4, func(ts *writersServer) opener { return ts.narrow().http2Stream("/stream", 1<<30) }},
		"HTTP/2, narrow windows, plain socket": {4, func(ts *writersServer) opener { return ts.narrow().plain().http2Stream("/stream", 100_000) }},
		"HTTP/2, much held":                    {4, func(ts *writersServer) opener { return ts.crowded().http2Stream("/stream", 1<<30) }},
		"HTTP/2 duplex":                        {2, func(ts *writersServer) opener { return ts.http2Stream("/duplex", 100_000) }},
		"upgrade":                              {1, func(ts *writersServer) opener { return ts.http1Duplex("/upgrade", true) }},
		"HTTP/2 upgrade":                       {2, func(ts *writersServer) opener { return ts.http2Stream("/upgrade", 100_000) }},
		"HTTP/2 WebSocket":                     {2, func(ts *writersServer) opener { return overWebSocket(ts.http2Stream("/websocket", 1<<30)) }},
		"body":                                 {2, func(ts *writersServer) opener { return ts.bodies(false) }},
		"body, much held":                      {2, func(ts *writersServer) opener { return ts.crowded().bodies(false) }},
		"HTTP/2 body":                          {2, func(ts *writersServer) opener { return ts.bodies(true) }},
		"HTTP/2 body, much held":               {2, func(ts *writersServer) opener { return ts.crowded().bodies(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: limits, Deliveries: 40, Streams: tc.streams}
			writertest.Run(t, o, tc.open(startWriters(t)))
		})
	}
}

// TestServersReceiveWhatIsSent runs writertest in the other direction: the client writes to a Duplex or an Upgrade.
func TestServersReceiveWhatIsSent(t *testing.T) {
	for name, tc := range map[string]struct {
		streams int
		open    func(ts *writersServer) opener
	}{
		"duplex":         {1, func(ts *writersServer) opener { return ts.sentBy(ts.http1Duplex("/duplex", false)) }},
		"duplex, TLS":    {1, func(ts *writersServer) opener { return ts.sentBy(ts.http1Duplex("/duplex", true)) }},
		"upgrade":        {1, func(ts *writersServer) opener { return ts.sentBy(ts.http1Duplex("/upgrade", true)) }},
		"HTTP/2 duplex":  {2, func(ts *writersServer) opener { return ts.sentBy(ts.http2Stream("/duplex", 100_000)) }},
		"HTTP/2 upgrade": {2, func(ts *writersServer) opener { return ts.sentBy(ts.http2Stream("/upgrade", 100_000)) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: append([]int{512, uploadBuffer}, limits...), Deliveries: 60, Streams: tc.streams}
			writertest.Run(t, o, tc.open(startWriters(t)))
		})
	}
}

// opener opens a stream that writertest tests.
type opener = func(t *testing.T) writertest.Pipe

// writersServer is a server whose streams and bodies are written by writertest.
type writersServer struct {
	*edgetest.Server
	t       *testing.T
	writers chan api.StreamWriter
	// received are what the clients of Duplexes and Upgrades send.
	received chan io.Reader
	// bodyWriters are those of bodies, by their number of those that were opened.
	bodyWriters sync.Map
	opened      atomic.Int64
	// dialer opens connections to it. unencrypted says that HTTP/2 needs no TLS.
	dialer      net.Dialer
	unencrypted bool
}

func startWriters(t *testing.T) *writersServer {
	ts := &writersServer{t: t, writers: make(chan api.StreamWriter, 1), received: make(chan io.Reader, 16)}
	panics := contain.New(nil, nil)
	ts.Server = edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo("user")
		path, query, _ := strings.Cut(r.Path+"?"+r.RawQuery, "?")
		started := &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { ts.writers <- w }}
		switch path {
		case "/bodies":
			return ts.nextBody(query)
		case "/duplex":
			d := &writersDuplex{Stream: started}
			d.arrived.L = &d.mu
			ts.received <- d
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Stream: d}
		case "/upgrade":
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Upgrade: func(nc net.Conn) {
				ts.received <- nc
				w := &connWriter{nc: nc, over: make(chan struct{})}
				ts.writers <- w
				<-w.over
			}}
		case "/websocket":
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Stream: websocket.New(started, panics)}
		}
		return &api.Response{Status: 200, Stream: started}
	}, func(o *edge.Options) { o.WriteTimeout, o.PingInterval = edgetest.Timeout, time.Hour }) // no PING flushes what was forgotten
	return ts
}

// writersDuplex is a Duplex that keeps what its client sends until it is read.
type writersDuplex struct {
	api.Stream
	mu      sync.Mutex
	arrived sync.Cond
	buf     []byte
	over    bool
}

func (d *writersDuplex) Receive(p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buf = append(d.buf, p...)
	d.arrived.Broadcast()
	return nil
}

func (d *writersDuplex) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.arrived.Broadcast()
}

// Read implements io.Reader.
func (d *writersDuplex) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.buf) == 0 {
		if d.over {
			return 0, io.EOF
		}
		d.arrived.Wait()
	}
	n := copy(p, d.buf)
	d.buf = d.buf[:copy(d.buf, d.buf[n:])]
	return n, nil
}

// connWriter writes to a connection, until it is closed.
type connWriter struct {
	nc    io.WriteCloser
	over  chan struct{}
	close sync.Once
}

func (w *connWriter) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		if n, err := w.nc.Write(f); err != nil || n != len(f) {
			return errors.Join(io.ErrShortWrite, err)
		}
	}
	return nil
}

// Close ends the sending side, where that is possible.
func (w *connWriter) Close() {
	w.close.Do(func() {
		if half, ok := w.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			_ = w.nc.Close()
		}
		close(w.over)
	})
}

func (w *connWriter) Abort() { w.Close() }

// sentBy turns a stream round: its client writes, and the server reads.
func (ts *writersServer) sentBy(open opener) opener {
	return func(t *testing.T) writertest.Pipe {
		p := open(t)
		conn, ok := p.Client.(io.WriteCloser)
		if !ok {
			t.Fatal("the client cannot send")
		}
		t.Cleanup(p.Writer.Close)
		return writertest.Pipe{Writer: &connWriter{nc: conn, over: make(chan struct{})}, Client: edgetest.Receive(t, ts.received, "received bytes")}
	}
}

// narrow makes the sockets take little that is not read.
func (ts *writersServer) narrow() *writersServer {
	for addr, kind := range map[*string]api.Listener{&ts.Secure: api.ListenerSecure, &ts.Sidecar: api.ListenerSidecar} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			ts.t.Fatal(err)
		}
		if err := ts.Serve(edgetest.Narrow{Listener: ln}, kind); err != nil {
			ts.t.Fatal(err)
		}
		*addr = ln.Addr().String()
	}
	ts.dialer.Control = edgetest.NarrowSocket
	return ts
}

// plain has HTTP/2 clients use no TLS.
func (ts *writersServer) plain() *writersServer {
	ts.unencrypted = true
	return ts
}

// crowded changes all the time how much memory is held for other clients, and so how much may be queued.
func (ts *writersServer) crowded() *writersServer {
	others := ts.Buffers.Anonymous()
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, held := range []int64{edge.RecordsAllowed, edge.LargeAllowed, edge.BufferBudget} {
				ts.Buffers.Hold(others, held)
				runtime.Gosched()
				ts.Buffers.Hold(others, -held)
			}
			select {
			case <-over:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	})
	ts.t.Cleanup(func() { close(over); wg.Wait() })
	return ts
}

// connect opens a connection whose writes have no deadline.
func (ts *writersServer) connect(secure bool, protocol string) net.Conn {
	ts.t.Helper()
	var nc net.Conn
	var err error
	if secure {
		config := &tls.Config{RootCAs: ts.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}}
		nc, err = tls.DialWithDialer(&ts.dialer, "tcp", ts.Secure, config)
	} else {
		nc, err = ts.dialer.Dial("tcp", ts.Sidecar)
	}
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = nc.Close() })
	return nc
}

func (ts *writersServer) http1Stream(version string, secure bool) opener {
	return func(t *testing.T) writertest.Pipe {
		nc := ts.connect(secure, "http/1.1")
		if _, err := fmt.Fprintf(nc, "GET /stream HTTP/%s\r\nHost: x\r\n\r\n", version); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		return writertest.Pipe{Writer: edgetest.Receive(t, ts.writers, "writer"), Client: resp.Body}
	}
}

func (ts *writersServer) http1Duplex(path string, secure bool) opener {
	return func(t *testing.T) writertest.Pipe {
		nc := ts.connect(secure, "http/1.1")
		if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(nc)
		if _, err := http.ReadResponse(br, nil); err != nil {
			t.Fatal(err)
		}
		return writertest.Pipe{Writer: edgetest.Receive(t, ts.writers, "writer"), Client: struct {
			io.Reader
			io.WriteCloser
		}{br, nc}}
	}
}

// http2Stream opens streams of one connection, on which the client takes at most window bytes that are not read.
func (ts *writersServer) http2Stream(path string, window int) opener {
	c := &windowClient{window: window, streams: make(map[uint32]*windowReader), initial: initialWindow, mayFill: initialWindow}
	c.arrived.L = &c.mu
	nc := ts.connect(!ts.unencrypted, "h2")
	c.frames = edgetest.NewFrameConn(ts.t, nc, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(window)}) //nolint:gosec // positive
	_ = nc.SetDeadline(time.Time{})
	if more := window - initialWindow; more > 0 {
		_ = c.frames.WriteWindowUpdate(0, uint32(more)) //nolint:gosec // positive
	}
	var wg sync.WaitGroup
	wg.Go(c.run)
	ts.t.Cleanup(func() { _ = nc.Close(); wg.Wait() })
	return func(t *testing.T) writertest.Pipe {
		r := c.open(path)
		return writertest.Pipe{Writer: edgetest.Receive(t, ts.writers, "writer"), Client: r}
	}
}

// overWebSocket sends each delivery as a message, and pings now and then.
func overWebSocket(open opener) opener {
	return func(t *testing.T) writertest.Pipe {
		p := open(t)
		conn, ok := p.Client.(io.ReadWriter)
		if !ok {
			t.Fatal("the client cannot send")
		}
		p.Client = &messageReader{conn: conn, br: bufio.NewReader(conn)}
		m := messageWriter{p.Writer}
		if shared, ok := p.Writer.(api.SharedWriter); ok {
			p.Writer = sharedMessageWriter{m, shared}
		} else {
			p.Writer = m
		}
		return p
	}
}

type messageWriter struct{ api.StreamWriter }

func message(frames [][]byte) [][]byte {
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	return append([][]byte{websocket.AppendBinaryHead(nil, size)}, frames...)
}

func (m messageWriter) WriteFrames(frames [][]byte) error {
	return m.StreamWriter.WriteFrames(message(frames))
}

type sharedMessageWriter struct {
	messageWriter
	shared api.SharedWriter
}

func (m sharedMessageWriter) QueueFrames(frames [][]byte) bool {
	return m.shared.QueueFrames(message(frames))
}

func (m sharedMessageWriter) Flush() { m.shared.Flush() }

// messageReader reads what is in the messages of a WebSocket.
type messageReader struct {
	conn   io.Writer
	br     *bufio.Reader
	left   int // of the message
	frames int
}

// Read implements io.Reader.
func (m *messageReader) Read(p []byte) (int, error) {
	for m.left == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n, err := m.br.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

// next reads the head of the next message.
func (m *messageReader) next() error {
	if m.frames++; m.frames%8 == 0 {
		_, _ = io.WriteString(m.conn, edgetest.MaskedFrame(9, "ping")) // the server may have ended its side
	}
	head := make([]byte, 2, 10)
	if _, err := io.ReadFull(m.br, head); err != nil {
		return err
	}
	size := int(head[1])
	if more := map[int]int{126: 2, 127: 8}[size]; more > 0 {
		length := make([]byte, 8)
		if _, err := io.ReadFull(m.br, length[8-more:]); err != nil {
			return err
		}
		size = int(binary.BigEndian.Uint64(length)) //nolint:gosec // what the test wrote
	}
	switch head[0] {
	case 0x82:
		m.left = size
		return nil
	case 0x8a:
		_, err := m.br.Discard(size)
		return err
	case 0x88:
		return io.EOF
	}
	return fmt.Errorf("a frame begins with %x", head)
}

// bodies sends each delivery as a response of its own, by all of the ways to give a body in turn.
func (ts *writersServer) bodies(h2 bool) opener {
	return func(t *testing.T) writertest.Pipe {
		w := &bodiesWriter{next: make(chan [][]byte), written: make(chan error)}
		id := strconv.FormatInt(ts.opened.Add(1), 10)
		ts.bodyWriters.Store(id, w)
		c := ts.Client(h2)
		c.Timeout = 0
		return writertest.Pipe{Writer: w, Client: &bodiesReader{client: c, url: "https://" + ts.Secure + "/bodies?" + id}}
	}
}

// nextBody is the response with the next delivery of a bodiesWriter, or a 204 after the last.
func (ts *writersServer) nextBody(id string) *api.Response {
	v, _ := ts.bodyWriters.Load(id)
	w := v.(*bodiesWriter)
	frames, ok := <-w.next
	if !ok {
		return &api.Response{Status: 204}
	}
	resp := &api.Response{Status: 200, Length: -1, Done: func(_ int64, err error) { w.written <- err }}
	body := edgetest.WriterTo(func(dst io.Writer) (n int64, err error) {
		pieces, _ := dst.(api.PiecesWriter)
		for rest := frames; len(rest) > 0 && err == nil; {
			k, m := 1, 0
			if pieces != nil {
				k = min(3, len(rest))
				m, err = pieces.WritePieces(rest[:k])
			} else {
				m, err = dst.Write(rest[0])
			}
			n, rest = n+int64(m), rest[k:]
		}
		return n, err
	})
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	switch w.count++; w.count % 5 {
	case 0:
		resp.Body = slices.Concat(frames...)
	case 1:
		resp.BodyTo, resp.Length = body, int64(size)
	case 2:
		resp.BodyTo, resp.Length, resp.Ready = body, int64(size), true
	case 3:
		resp.BodyTo, resp.Ready = body, true
	case 4:
		resp.BodyTo = body
	}
	return resp
}

// bodiesWriter is the writer of bodies.
type bodiesWriter struct {
	next    chan [][]byte
	written chan error
	count   int
	close   sync.Once
}

func (w *bodiesWriter) WriteFrames(frames [][]byte) error {
	w.next <- frames
	return <-w.written
}

func (w *bodiesWriter) Close() { w.close.Do(func() { close(w.next) }) }
func (w *bodiesWriter) Abort() { w.Close() }

// bodiesReader reads one body after the other.
type bodiesReader struct {
	client *http.Client
	url    string
	body   io.ReadCloser
}

// Read implements io.Reader.
func (r *bodiesReader) Read(p []byte) (int, error) {
	for {
		if r.body == nil {
			resp, err := r.client.Get(r.url)
			if err != nil {
				return 0, err
			}
			r.body = resp.Body
			if resp.StatusCode == http.StatusNoContent {
				return 0, errors.Join(io.EOF, r.body.Close())
			}
		}
		n, err := r.body.Read(p)
		if err == io.EOF { //nolint:errorlint // Readers return it bare.
			err = r.body.Close()
			r.body = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
