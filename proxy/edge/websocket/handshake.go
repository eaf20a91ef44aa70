// Package websocket serves watches over WebSockets as kube-apiserver does
// (k8s.io/apiserver/pkg/endpoints/handlers, WatchServer.HandleWS, on golang.org/x/net/websocket):
// each event is a message, nothing that the client sends counts but pings and the end.
//
// It knows no transport: what carries a WebSocket, a connection of HTTP/1.1 or a stream of HTTP/2
// (RFC 8441), is an api.StreamWriter for one direction and calls of Stream.Receive for the other.
package websocket

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Header lines of the handshake, in the canonical form of requests.
const (
	keyHeader      = "Sec-Websocket-Key"
	versionHeader  = "Sec-Websocket-Version"
	protocolHeader = "Sec-Websocket-Protocol"
)

// version is the only one there is (RFC 6455).
const version = "13"

// acceptGUID turns a client's key into the proof that it was read (RFC 6455, 1.3).
const acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// Accepts reports whether kube-apiserver would agree to r becoming a WebSocket that carries a
// watch, judging by the connection and header of r alone. Credentials were taken out of them. If a
// name has several lines, the first counts. kube-apiserver itself rejects the others.
func Accepts(r *api.Request) bool {
	if r.Method != "GET" || !strings.EqualFold(r.Upgrade, "websocket") || r.Header.Get(versionHeader) != version {
		return false
	}
	// Over HTTP/2 there is no key (RFC 8441, 5).
	if r.Proto != "HTTP/2.0" && r.Header.Get(keyHeader) == "" {
		return false
	}
	_, ok := protocol(r)
	return ok && hasOrigin(r) && hasLocation(r)
}

// protocol is the subprotocol that is agreed to, "" for none. The server has none of its
// own and takes the client's only one, whatever it is; it does not choose among several.
func protocol(r *api.Request) (name string, ok bool) {
	name = strings.TrimSpace(r.Header.Get(protocolHeader))
	return name, !strings.Contains(name, ",") && httpguts.ValidHeaderFieldValue(name)
}

// hasOrigin reports whether the client names its origin, which may be any: a page cannot use
// another page's credentials, because tokens are not in cookies. Clients that have the gateway's
// own identity because of their listener were checked before, see authn.CheckLocal.
func hasOrigin(r *api.Request) bool {
	_, err := url.ParseRequestURI(r.Header.Get("Origin"))
	return err == nil
}

// hasLocation reports whether the request's URL is one to golang.org/x/net/websocket.
func hasLocation(r *api.Request) bool {
	location := "wss://" + r.Host + r.RawPath
	if r.RawQuery != "" {
		location += "?" + r.RawQuery
	}
	_, err := url.ParseRequestURI(location)
	return err == nil
}

// Header returns the header lines of the handshake response to r, which Accepts allows, exactly as
// kube-apiserver writes them. Over HTTP/2 only the subprotocol is used.
func Header(r *api.Request) api.Header {
	h := api.Header{
		{Name: "Upgrade", Value: "websocket"},
		{Name: "Connection", Value: "Upgrade"},
		{Name: "Sec-WebSocket-Accept", Value: acceptKey(r.Header.Get(keyHeader))},
	}
	if name, _ := protocol(r); name != "" {
		h = append(h, api.HeaderField{Name: "Sec-WebSocket-Protocol", Value: name})
	}
	return h
}

// NewKey is a key for a handshake of the client's side over HTTP/1.1.
func NewKey() string {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return base64.StdEncoding.EncodeToString(nonce[:])
}

// Agrees reports whether the header of a 101, with names in canonical form, agrees to the
// handshake with that key.
func Agrees(header map[string][]string, key string) bool {
	upgrade, accept := header["Upgrade"], header["Sec-Websocket-Accept"]
	return len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") &&
		len(accept) == 1 && accept[0] == acceptKey(key)
}

func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + acceptGUID))
	return base64.StdEncoding.EncodeToString(sum[:])
}
