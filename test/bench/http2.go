package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// wideWindow is so large that the server never waits for the client, which drops everything it
	// receives.
	wideWindow = 1 << 30
	// narrowWindow is HTTP/2's default window.
	narrowWindow = 1<<16 - 1
)

// An http2Conn is a client's connection with any number of streams. One goroutine reads the frames
// and dispatches them to the streams. Bodies are dropped, so that the client is as cheap as over
// HTTP/1.1.
type http2Conn struct {
	server  *server
	nc      *conn // only the reading goroutine uses its reader
	reading chan struct{}

	// mu guards writing and the fields below.
	mu      sync.Mutex
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	streams map[uint32]*http2Stream
	used    uint32 // bytes of the connection's window
	err     error  // set once the connection has failed
}

// An http2Stream is one request and the callbacks for its response, which the reading goroutine
// calls.
type http2Stream struct {
	id       uint32
	begun    time.Time
	response response
	head     [headBytes]byte
	onHead   func(*http2Stream)
	onData   func(*http2Stream, []byte)
	onEnd    func(*http2Stream, error)
}

// dialHTTP2 opens a connection with the given initial window for each stream.
func dialHTTP2(ctx context.Context, s *server, bufferSize int, window uint32) (*http2Conn, error) {
	over := *s
	if s.tls != nil {
		over.tls = s.tls.Clone()
		over.tls.NextProtos = []string{http2.NextProtoTLS}
	}
	nc, err := dial(ctx, &over, bufferSize)
	if err != nil {
		return nil, err
	}
	c := &http2Conn{server: s, nc: nc, reading: make(chan struct{}), next: 1, streams: make(map[uint32]*http2Stream)}
	if err := c.greet(window); err != nil {
		nc.close()
		return nil, fmt.Errorf("HTTP/2 with %s: %w", s.name, err)
	}
	go c.read()
	return c, nil
}

// greet exchanges settings. It waits for the server's settings, because they limit header
// compression.
func (c *http2Conn) greet(window uint32) error {
	if t, ok := c.nc.nc.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		return errors.New("the server does not support it")
	}
	c.framer = http2.NewFramer(c.nc.nc, c.nc.br)
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	if err := c.nc.nc.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.nc.nc, http2.ClientPreface); err != nil {
		return err
	}
	if err := errors.Join(
		c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		c.framer.WriteWindowUpdate(0, wideWindow),
	); err != nil {
		return err
	}
	f, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	if _, ok := f.(*http2.SettingsFrame); !ok {
		return fmt.Errorf("its first frame is %s", f.Header())
	}
	return errors.Join(c.control(f), c.nc.nc.SetDeadline(time.Time{}))
}

// open sends a request without a body and enlarges its stream's window to the given size.
func (c *http2Conn) open(spec requestSpec, st *http2Stream, window uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	st.id, st.begun = c.next, time.Now()
	st.response = response{length: -1, head: st.head[:0]}
	c.next += 2
	c.streams[st.id] = st
	c.block.Reset()
	for _, f := range c.server.fields(spec) {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // writing to a Buffer does not fail
	}
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: c.block.Bytes(), EndStream: true, EndHeaders: true})
	if err == nil && window > 0 {
		err = c.framer.WriteWindowUpdate(st.id, window)
	}
	return err
}

// fields returns the header fields of a request over HTTP/2.
func (s *server) fields(spec requestSpec) [][2]string {
	scheme := "https"
	if s.tls == nil {
		scheme = "http"
	}
	spec = spec.complete()
	out := [][2]string{{":method", spec.method}, {":scheme", scheme}, {":authority", s.addr}, {":path", spec.path},
		{"user-agent", userAgent}, {"accept", spec.accept}, {"accept-encoding", spec.encoding()}}
	if spec.ifNoneMatch != "" {
		out = append(out, [2]string{"if-none-match", spec.ifNoneMatch})
	}
	if s.token != "" {
		out = append(out, [2]string{"authorization", "Bearer " + s.token})
	}
	return out
}

// cancel resets a stream that has not ended.
func (c *http2Conn) cancel(st *http2Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[st.id] != st {
		return nil
	}
	delete(c.streams, st.id)
	return c.framer.WriteRSTStream(st.id, http2.ErrCodeCancel)
}

// read runs in the reading goroutine.
func (c *http2Conn) read() {
	defer close(c.reading)
	for {
		f, err := c.framer.ReadFrame()
		if err == nil {
			err = c.frame(f)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// fail ends all streams with an error.
func (c *http2Conn) fail(err error) {
	c.mu.Lock()
	c.err = fmt.Errorf("HTTP/2 connection: %w", err)
	left := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, st := range left {
		st.onEnd(st, c.err)
	}
}

func (c *http2Conn) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.MetaHeadersFrame:
		if st := c.taken(f.StreamID, f.StreamEnded(), nil); st != nil {
			st.fields(f.Fields)
			if st.response.status >= 200 && st.onHead != nil {
				st.onHead(st)
				st.onHead = nil
			}
			if f.StreamEnded() {
				st.onEnd(st, nil)
			}
		}
	case *http2.RSTStreamFrame:
		if st := c.taken(f.StreamID, true, nil); st != nil {
			st.onEnd(st, fmt.Errorf("stream reset: %s", f.ErrCode))
		}
	default:
		return c.control(f)
	}
	return nil
}

func (c *http2Conn) data(f *http2.DataFrame) error {
	if err := c.grant(f.Length); err != nil {
		return err
	}
	p := f.Data()
	st := c.taken(f.StreamID, f.StreamEnded(), p)
	if st == nil {
		return nil
	}
	if st.onData != nil && len(p) > 0 {
		st.onData(st, p)
	}
	if f.StreamEnded() {
		st.onEnd(st, nil)
	}
	return nil
}

// taken counts the data that arrived for a stream and returns the stream, or nil if it is not open.
// It forgets a stream that has ended. It no longer changes the response of a canceled stream.
func (c *http2Conn) taken(id uint32, ended bool, p []byte) *http2Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[id]
	if ended {
		delete(c.streams, id)
	}
	if st != nil {
		st.response.bytes += int64(len(p))
		if room := headBytes - len(st.response.head); room > 0 {
			st.response.head = append(st.response.head, p[:min(room, len(p))]...)
		}
	}
	return st
}

// grant returns consumed bytes to the connection's window, but rarely.
func (c *http2Conn) grant(n uint32) error {
	if c.used += n; c.used < wideWindow/4 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.used = c.used, 0
	return c.framer.WriteWindowUpdate(0, n)
}

// control handles frames that belong to no stream.
func (c *http2Conn) control(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if size, ok := f.Value(http2.SettingHeaderTableSize); ok {
			c.encoder.SetMaxDynamicTableSizeLimit(size)
		}
		return c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("GOAWAY %s %q", f.ErrCode, f.DebugData())
	}
	return nil
}

// close closes the connection and waits for its reading goroutine.
func (c *http2Conn) close() {
	c.nc.close()
	<-c.reading
}

func (st *http2Stream) fields(fields []hpack.HeaderField) {
	for _, f := range fields {
		if f.Name == ":status" {
			st.response.status, _ = strconv.Atoi(f.Value)
			continue
		}
		st.response.field([]byte(f.Name), []byte(f.Value))
	}
}

// An http2Caller is a caller over HTTP/2.
type http2Caller struct {
	conn      *http2Conn
	responses chan http2Response
}

type http2Response struct {
	stream *http2Stream
	err    error
}

func dialHTTP2Caller(ctx context.Context, s *server) (*http2Caller, error) {
	c, err := dialHTTP2(ctx, s, 64<<10, wideWindow)
	if err != nil {
		return nil, err
	}
	// As many as the streams that a server allows, so that the reading goroutine never waits for
	// the receiver.
	return &http2Caller{conn: c, responses: make(chan http2Response, 250)}, nil
}

func (c *http2Caller) send(spec requestSpec) error {
	if err := c.conn.nc.nc.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	st := &http2Stream{onEnd: func(st *http2Stream, err error) {
		st.response.took = time.Since(st.begun)
		c.responses <- http2Response{st, err}
	}}
	if spec.watchList {
		c.untilEnd(st)
	}
	return c.conn.open(spec, st, 0)
}

// untilEnd makes the response, and the stream, end with the initial events.
func (c *http2Caller) untilEnd(st *http2Stream) {
	var over sync.Once
	var finder *endFinder
	finish := st.onEnd
	st.onEnd = func(st *http2Stream, err error) {
		if finder != nil {
			finder.close()
		}
		over.Do(func() {
			if err == nil && st.response.status == 200 {
				err = errors.New("the watch ended before its initial events did")
			}
			finish(st, err)
		})
	}
	st.onData = func(st *http2Stream, p []byte) {
		if finder == nil {
			finder = newEndFinder(st.response.encoding, func() {
				over.Do(func() { finish(st, c.conn.cancel(st)) })
			})
		}
		_, _ = finder.Write(p)
	}
}

func (c *http2Caller) receive() (response, error) {
	a := <-c.responses
	return a.stream.response, a.err
}

func (c *http2Caller) close() { c.conn.close() }
