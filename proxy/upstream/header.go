package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
)

// ofConnection reports whether a header line belongs to one connection and is
// never passed on (RFC 9110, 7.6.1). name is canonical.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// namedByConnection are the lines that the Connection lines of a message name
// besides: they belong to the connection, too.
func namedByConnection(connection []string) []string {
	var named []string
	for _, line := range connection {
		for token := range strings.SplitSeq(line, ",") {
			if token = textproto.TrimString(token); token != "" {
				named = append(named, textproto.CanonicalMIMEHeaderKey(token))
			}
		}
	}
	return named
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// headerError says that a request cannot be passed on as it is.
type headerError struct{ name string }

func (e *headerError) Error() string {
	return fmt.Sprintf("the request has a malformed header line %q", e.name)
}

// requestHeader is the header to send upstream for r: everything but what belongs
// to the connection or claims an identity that cred does not let through.
func requestHeader(r *api.Request, cred *Credentials) (http.Header, error) {
	named := namedByConnection(r.Header.Values("Connection"))
	h := make(http.Header, len(r.Header)+4)
	values := make([]string, 0, len(r.Header))
	for _, f := range r.Header {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return nil, &headerError{f.Name}
		}
		if ofConnection(name) || contains(named, name) || !passes(name, cred) {
			continue
		}
		if isIdempotencyKey(name) && !safe(r.Method) {
			// net/http takes a request with this for one that may be repeated,
			// unless it is spelt differently.
			name = strings.ToLower(name)
		}
		if old, ok := h[name]; ok {
			h[name] = append(old, f.Value)
			continue
		}
		values = append(values, f.Value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // net/http would put its own
	}
	if teTrailers(r.Header) {
		h["Te"] = []string{"trailers"}
	}
	appendForwardedFor(h, r.RemoteAddr)
	if cred.As != AsClient || cred.User != nil {
		dropTokenProtocol(h)
	}
	return h, nil
}

// passes tells whether a request's line may be passed on. Content-Length and Host
// are set otherwise; a client that expects a 100 got it at the edge.
func passes(name string, cred *Credentials) bool {
	switch name {
	case "Host", "Content-Length", "Expect":
		return false
	case "Authorization":
		return cred.As == AsClient && cred.User == nil
	}
	if strings.HasPrefix(name, impersonatePrefix) {
		return cred.KeepImpersonation
	}
	return !strings.HasPrefix(name, remotePrefix)
}

func isIdempotencyKey(name string) bool {
	return name == "Idempotency-Key" || name == "X-Idempotency-Key"
}

// safe reports whether a method only reads.
func safe(method string) bool { return method == "GET" || method == "HEAD" || method == "OPTIONS" }

func teTrailers(h api.Header) bool {
	for _, v := range h.Values("Te") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(token), "trailers") {
				return true
			}
		}
	}
	return false
}

// appendForwardedFor adds the client's address to X-Forwarded-For; a client on a
// unix socket has none.
func appendForwardedFor(h http.Header, remote string) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil || host == "" {
		return
	}
	if before := h["X-Forwarded-For"]; len(before) > 0 {
		host = strings.Join(before, ", ") + ", " + host
	}
	h["X-Forwarded-For"] = []string{host}
}

// tokenProtocol begins the WebSocket subprotocol that carries a bearer token
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// dropTokenProtocol removes the client's token from the subprotocols of a request
// that goes out with other credentials.
func dropTokenProtocol(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	lines := h[name]
	if !strings.Contains(strings.Join(lines, ","), tokenProtocol) {
		return
	}
	var kept []string
	for _, line := range lines {
		for p := range strings.SplitSeq(line, ",") {
			if p = textproto.TrimString(p); p != "" && !strings.HasPrefix(p, tokenProtocol) {
				kept = append(kept, p)
			}
		}
	}
	if len(kept) == 0 {
		delete(h, name)
		return
	}
	h[name] = []string{strings.Join(kept, ", ")}
}

// responseHeader is what the client gets of the upstream's header. The length is
// left to the transport, but for HEAD, whose body nobody can measure.
func responseHeader(h http.Header, method string) api.Header {
	named := namedByConnection(h["Connection"])
	n := 0
	for _, values := range h {
		n += len(values)
	}
	out := make(api.Header, 0, n)
	for name, values := range h {
		if ofConnection(name) || contains(named, name) || name == "Content-Length" && method != http.MethodHead {
			continue
		}
		for _, v := range values {
			out.Add(name, v)
		}
	}
	return out
}
