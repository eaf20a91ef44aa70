package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
)

// floorEnv, set in the environment, turns a process that calls ServeFloor into the floor.
const floorEnv = "KUBEWEIR_BENCH_FLOOR"

// A floor is a server in a process of its own: fasthttp over HTTP/1.1, floorConn over HTTP/2. It
// sends back stored bytes: PUT stores a body under a path, GET returns it, and GET with
// If-None-Match returns 304. GET /watch opens a stream or a WebSocket. POST /emit writes its body
// to all of them, or to number N with ?to=N.
type floor struct{ *child }

// startFloor runs this program again as the floor, with a certificate that clients trust.
func startFloor(certFile, keyFile string, tlsConfig *tls.Config) (*floor, error) {
	c, err := startChild("floor", floorEnv, certFile+":"+keyFile, tlsConfig)
	if err != nil {
		return nil, err
	}
	return &floor{c}, nil
}

// store uploads the body with which the floor responds to path.
func (f *floor) store(ctx context.Context, path string, like response, body []byte) error {
	_, _, err := fetch(ctx, f.server, requestSpec{
		method: "PUT", path: path, body: body, contentType: like.contentType, contentEncoding: like.encoding,
	})
	return err
}

func serveFloor(files string) error {
	certFile, keyFile, _ := strings.Cut(files, ":")
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := &floorHandler{bodies: make(map[string]*floorBody), conns: make(map[*floorConn]struct{})}
	s := &fasthttp.Server{
		Handler: h.serve, NoDefaultServerHeader: true, ReadBufferSize: 16 << 10,
		MaxRequestBodySize: 1 << 30, Concurrency: 100_000,
	}
	s.NextProto("h2", h.serveHTTP2)
	failed := make(chan error, 1)
	go func() {
		failed <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}))
	}()
	fmt.Println(l.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return nil
	}
}

type floorBody struct {
	contentType, encoding string
	body                  []byte
	// mu guards frames: the body in DATA frames without their stream ids.
	mu     sync.Mutex
	frames []byte
}

// A floorHandler is the floor's state. mu guards it and serializes writes to watchers.
type floorHandler struct {
	mu       sync.RWMutex
	bodies   map[string]*floorBody
	watchers []*floorWatcher
	conns    map[*floorConn]struct{} // connections over HTTP/2
	chunk    []byte
	message  []byte
}

// A floorWatcher is an open stream.
type floorWatcher struct {
	nc     net.Conn
	socket bool // it is a WebSocket
	failed bool // its client has left
}

func (h *floorHandler) serve(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	switch {
	case ctx.IsPut():
		h.mu.Lock()
		h.bodies[path] = &floorBody{
			contentType: string(ctx.Request.Header.ContentType()),
			encoding:    string(ctx.Request.Header.ContentEncoding()),
			body:        bytes.Clone(ctx.PostBody()),
		}
		h.mu.Unlock()
	case path == "/emit":
		h.emit(ctx.PostBody(), string(ctx.QueryArgs().Peek("to")))
	case path == "/watch":
		ctx.HijackSetNoResponse(true)
		ctx.Hijack(h.watch(len(ctx.Request.Header.Peek("Upgrade")) > 0))
	case len(ctx.Request.Header.Peek("If-None-Match")) > 0:
		ctx.SetStatusCode(fasthttp.StatusNotModified)
	default:
		h.get(ctx, path)
	}
}

func (h *floorHandler) get(ctx *fasthttp.RequestCtx, path string) {
	b := h.body(path)
	if b == nil {
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		return
	}
	ctx.SetContentType(b.contentType)
	if b.encoding != "" {
		ctx.Response.Header.SetContentEncoding(b.encoding)
	}
	ctx.Response.SetBodyRaw(b.body)
}

// body returns the body stored under a path, or nil.
func (h *floorHandler) body(path string) *floorBody {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.bodies[path]
}

// floorSocket is the response to every WebSocket request. The benchmark's clients do not check the
// key.
const floorSocket = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// watch returns a function that keeps a connection open; fasthttp closes it when the function
// returns.
func (h *floorHandler) watch(socket bool) func(net.Conn) {
	return func(nc net.Conn) {
		w := &floorWatcher{nc: nc, socket: socket}
		head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
		if socket {
			head = floorSocket
		}
		if _, err := io.WriteString(nc, head); err != nil {
			return
		}
		h.mu.Lock()
		h.watchers = append(h.watchers, w)
		h.mu.Unlock()
		// Clients send nothing, so Read returns when the client leaves.
		_, _ = nc.Read(make([]byte, 1))
		h.mu.Lock()
		w.failed = true
		h.mu.Unlock()
	}
}

// emit writes one event to watchers, one after the other.
func (h *floorHandler) emit(event []byte, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	live := h.watchers[:0]
	for _, w := range h.watchers {
		if !w.failed {
			live = append(live, w)
		}
	}
	clear(h.watchers[len(live):])
	h.watchers = live
	h.chunk = fmt.Appendf(h.chunk[:0], "%x\r\n%s\r\n", len(event), event)
	h.message = append(socketHead(h.message[:0], len(event)), event...)
	chosen := h.watchers
	if n, err := strconv.Atoi(to); err == nil && n < len(h.watchers) {
		chosen = h.watchers[n : n+1]
	}
	for _, w := range chosen {
		if w.socket {
			_, _ = w.nc.Write(h.message)
			continue
		}
		_, _ = w.nc.Write(h.chunk)
	}
	for c := range h.conns {
		c.emit(event)
	}
}

// socketHead appends the header of a text frame of n bytes.
func socketHead(dst []byte, n int) []byte {
	const final, text = 0x80, 1
	switch {
	case n < 126:
		return append(dst, final|text, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, final|text, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, final|text, 127), uint64(n))
}
