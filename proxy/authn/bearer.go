package authn

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/internal/api"
)

// bearerToken returns the token of an Authorization header, or ""
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

// webSocketToken returns the token among the subprotocols of a WebSocket handshake, where browsers
// put it, or "" (k8s.io/apiserver/pkg/authentication/request/websocket).
func webSocketToken(r *api.Request) (string, error) {
	if !isWebSocket(r) {
		return "", nil
	}
	token, tokens, others := "", 0, 0
	protocols := strings.Join(r.Header.Values(webSocketProtocols), ",")
	for protocol := range strings.SplitSeq(protocols, ",") {
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
	// The response names a subprotocol that is left without the token.
	if token != "" && others == 0 {
		return "", fmt.Errorf("%w: %s without another subprotocol", ErrUnauthenticated, webSocketTokenProblem)
	}
	return token, nil
}

// removeTokens removes the tokens from a WebSocket's subprotocols. The others become one line, as in
// kube-apiserver.
func removeTokens(h *api.Header) {
	lines := h.Values(webSocketProtocols)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, webSocketTokenPrefix) }) {
		return
	}
	var rest []string
	for protocol := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, webSocketTokenPrefix) {
			rest = append(rest, protocol)
		}
	}
	h.Del(webSocketProtocols)
	if line := strings.Join(rest, ","); line != "" {
		h.Add(webSocketProtocols, line)
	}
}
