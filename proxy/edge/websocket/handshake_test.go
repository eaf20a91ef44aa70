package websocket

import (
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
)

func handshake(change ...string) *api.Request {
	r := &api.Request{Method: "GET", Upgrade: "websocket", Host: "a:1", RawPath: "/api/v1/pods", RawQuery: "watch=1", Proto: "HTTP/1.1"}
	r.Header = api.Header{
		{Name: "Origin", Value: "https://a"}, {Name: "Sec-Websocket-Key", Value: "dGhlIHNhbXBsZSBub25jZQ=="}, {Name: "Sec-Websocket-Version", Value: "13"},
	}
	for _, c := range change {
		name, value, found := strings.Cut(c, ": ")
		switch {
		case name == "Method":
			r.Method = value
		case name == "Upgrade":
			r.Upgrade = value
		case name == "Host":
			r.Host = value
		case name == "Proto":
			r.Proto = value
		case strings.HasPrefix(name, "+"):
			r.Header.Add(name[1:], value)
		case !found:
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	return r
}

func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		change string
		want   bool
	}{
		{"", true},
		{"Upgrade: WebSocket", true}, {"Upgrade: websocket, h2c", false}, {"Upgrade: SPDY/3.1", false}, {"Upgrade: ", false},
		{"Method: POST", false}, {"Method: HEAD", false}, {"Method: OPTIONS", false},
		{"Sec-Websocket-Version", false}, {"Sec-Websocket-Version: 8", false}, {"+Sec-Websocket-Version: 8", true},
		{"Sec-Websocket-Key", false}, {"Sec-Websocket-Key: ", false}, {"Sec-Websocket-Key: x", true}, {"+Sec-Websocket-Key: x", true},
		{"Origin", false}, {"Origin: ", false}, {"Origin: null", false}, {"Origin: null://x", true}, {"Origin: /x", true}, {"+Origin: null", true},
		{"Sec-Websocket-Protocol: a.b", true}, {"Sec-Websocket-Protocol: ", true}, {"Sec-Websocket-Protocol: a,b", false},
		{"Sec-Websocket-Protocol: a b", true}, {"Sec-Websocket-Protocol: ,", false}, {"Sec-Websocket-Protocol: a\x00", false},
		{"Host: a b", false}, {"Host: ", true},
	} {
		if got := Accepts(handshake(c.change)); got != c.want {
			t.Errorf("%q: %v", c.change, got)
		}
	}
	if !Accepts(handshake("Proto: HTTP/2.0", "Sec-Websocket-Key")) {
		t.Error("a key is asked for over HTTP/2")
	}
	r := handshake("+Sec-Websocket-Protocol: a", "+Sec-Websocket-Protocol: b, c")
	if name, _ := protocol(r); !Accepts(r) || name != "a" {
		t.Errorf("of two lines of subprotocols %q is agreed to", name)
	}
}

func TestHeader(t *testing.T) {
	h := Header(handshake("Sec-Websocket-Protocol:  a.b "))
	var lines []string
	for _, f := range h {
		lines = append(lines, f.Name+": "+f.Value)
	}
	// The key and its answer are those of RFC 6455, 1.3.
	want := "Upgrade: websocket|Connection: Upgrade|Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=|Sec-WebSocket-Protocol: a.b"
	if got := strings.Join(lines, "|"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
