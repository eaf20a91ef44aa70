package edge

// x/net calls its server deprecated in favour of net/http's, which takes listeners
// but no connection whose ALPN has spoken already, and whose goroutines nobody
// else can own. It is the same code, and a wrapper of it from Go 1.27 on.
//lint:file-ignore SA1019 See above.

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
)

// http2Server is what the HTTP/2 connections of a Server share.
type http2Server struct {
	srv *Server
	// h2 serves connections; base holds what net/http's Server would tell it and
	// carries the drain to all of them.
	h2   *http2.Server
	base *http.Server
}

func newHTTP2Server(s *Server) *http2Server {
	h := &http2Server{srv: s}
	h.base = &http.Server{
		MaxHeaderBytes: s.o.MaxHeaderBytes,
		IdleTimeout:    s.o.IdleTimeout,
		// Counts from a stream's beginning. It is for what net/http answers by itself
		// (400, 431); other streams are given more time while they last, see extend.
		WriteTimeout: 2 * s.o.WriteTimeout,
		// What it logs is what clients do wrong.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	h.h2 = &http2.Server{
		MaxConcurrentStreams: s.o.MaxStreams,
		// kube-apiserver's, which is enough for most objects at once.
		MaxUploadBufferPerStream: uploadBuffer,
		ReadIdleTimeout:          s.o.PingInterval,
		PingTimeout:              s.o.PingTimeout,
		WriteByteTimeout:         s.o.WriteTimeout,
	}
	// It cannot fail: it complains of cipher suites, and none are configured.
	if err := http2.ConfigureServer(h.base, h.h2); err != nil {
		panic(err)
	}
	return h
}

// uploadBuffer is how much of a request's body a client may send before it is read.
const uploadBuffer = 256 << 10

// drain sends GOAWAY to every connection; each closes when its last stream ends.
func (h *http2Server) drain() {
	_ = h.base.Shutdown(context.Background()) // it has no listeners or connections of its own
}

// http2Conn writes a DATA frame, which is a little more than a TLS record holds, at
// once. It is written to by one goroutine at a time.
type http2Conn struct {
	*tls.Conn
	c *conn
}

// Write implements net.Conn.
func (hc *http2Conn) Write(p []byte) (int, error) {
	if len(p) <= recordSize {
		return hc.Conn.Write(p)
	}
	return hc.c.records.through(hc.Conn, &hc.c.srv.buffers, p)
}

// serveHTTP2 serves a connection until it ends.
func (c *conn) serveHTTP2(tc *tls.Conn) {
	defer c.contain()
	if !c.srv.draining.Load() {
		h := c.srv.http2
		h.h2.ServeConn(&http2Conn{Conn: tc, c: c}, &http2.ServeConnOpts{
			Context:    c.srv.base,
			BaseConfig: h.base,
			Handler:    http.HandlerFunc(c.serveStream),
		})
	}
	c.end()
}

// serveStream serves one request of an HTTP/2 connection.
func (c *conn) serveStream(w http.ResponseWriter, hr *http.Request) {
	sw := &streamWriter{c: c, w: w, rc: http.NewResponseController(w)}
	sw.extender = time.AfterFunc(c.srv.o.WriteTimeout, sw.extend)
	defer sw.finish()
	r := c.ownHTTP2(hr, sw)
	c.srv.alone(nil)
	resp := c.srv.call(hr.Context(), r)
	if resp.Upgrade != nil {
		c.srv.log.Error("the handler upgrades an HTTP/2 request", "method", r.Method, "path", r.Path)
		c.srv.done(resp, 0, errNoUpgrade)
		resp = c.srv.internalError(errNoUpgrade)
	}
	if resp.Stream != nil {
		c.serveStream2(hr, sw, resp)
		return
	}
	written, broken, err := c.respondHTTP2(hr, sw, resp)
	sw.finish()
	c.srv.done(resp, written, err)
	if broken {
		// Resets the stream; http2 neither logs it nor counts it as a panic.
		panic(http.ErrAbortHandler)
	}
}

// ownHTTP2 makes a request of what net/http has; its strings are nobody else's.
func (c *conn) ownHTTP2(hr *http.Request, sw *streamWriter) *api.Request {
	r := &api.Request{
		Method:           hr.Method,
		Host:             hr.Host,
		RemoteAddr:       c.remote,
		PeerCertificates: c.certs,
		Proto:            "HTTP/2.0",
		Listener:         c.listener,
	}
	if err := ownTarget(r, hr.RequestURI); err != nil {
		r.Path = r.RawPath // http2 has refused what cannot be decoded
	}
	if hr.Body != nil && hr.Body != http.NoBody && hr.ContentLength != 0 {
		r.Body, r.ContentLength = &http2Body{r: hr.Body, sw: sw}, hr.ContentLength
	}
	n := 0
	for _, values := range hr.Header {
		n += len(values)
	}
	r.Header = make(api.Header, 0, n)
	for name, values := range hr.Header {
		switch {
		case name == "Host", name == "Expect", name == "Content-Length", name[0] == ':':
			continue
		}
		for _, value := range values {
			r.Header = append(r.Header, api.HeaderField{Name: name, Value: value})
		}
	}
	return r
}

// respondHTTP2 writes a response with a Body, a BodyTo or neither. broken says that
// the client must not take it for complete.
func (c *conn) respondHTTP2(hr *http.Request, sw *streamWriter, resp *api.Response) (written int64, broken bool, err error) {
	length := int64(len(resp.Body))
	if resp.BodyTo != nil {
		length = max(resp.Length, -1)
	}
	withBody := bodyAllowed(resp.Status) && hr.Method != http.MethodHead
	c.writeHead2(sw, resp.Status, resp.Header, length, hr.Method == http.MethodHead)
	switch {
	case !withBody:
		return 0, false, nil
	case resp.BodyTo == nil:
		n, err := sw.Write(resp.Body)
		return int64(n), err != nil, err
	}
	w := bodyWriter{dst: sw, buf: c.srv.buffers.get(largeBuffer), known: length >= 0, left: length, urgent: length < 0 && !resp.Ready}
	defer func() { c.srv.buffers.put(w.buf) }()
	if w.urgent {
		sw.flushing = true
		if err := sw.Flush(); err != nil {
			return 0, true, err
		}
	}
	if _, err = c.srv.writeBody(resp.BodyTo, &w); err == nil {
		err = w.finish()
	}
	if err != nil && !w.sent && w.known {
		failed := c.srv.internalError(errBodyFailed)
		sw.clearHeader()
		c.writeHead2(sw, failed.Status, failed.Header, int64(len(failed.Body)), false)
		_, _ = sw.Write(failed.Body)
		return 0, false, err
	}
	return w.written, err != nil, err
}

// writeHead2 gives the head to net/http, which sends it with the first bytes.
func (c *conn) writeHead2(sw *streamWriter, status int, header api.Header, length int64, head bool) {
	h := sw.w.Header()
	for i := range header {
		name := header[i].Name
		if !validName(name) || ownHeader(name, head) {
			continue
		}
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], string(appendValue(nil, header[i].Value)))
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or it would be guessed
	}
	if length >= 0 && bodyAllowed(status) && h["Content-Length"] == nil {
		h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if wantsClose(header) || c.srv.draining.Load() {
		h["Connection"] = []string{"close"} // becomes a GOAWAY
	}
	sw.status = status
}

// streamWriter writes an HTTP/2 response. Its client is given WriteTimeout for
// every write; then the stream is reset, which ends the write.
type streamWriter struct {
	c        *conn
	w        http.ResponseWriter
	rc       *http.ResponseController
	timer    *time.Timer
	extender *time.Timer // extends
	status   int
	headSent bool
	// flushing sends every write at once; unsent says that net/http may hold back
	// something that was written.
	flushing, unsent bool

	// mu keeps timers off a ResponseWriter whose handler has returned.
	mu       sync.Mutex
	finished bool
	extended bool // the stream has no deadline by now
}

// Write implements io.Writer.
func (s *streamWriter) Write(p []byte) (n int, err error) {
	s.head()
	s.arm()
	defer s.timer.Stop()
	s.unsent = true
	for err == nil && n < len(p) {
		var m int
		m, err = s.w.Write(p[n:min(len(p), n+writeSlice)])
		n += m
		s.timer.Reset(s.c.srv.o.WriteTimeout)
	}
	if err == nil && s.flushing {
		err = s.flush()
	}
	return n, err
}

// Flush sends what was written, the head at least.
func (s *streamWriter) Flush() error {
	s.head()
	s.arm()
	defer s.timer.Stop()
	return s.flush()
}

// flush is Flush for who has armed the timer.
func (s *streamWriter) flush() error {
	err := s.rc.Flush()
	if err == nil {
		s.unsent = false
	}
	return err
}

func (s *streamWriter) head() {
	if !s.headSent {
		s.headSent = true
		s.w.WriteHeader(s.status)
	}
}

// clearHeader drops the header lines of a head that was not sent.
func (s *streamWriter) clearHeader() { clear(s.w.Header()) }

func (s *streamWriter) arm() {
	if s.timer == nil {
		s.timer = time.AfterFunc(s.c.srv.o.WriteTimeout, s.reset)
		return
	}
	s.timer.Reset(s.c.srv.o.WriteTimeout)
}

// reset ends the stream, whatever it is doing.
func (s *streamWriter) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		_ = s.rc.SetWriteDeadline(time.Unix(1, 0))
	}
}

// stopReading ends the reading of the request's body, now and for good.
func (s *streamWriter) stopReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		_ = s.rc.SetReadDeadline(time.Unix(1, 0))
	}
}

// extend takes away the deadline that net/http has set when the stream began. It puts
// one far ahead: where there is none, net/http makes a new timer for finish even of a
// stream that is over, which holds the stream until it runs out.
func (s *streamWriter) extend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.extended = true
		_ = s.rc.SetWriteDeadline(time.Now().AddDate(100, 0, 0))
	}
}

// finish is called before the handler returns.
func (s *streamWriter) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	s.finished = true
	s.extender.Stop()
	if s.timer != nil {
		s.timer.Stop()
	}
	if !s.headSent && s.status != 0 {
		s.head()
	}
	if s.unsent && s.extended {
		// net/http sends the rest when the handler has returned, and waits for the
		// client's window as long as the stream has no deadline. One that has begun not
		// long ago still has that of its beginning.
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.c.srv.o.WriteTimeout))
	}
}

var _ io.Writer = (*streamWriter)(nil)
