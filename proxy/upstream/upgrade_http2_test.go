package upstream

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
)

// TestUpgradeOfHTTP2: a WebSocket over HTTP/2 has no key. That of the handshake upstream
// is made here, and the answer to it checked.
func TestUpgradeOfHTTP2(t *testing.T) {
	right := func(key string) string {
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		return "Upgrade: WebSocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:])
	}
	for name, test := range map[string]struct {
		response func(key string) string
		status   int
	}{
		"right":            {right, 101},
		"wrong key":        {func(key string) string { return right(key + "x") }, 503},
		"no proof":         {func(string) string { return "Upgrade: websocket" }, 503},
		"another protocol": {func(key string) string { return strings.Replace(right(key), "WebSocket", "SPDY/3.1", 1) }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				keys := r.Header.Values("Sec-Websocket-Key")
				key, err := base64.StdEncoding.DecodeString(strings.Join(keys, ","))
				if err != nil || len(key) != 16 || r.Method != "GET" || r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
					t.Errorf("%s %q", r.Method, r.Header)
				}
				switching(t, fmt.Sprintf("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n%s\r\n\r\n", test.response(keys[0])), func(conn net.Conn, r *bufio.Reader) {
					_, _ = io.Copy(conn, r)
				})(w, r)
			})
			r := request("GET", "/api/v1/namespaces/n/pods/p/exec?command=sh", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "the client's")
			r.Proto, r.Upgrade = "HTTP/2.0", "websocket"
			resp := s.client(t).Forward(context.Background(), r, Credentials{})
			if resp.Status != test.status || (resp.Upgrade != nil) != (test.status == 101) {
				t.Fatalf("status %d", resp.Status)
			}
			if resp.Upgrade == nil {
				return
			}
			defer resp.Done(0, nil)
			if got := resp.Header.Get("Sec-WebSocket-Protocol"); got != "v5.channel.k8s.io" {
				t.Errorf("subprotocol %q", got)
			}
			echo(t, resp)
		})
	}
}

// echo sends something both ways.
func echo(t *testing.T, resp *api.Response) {
	ours, theirs := net.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		resp.Upgrade(theirs)
	}()
	if _, err := io.WriteString(ours, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(ours, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = ours.Close()
	<-over
}
