package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// dialWatch reads a watch over a WebSocket.
func dialWatch(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	d := websocket.Dialer{TLSClientConfig: t.tlsFor(as.Cert), Subprotocols: c.Subprotocols, HandshakeTimeout: 10 * time.Second}
	header := http.Header{"User-Agent": {"conformance"}, "Origin": {t.URL}} // servers require an origin
	if as.Token != "" {
		header.Set("Authorization", "Bearer "+as.Token)
	}
	if c.Accept != "" {
		header.Set("Accept", c.Accept)
	}
	for k, v := range c.Header {
		header.Set(k, v)
	}
	conn, resp, err := d.DialContext(ctx, "wss"+strings.TrimPrefix(t.URL, "https")+c.Path, header)
	if err != nil {
		if resp == nil {
			return response{}, fmt.Errorf("%s: %w", t.Name, err)
		}
		body, readErr := io.ReadAll(resp.Body)
		return response{pages: []Response{{Status: resp.StatusCode, Header: resp.Header, Body: body}}}, readErr
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline)
	}
	a := response{pages: []Response{{Status: resp.StatusCode, Header: resp.Header}}}
	a.end, err = collect(ctx, &a.frames, c, func() (Frame, error) { return nextMessage(conn) })
	if err != nil {
		return a, fmt.Errorf("%s: after %d events: %w", t.Name, len(a.frames), err)
	}
	return a, nil
}

// nextMessage reads an event from a WebSocket. A normal close returns io.EOF.
func nextMessage(conn *websocket.Conn) (Frame, error) {
	kind, b, err := conn.ReadMessage()
	switch {
	case websocket.IsCloseError(err, websocket.CloseNormalClosure):
		return Frame{}, io.EOF
	case err != nil:
		return Frame{}, err
	case kind == websocket.BinaryMessage:
		return protoFrame(b)
	default:
		return jsonFrame(b)
	}
}

// coalesceHeader matches the header line by which the gateway announces a coalesced watch in a
// handshake. kube-apiserver does not send it, and clients ignore unknown headers. Other responses
// are compared by header, so they do not need this.
var coalesceHeader = regexp.MustCompile(`Kubeweir-Coalesce: \w+\r\n`)

// shakeHands sends the handshake of a case, its body if any, and what the client sends. It reads
// the server's output: the head of a 101 and the frames up to a close frame, or the body of another
// response.
func shakeHands(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	cfg := t.tlsFor(as.Cert)
	cfg.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", strings.TrimPrefix(t.URL, "https://"))
	if err != nil {
		return response{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	lines := append([]string{cmp.Or(c.Method, "GET") + " " + c.Path + " HTTP/1.1", "Host: conformance", "User-Agent: conformance"}, c.Handshake...)
	if as.Token != "" {
		lines = append(lines, "Authorization: Bearer "+as.Token)
	}
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"+c.Body); err != nil {
		return response{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	var written bytes.Buffer
	r := bufio.NewReader(io.TeeReader(conn, &written))
	resp, err := http.ReadResponse(r, &http.Request{Method: c.Method})
	if err != nil {
		return response{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	a := Response{Status: resp.StatusCode}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		a.Header = resp.Header
		a.Header.Del("Audit-Id") // kube-apiserver rejects a handshake on the hijacked connection, without this header
		a.Body, err = io.ReadAll(resp.Body)
		return response{pages: []Response{a}}, err
	}
	if _, err = io.WriteString(conn, c.Sends); err == nil {
		err = readFrames(r)
	}
	a.Body = coalesceHeader.ReplaceAll(written.Bytes()[:written.Len()-r.Buffered()], nil)
	if err != nil {
		return response{}, fmt.Errorf("%s: after %q: %w", t.Name, a.Body, err)
	}
	return response{pages: []Response{a}}, nil
}

func readFrames(r *bufio.Reader) error {
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := int64(head[1])
		if size > 125 {
			return errors.New("unexpected frame of 126 bytes or more")
		}
		if _, err := r.Discard(int(size)); err != nil {
			return err
		}
		if head[0]&0xf == websocket.CloseMessage {
			return nil
		}
	}
}

// clientFrame returns an unfragmented message of a client, with a mask of zeros.
func clientFrame(opcode byte, payload string) string {
	head := []byte{0x80 | opcode, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x80 | opcode, 0x80 | 126}, uint16(len(payload)))
	}
	return string(head) + "\x00\x00\x00\x00" + payload
}
