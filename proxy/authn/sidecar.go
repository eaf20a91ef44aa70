package authn

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/api"
)

// The sidecar listener gives the gateway's own identity to everyone who reaches
// it. On a loopback address that includes every web page open in a browser of
// this machine: by a host name that its owner points to 127.0.0.1 (DNS
// rebinding), by WebSockets, which browsers let a page open to any address, and by
// images, forms and links, whose answers the page does not see. A browser tells in
// headers that a page cannot change: Host, Origin and Sec-Fetch-Site.

// checkSidecar refuses a request that came over TCP by a name that is not this
// machine's own, or from a web page of elsewhere. A unix socket is out of a
// browser's reach.
func (a *Authenticator) checkSidecar(r *api.Request) error {
	if !strings.Contains(r.RemoteAddr, ":") {
		return nil
	}
	if why := CheckLocal(r.Host, r.Header.Values, a.opts.SidecarHosts...); why != "" {
		return notServed(why)
	}
	return nil
}

// CheckLocal tells why a request to a loopback address is not from this machine, or
// from a web page of another address: "" when it is. values are those of a header;
// names are host names, without port, that the address may be called by besides
// loopback ones.
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
		// Chromium does not say Sec-Fetch-Site of a WebSocket, whose messages any page can
		// read, so Origin has to tell pages at other ports of this machine.
		for _, origin := range values("Origin") {
			if origin != "" && !isOrigin(origin, host) {
				return "the WebSocket is of a web page of another address (Origin: " + origin + "); a client that is no web page names the address that it calls"
			}
		}
	}
	for _, site := range sites {
		// none is what somebody typed into a browser. A page at another port of this
		// machine is same-site.
		if site != "same-origin" && site != "none" {
			return "the request comes from a web page of another address (Sec-Fetch-Site: " + site + ")"
		}
	}
	return ""
}

// isOrigin reports whether a page of origin is at the address in a Host header, be it with a
// proxy before it that ends TLS.
func isOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (strings.EqualFold(u.Host, host) || u.Scheme == "http" && strings.EqualFold(strings.TrimSuffix(u.Host, ":80"), strings.TrimSuffix(host, ":80")))
}

// namesLoopback reports whether a Host header names this machine's loopback
// interface, or one of names.
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
