package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// headerError means that a request cannot be passed on as it is.
type headerError struct{ name string }

func (e *headerError) Error() string {
	return fmt.Sprintf("the request has a malformed header line %q", e.name)
}

// requestHeader returns the header to send upstream for r: everything but lines of the connection
// and lines that claim an identity that cred does not allow. The lines that the client's
// Connection lines name were removed before anything was added to the header
// (api.Header.EndToEnd); here the origin of a line is unknown.
func requestHeader(r *api.Request, cred *Credentials) (http.Header, error) {
	h := make(http.Header, len(r.Header)+4)
	values := make([]string, 0, len(r.Header))
	for _, f := range r.Header {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return nil, &headerError{f.Name}
		}
		if api.OfConnection(name) && name != "Te" || !passes(name, cred) {
			continue
		}
		if isIdempotencyKey(name) && !pool.Safe(r.Method) {
			// net/http repeats requests with this, unless it is spelled differently.
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
	appendForwardedFor(h, r.RemoteAddr)
	if cred.As != AsClient || cred.User != nil {
		emptyTokenProtocols(h["Sec-Websocket-Protocol"])
	}
	return h, nil
}

// passes reports whether a line of a request may be passed on. Content-Length and Host are set
// elsewhere; a client that expects a 100 got it at the edge.
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
	return !strings.HasPrefix(name, remotePrefix) && !isDisguised(name)
}

// isDisguised reports whether a line would claim an identity to a proxy on the way that takes "_"
// for "-", as CGI does.
func isDisguised(name string) bool {
	if strings.IndexByte(name, '_') < 0 {
		return false
	}
	name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return strings.HasPrefix(name, impersonatePrefix) || strings.HasPrefix(name, remotePrefix)
}

func isIdempotencyKey(name string) bool {
	return name == "Idempotency-Key" || name == "X-Idempotency-Key"
}

// appendForwardedFor adds the client's address to X-Forwarded-For. A client on a unix socket has
// none.
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

// emptyTokenProtocols removes the client's token from the subprotocols of a request that is sent
// with other credentials. The rest of the token's entry is still a subprotocol: the upstream
// accepts a WebSocket or not by how many subprotocols there are, and which.
func emptyTokenProtocols(lines []string) {
	for i, line := range lines {
		if !strings.Contains(line, tokenProtocol) {
			continue
		}
		protocols := strings.Split(line, ",")
		for j, p := range protocols {
			if strings.HasPrefix(strings.TrimSpace(p), tokenProtocol) {
				protocols[j] = tokenProtocol
			}
		}
		lines[i] = strings.Join(protocols, ",")
	}
}

// responseHeader returns the part of the upstream's header that the client gets. The transport sets
// the length, except for HEAD, which has no body to measure.
func responseHeader(h http.Header, method string) api.Header {
	named := api.NamedByConnection(h["Connection"])
	n := 0
	for _, values := range h {
		n += len(values)
	}
	out := make(api.Header, 0, n)
	for name, values := range h {
		_, hop := named[name]
		if hop || api.OfConnection(name) || name == "Content-Length" && method != http.MethodHead {
			continue
		}
		for _, v := range values {
			out.Add(name, v)
		}
	}
	return out
}
