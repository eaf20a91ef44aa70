package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
)

// The sidecar listener grants the gateway's own identity to every client that reaches it. On a
// loopback address these include all web pages open in a browser of this machine: by a host name
// that its owner points to 127.0.0.1 (DNS rebinding), by WebSockets, which browsers let a page open
// to any address, and by images, forms and links, whose responses the page does not see. A browser
// sends headers that a page cannot change: Host, Origin and Sec-Fetch-Site.

// checkSidecar rejects a request that came over TCP by a name that is not this machine's own, or
// from a web page of another address. A browser cannot reach a unix socket.
func checkSidecar(r *api.Request, hosts []string) error {
	if !strings.Contains(r.RemoteAddr, ":") {
		return nil
	}
	if why := CheckLocal(r.Host, r.Header.Values, hosts...); why != "" {
		return notServed(why)
	}
	return nil
}

// CheckLocal returns why a request to a loopback address is not from this machine, or from a web
// page of another address; "" if neither is so. values returns those of a header. names are host
// names, without port, that the address may be called by besides loopback ones.
func CheckLocal(host string, values func(header string) []string, names ...string) (why string) {
	if !namesLoopback(host, names) {
		return "the Host header is not an address of this machine"
	}
	for _, origin := range values("Origin") {
		u, err := url.Parse(origin)
		if origin != "" && (err != nil || u.Host == "" || !namesLoopback(u.Host, names)) {
			return "the request comes from a web page of elsewhere"
		}
	}
	sites := values("Sec-Fetch-Site")
	if len(sites) == 0 && len(values("Upgrade")) > 0 {
		// Chromium sends no Sec-Fetch-Site for a WebSocket, whose messages any page can read, so
		// Origin has to exclude pages at other ports of this machine.
		for _, origin := range values("Origin") {
			if origin != "" && !isOrigin(origin, host) {
				return "the WebSocket is of a web page of another address (Origin: " + origin + "); a client that is no web page names the address that it calls"
			}
		}
	}
	for _, site := range sites {
		// "none" is an address typed into the browser. A page at another port of this machine is
		// same-site.
		if site != "same-origin" && site != "none" {
			return "the request comes from a web page of another address (Sec-Fetch-Site: " + site + ")"
		}
	}
	return ""
}

// isOrigin reports whether a page of origin is at the address in a Host header, possibly behind a
// proxy that terminates TLS.
func isOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (strings.EqualFold(u.Host, host) || u.Scheme == "http" && strings.EqualFold(strings.TrimSuffix(u.Host, ":80"), strings.TrimSuffix(host, ":80")))
}

// namesLoopback reports whether a Host header names this machine's loopback interface, or one of
// names.
func namesLoopback(hostport string, names []string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(allowed string) bool { return strings.EqualFold(allowed, host) })
}

// NewGatewayToken returns a token for Options.GatewayToken that holds a secret.
func NewGatewayToken(secret [sha256.Size]byte) Token {
	return Token(gatewayTokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:]))
}

const gatewayTokenPrefix = "kubeweir-"

// looksLikeGatewayToken reports whether a token looks like one of NewGatewayToken. Such a token
// grants all rights at the gateway that created it, so no other gateway sends it for review. Its
// length distinguishes it from other tokens with the same prefix.
func looksLikeGatewayToken(token string) bool {
	secret, ok := strings.CutPrefix(token, gatewayTokenPrefix)
	return ok && len(secret) == base64.RawURLEncoding.EncodedLen(sha256.Size)
}

// gatewayToken is the token of the gateway's own identity.
type gatewayToken struct {
	length int // 0 without a token
	hash   [sha256.Size]byte
}

func hashGatewayToken(t Token) gatewayToken {
	return gatewayToken{length: len(t), hash: sha256.Sum256([]byte(t))}
}

// is reports whether a client has the gateway's own identity by its token. Unlike reaching a
// listener, having the token excludes web pages, whatever name they call the gateway by.
func (g *gatewayToken) is(token string) bool {
	if g.length == 0 || len(token) != g.length { // the length is no secret
		return false
	}
	hash := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(hash[:], g.hash[:]) == 1
}
