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
func dialWatch(ctx context.Context, t *Target, c Case, as Credentials) (answer, error) {
	d := websocket.Dialer{TLSClientConfig: t.tlsFor(as.Cert), Subprotocols: c.Subprotocols, HandshakeTimeout: 10 * time.Second}
	header := http.Header{"User-Agent": {"conformance"}, "Origin": {t.URL}} // the server wants an origin
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
			return answer{}, fmt.Errorf("%s: %w", t.Name, err)
		}
		body, readErr := io.ReadAll(resp.Body)
		return answer{pages: []Response{{Status: resp.StatusCode, Header: resp.Header, Body: body}}}, readErr
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline)
	}
	a := answer{pages: []Response{{Status: resp.StatusCode, Header: resp.Header}}}
	a.end, err = collect(ctx, &a.frames, c, func() (Frame, error) { return nextMessage(conn) })
	if err != nil {
		return a, fmt.Errorf("%s: after %d events: %w", t.Name, len(a.frames), err)
	}
	return a, nil
}

// nextMessage reads an event from a WebSocket. A normal close is io.EOF.
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

// toldPace is the line of a handshake by which the gateway says that the watch coalesces. kube-apiserver has no such watch;
// clients pass over a header that they do not know, and those of other answers are compared by name.
var toldPace = regexp.MustCompile(`Kubeweir-Coalesce: \w+\r\n`)

// shakeHands sends a handshake as the case has it, with a body if it has one, then what the client sends, and reads what the server writes: the
// head of a 101 and the frames behind it, up to a close frame, or the body of another answer.
func shakeHands(ctx context.Context, t *Target, c Case, as Credentials) (answer, error) {
	cfg := t.tlsFor(as.Cert)
	cfg.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", strings.TrimPrefix(t.URL, "https://"))
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", t.Name, err)
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
		return answer{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	var written bytes.Buffer
	r := bufio.NewReader(io.TeeReader(conn, &written))
	resp, err := http.ReadResponse(r, &http.Request{Method: c.Method})
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	a := Response{Status: resp.StatusCode}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		a.Header = resp.Header
		a.Header.Del("Audit-Id") // what refuses a handshake there has the connection itself, and writes no header
		a.Body, err = io.ReadAll(resp.Body)
		return answer{pages: []Response{a}}, err
	}
	if _, err = io.WriteString(conn, c.Sends); err == nil {
		err = readFrames(r)
	}
	a.Body = toldPace.ReplaceAll(written.Bytes()[:written.Len()-r.Buffered()], nil)
	if err != nil {
		return answer{}, fmt.Errorf("%s: after %q: %w", t.Name, a.Body, err)
	}
	return answer{pages: []Response{a}}, nil
}

func readFrames(r *bufio.Reader) error {
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := int64(head[1])
		if size > 125 {
			return errors.New("no frame of 126 bytes or more is expected")
		}
		if _, err := r.Discard(int(size)); err != nil {
			return err
		}
		if head[0]&0xf == websocket.CloseMessage {
			return nil
		}
	}
}

// clientFrame is a whole message of a client, masked with nothing.
func clientFrame(opcode byte, payload string) string {
	head := []byte{0x80 | opcode, 0x80 | byte(len(payload))}
	if len(payload) > 125 {
		head = binary.BigEndian.AppendUint16([]byte{0x80 | opcode, 0x80 | 126}, uint16(len(payload)))
	}
	return string(head) + "\x00\x00\x00\x00" + payload
}
