// Package header decides which header lines of a forwarded request and of its response are passed on.
package header

import (
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// Identity selects which claims of an identity a request keeps.
type Identity struct {
	// Token keeps the client's own bearer token: the request is sent without other credentials.
	Token bool
	// Impersonation keeps the Impersonate-* lines.
	Impersonation bool
}

const (
	impersonatePrefix = "Impersonate-"
	remotePrefix      = "X-Remote-"
)

// Request returns the header to send upstream for r: everything but lines of the connection and
// lines that claim an identity that is not kept. The lines that the client's Connection lines name
// were removed before anything was added to the header (api.Header.EndToEnd); here the origin of a
// line is unknown. The error is a 400 that names a malformed line.
func Request(r *api.Request, keep Identity) (http.Header, error) {
	h := make(http.Header, len(r.Header)+4)
	values := make([]string, 0, len(r.Header))
	for _, f := range r.Header {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the request has a malformed header line %q", f.Name))
		}
		if api.OfConnection(name) && name != "Te" || !passes(name, keep) {
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
	if !keep.Token {
		emptyTokenProtocols(h["Sec-Websocket-Protocol"])
	}
	return h, nil
}

// passes reports whether a line of a request may be passed on. Content-Length and Host are set
// elsewhere; a client that expects a 100 got it at the edge.
func passes(name string, keep Identity) bool {
	switch name {
	case "Host", "Content-Length", "Expect":
		return false
	case "Authorization":
		return keep.Token
	}
	if strings.HasPrefix(name, impersonatePrefix) {
		return keep.Impersonation
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

// Response returns the part of the upstream's header that the client gets. The transport sets
// the length, except for HEAD, which has no body to measure.
func Response(h http.Header, method string) api.Header {
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

// Switching returns the header of the 101 as the upstream wrote it.
func Switching(in http.Header) api.Header {
	var h api.Header
	for name, values := range in {
		if api.OfConnection(name) && name != "Connection" && name != "Upgrade" {
			continue
		}
		for _, v := range values {
			h = append(h, api.HeaderField{Name: originalName(name), Value: textproto.TrimString(v)})
		}
	}
	return h
}

// originalName undoes what net/http does to the names of RFC 6455, for clients that compare them
// byte by byte.
func originalName(name string) string {
	if rest, ok := strings.CutPrefix(name, "Sec-Websocket-"); ok {
		return "Sec-WebSocket-" + rest
	}
	return name
}
