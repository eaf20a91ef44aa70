package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// FuzzHTTP2Request sends any fields, a body and trailers to this server and to x/net's: what
// both accept must mean the same to both, or what is authorized could differ from what others
// see.
func FuzzHTTP2Request(f *testing.F) {
	get := ":method\nGET\n:scheme\nhttps\n:authority\nx\n:path\n/a%20b?c=d\n"
	for _, seed := range []string{
		get,
		get + "cookie\na=b\nuser-agent\nx\ncookie\nc=d",
		get + "host\ny", get + "te\ntrailers", get + "accept\n a ", get + "a\nb\n:path\n/c", get + "x-remote-user\nadmin\nconnection\nx-remote-user",
		":method\nPOST\n:scheme\nhttp\n:path\n//a/../b\nhost\nx:1\ncontent-length\n4\nexpect\n100-continue\ntrailer\na",
		":method\nOPTIONS\n:scheme\nhttps\n:authority\nx\n:path\n*",
		":method\nGET\n:scheme\nhttp\n:path\n*\nhost\n ",
		":method\nCONNECT\n:authority\nx:1",
		":method\nCONNECT\n:protocol\nwebsocket\n:scheme\nhttps\n:authority\nx\n:path\n/",
	} {
		f.Add(seed, []byte(nil), "")
		f.Add(seed, []byte("body"), "checksum\n1")
	}
	ours := edgetest.Start(f, func(_ context.Context, r *api.Request) *api.Response {
		header := map[string][]string{}
		for _, h := range r.Header {
			header[h.Name] = append(header[h.Name], h.Value)
		}
		return edgetest.Text(meaning(r.Method, r.Host, r.Path, r.RawQuery, header, r.Body))
	}, func(o *edge.Options) { o.BodyIdleTimeout = time.Second })
	theirs := startXNet(f)
	f.Fuzz(func(t *testing.T, head string, body []byte, trailers string) {
		if len(head)+len(body)+len(trailers) > 8<<10 || !strings.HasPrefix(head, ":") {
			return
		}
		want, ok := roundTrip(t, theirs, head, body, trailers)
		if !ok {
			return
		}
		if got, ok := roundTrip(t, ours.Sidecar, head, body, trailers); ok && got != want {
			t.Errorf("it means\n%s, and to x/net\n%s", got, want)
		}
		if log := ours.Log.String(); log != "" {
			t.Fatalf("logged: %s", log)
		}
	})
}

// meaning is what a handler knows of a request.
func meaning(method, host, path, query string, header map[string][]string, body io.Reader) string {
	var content []byte
	var err error
	if body != nil {
		content, err = io.ReadAll(body)
	}
	var lines []string
	for name, values := range header {
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Content-Length", "Expect", "Trailer", "Host": // said elsewhere, or nobody's
			continue
		}
		for i := range values {
			values[i] = strings.Trim(values[i], " \t") // see trimBlanks
		}
		lines = append(lines, fmt.Sprintf("%q %q", name, values))
	}
	slices.Sort(lines)
	host = strings.Trim(host, " \t")
	return fmt.Sprintf("%q %q %q %q %q %v %q", method, host, path, query, content, err == nil, lines)
}

// startXNet starts x/net's server, as it is in net/http, which answers with what a request means to it.
func startXNet(t testing.TB) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, meaning(r.Method, r.Host, r.URL.Path, r.URL.RawQuery, r.Header, r.Body))
	})
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)} //nolint:gosec // it is a test's
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(ln) }()
	return ln.Addr().String()
}

// roundTrip sends a request and gives the body of a 200.
func roundTrip(t *testing.T, addr, head string, body []byte, trailers string) (response string, ok bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := edgetest.NewFrameConn(t, conn)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.BlockOf(head), EndHeaders: true, EndStream: body == nil})
	if body != nil {
		_ = c.WriteData(1, trailers == "", body)
		if trailers != "" {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.BlockOf(trailers), EndHeaders: true, EndStream: true})
		}
	}
	var got bytes.Buffer
	for {
		frame, err := c.ReadFrame()
		var timeout interface{ Timeout() bool }
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			t.Fatalf("%s does not answer", addr)
		case err != nil:
			return "", false
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := frame.PseudoValue("status"); status != "200" && status != "100" || frame.StreamEnded() {
				return "", false // that of HEAD says nothing
			}
		case *http2.DataFrame:
			if got.Write(frame.Data()); frame.StreamEnded() {
				return got.String(), true
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "", false
		}
	}
}
