package authn

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/api"
)

// bearerToken returns the token of an Authorization header, "" without one
// (k8s.io/apiserver/pkg/authentication/request/bearertoken).
func bearerToken(authorization string) string {
	parts := strings.SplitN(strings.TrimSpace(authorization), " ", 3)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}

const (
	webSocketProtocols    = "Sec-WebSocket-Protocol"
	webSocketTokenPrefix  = "base64url.bearer.authorization.k8s.io."
	webSocketTokenProblem = "bearer token in a WebSocket subprotocol"
)

func isWebSocket(r *api.Request) bool { return strings.EqualFold(r.Upgrade, "websocket") }

// webSocketToken returns the token that a WebSocket handshake carries among its
// subprotocols, as browsers send it, "" without one
// (k8s.io/apiserver/pkg/authentication/request/websocket).
func webSocketToken(r *api.Request) (string, error) {
	if !isWebSocket(r) {
		return "", nil
	}
	token, tokens, others := "", 0, 0
	for _, line := range r.Header.Values(webSocketProtocols) {
		for protocol := range strings.SplitSeq(line, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), webSocketTokenPrefix)
			if !ok {
				others++
				continue
			}
			if tokens++; tokens > 1 {
				return "", fmt.Errorf("%w: more than one %s", ErrUnauthenticated, webSocketTokenProblem)
			}
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(decoded) {
				return "", fmt.Errorf("%w: malformed %s", ErrUnauthenticated, webSocketTokenProblem)
			}
			token = string(decoded)
		}
	}
	// One that is left after the token is taken out is echoed to the client.
	if token != "" && others == 0 {
		return "", fmt.Errorf("%w: %s without another subprotocol", ErrUnauthenticated, webSocketTokenProblem)
	}
	return token, nil
}

// dropTokens takes the tokens out of a WebSocket's subprotocols, whose rest is one line
// then, as it is to kube-apiserver.
func dropTokens(h *api.Header) {
	lines := h.Values(webSocketProtocols)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, webSocketTokenPrefix) }) {
		return
	}
	var kept []string
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, webSocketTokenPrefix) {
				kept = append(kept, protocol)
			}
		}
	}
	h.Del(webSocketProtocols)
	if rest := strings.Join(kept, ","); rest != "" {
		h.Add(webSocketProtocols, rest)
	}
}
