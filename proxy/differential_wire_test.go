package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/edge/h1"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
)

// wireTimeout bounds one batch.
const wireTimeout = 30 * time.Second

// edgeServer starts the real transport with a handler that reads.
func (d *differential) edgeServer(t *testing.T) (*readingHandler, edge.Addresses) {
	h := &readingHandler{d: d}
	s, err := edge.New(edge.Options{
		Handler: h, GetCertificate: edgetest.GetCertificate,
		Listen: "127.0.0.1:0", SidecarListen: "127.0.0.1:0", MaxHeaderBytes: 64 << 10,
	}, edge.Protocols{HTTP1: h1.Serve, HTTP2: h2.Serve})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
	return h, bound
}

// http1 is what is written for a request.
func (r *sent) http1(number int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: h\r\n%s: %d\r\n", r.method, r.target, numberHeader, number)
	for _, line := range r.header {
		fmt.Fprintf(&b, "%s: %s\r\n", line[0], line[1])
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// overHTTP1 sends many requests at once on one connection. One that is refused ends it, and the rest goes on on another.
func (d *differential) overHTTP1(t *testing.T, _ int) exchanger {
	h, bound := d.edgeServer(t)
	var conn net.Conn
	var responses *bufio.Reader
	t.Cleanup(func() {
		if conn != nil {
			_ = conn.Close()
		}
	})
	return func(batch []*wireRequest) error {
		h.start(len(batch))
		for done := 0; done < len(batch); {
			if conn == nil {
				var err error
				if conn, err = net.Dial("tcp", bound.Sidecar.String()); err != nil {
					return err
				}
				responses = bufio.NewReader(conn)
			}
			n, err := pipeline(conn, responses, batch[done:], done)
			if err != nil {
				_ = conn.Close()
				conn = nil
			}
			if n == 0 && err != nil && !errors.Is(err, errRejected) {
				return fmt.Errorf("%q: %w", batch[done].sent, err)
			}
			done += n
		}
		for i, r := range batch {
			r.mine = h.seen[i]
			req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.http1(i))))
			if err == nil {
				r.theirs = req
			}
		}
		return nil
	}
}

var errRejected = errors.New("refused")

// pipeline writes requests and reads answers until one ends the connection. It returns how many were answered.
func pipeline(conn net.Conn, responses *bufio.Reader, batch []*wireRequest, first int) (responded int, err error) {
	if err := conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return 0, err
	}
	written := make(chan struct{})
	defer func() { <-written }()
	go func() {
		defer close(written)
		var b []byte
		for i, r := range batch {
			b = append(b, r.http1(first+i)...)
		}
		_, _ = conn.Write(b) // what it fails by, the reader sees, too
	}()
	for _, r := range batch {
		resp, err := http.ReadResponse(responses, &http.Request{Method: r.method})
		if err != nil {
			_ = conn.Close()
			return responded, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		responded++
		if resp.Close {
			_ = conn.Close()
			return responded, errRejected
		}
	}
	return responded, nil
}

// overHTTP2 sends the same frames to the transport and to net/http's server.
func (d *differential) overHTTP2(t *testing.T, _ int) exchanger {
	h, bound := d.edgeServer(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(edgetest.CertificatePEM())
	var theirs collector[*http.Request]
	ours := &http2Peer{dial: func() (net.Conn, error) {
		return tls.Dial("tcp", bound.Secure.String(), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	}}
	address := serveLibrary(t, &theirs)
	library := &http2Peer{dial: func() (net.Conn, error) { return net.Dial("tcp", address) }}
	t.Cleanup(ours.close)
	t.Cleanup(library.close)
	return func(batch []*wireRequest) error {
		h.start(len(batch))
		theirs.start(len(batch))
		for _, p := range []*http2Peer{ours, library} {
			if err := p.send(batch); err != nil {
				return err
			}
		}
		for i, r := range batch {
			r.mine, r.theirs = h.seen[i], theirs.seen[i]
		}
		return nil
	}
}

// serveLibrary starts net/http's server, which speaks HTTP/2 without TLS, and returns its address.
func serveLibrary(t *testing.T, seen *collector[*http.Request]) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.take(r.Header.Get(numberHeader), r.WithContext(context.Background()))
		w.WriteHeader(http.StatusNoContent)
	})}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-stopped
	})
	return ln.Addr().String()
}

// http2Peer sends requests as frames.
type http2Peer struct {
	dial   func() (net.Conn, error)
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	next   uint32
}

func (p *http2Peer) close() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

func (p *http2Peer) open() (err error) {
	if p.conn != nil {
		return nil
	}
	if p.conn, err = p.dial(); err != nil {
		return err
	}
	if err := p.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return err
	}
	p.framer, p.enc, p.next = http2.NewFramer(p.conn, p.conn), hpack.NewEncoder(&p.block), 1
	if _, err := io.WriteString(p.conn, http2.ClientPreface); err != nil {
		return err
	}
	return p.framer.WriteSettings()
}

// errGoAway is the end of a connection that the server cannot go on with, after a head that is too large.
var errGoAway = errors.New("the server ends the connection")

// send sends a batch, and when a request in it ends the connection each by itself.
func (p *http2Peer) send(batch []*wireRequest) error {
	err := p.exchange(batch, 0)
	for i := range batch {
		if !errors.Is(err, errGoAway) {
			return err
		}
		if one := p.exchange(batch[i:i+1], i); !errors.Is(one, errGoAway) && one != nil {
			return one
		}
	}
	return nil
}

// exchange sends requests, of which the first has a number, and waits until each stream has ended.
func (p *http2Peer) exchange(batch []*wireRequest, first int) (err error) {
	if err := p.open(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := p.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	settings := make(chan struct{}, 16) // to acknowledge
	go func() { ended <- p.await(len(batch), settings) }()
	for i, r := range batch {
		select {
		case <-settings:
			if err := p.framer.WriteSettingsAck(); err != nil {
				return err
			}
		default:
		}
		if err := p.write(&r.sent, first+i); err != nil {
			return errors.Join(err, <-ended)
		}
	}
	return <-ended
}

// await reads until n streams have ended.
func (p *http2Peer) await(n int, settings chan<- struct{}) error {
	for n > 0 {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				n--
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				n--
			}
		case *http2.RSTStreamFrame:
			if f.ErrCode != http2.ErrCodeNo { // of a request whose answer is complete
				n--
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				settings <- struct{}{}
			}
		case *http2.GoAwayFrame:
			return fmt.Errorf("%w: %v", errGoAway, f.ErrCode)
		}
	}
	return nil
}

// write sends a request of one HEADERS frame and as many CONTINUATIONs as it takes.
func (p *http2Peer) write(r *sent, number int) error {
	p.block.Reset()
	field := func(name, value string) { _ = p.enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", r.method)
	field(":scheme", "https")
	field(":authority", "h")
	field(":path", r.target)
	field(strings.ToLower(numberHeader), strconv.Itoa(number))
	for _, line := range r.header {
		switch name := strings.ToLower(line[0]); name {
		case "connection", "upgrade", "keep-alive", "proxy-connection": // refused
		default:
			field(name, line[1])
		}
	}
	const most = 16 << 10
	block := p.block.Bytes()
	head := block[:min(most, len(block))]
	block = block[len(head):]
	if err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: p.next, BlockFragment: head, EndStream: true, EndHeaders: len(block) == 0}); err != nil {
		return err
	}
	for len(block) > 0 {
		part := block[:min(most, len(block))]
		block = block[len(part):]
		if err := p.framer.WriteContinuation(p.next, len(block) == 0, part); err != nil {
			return err
		}
	}
	p.next += 2
	return nil
}
