package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestRejectedIdentity: that the upstream refuses the gateway is no answer to a client
// in whose name it asked; that it refuses the client is.
func TestRejectedIdentity(t *testing.T) {
	const impersonation = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"users \"bob\" is forbidden: User \"the-gateway\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope","reason":"Forbidden","code":403}`
	constrained := strings.ReplaceAll(impersonation, "cannot impersonate resource", "cannot impersonate-on:user-info:list resource")
	const unauthorized = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`
	asBob := Credentials{As: AsGateway, KeepImpersonation: true}
	own := Credentials{As: AsGateway, KeepImpersonation: true, OwnImpersonation: true}
	for _, test := range []struct {
		name, path, body string
		code             int
		cred             Credentials
		want             int
	}{
		{"impersonation", "/api/v1/pods", impersonation, 403, asBob, 503},
		{"constrained impersonation", "/api/v1/pods", constrained, 403, asBob, 503},
		{"a watch", "/api/v1/pods?watch=1", impersonation, 403, asBob, 503},
		{"credentials", "/api/v1/pods", unauthorized, 401, asBob, 503},
		{"a program that is the gateway asks for it", "/api/v1/pods", impersonation, 403, own, 403},
		{"its credentials", "/api/v1/pods", unauthorized, 401, own, 503},
		{"YAML", "/api/v1/pods", "kind: Status\nmessage: 'users \"bob\" is forbidden: User \"the-gateway\" cannot impersonate'\n", 403, asBob, 503},
		{"the client", "/api/v1/pods", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden: User \"bob\" cannot list resource \"pods\"","reason":"Forbidden","code":403}`, 403, asBob, 403},
		{"a pod", "/api/v1/namespaces/a/pods/p/proxy/login", "<html>Unauthorized", 401, asBob, 401},
		{"a pod at length", "/api/v1/namespaces/a/pods/p/proxy/login", strings.Repeat("no ", 20_000), 401, asBob, 401},
		{"the client's own token", "/api/v1/pods", impersonation, 403, Credentials{KeepImpersonation: true}, 403},
	} {
		bothProtocols(t, func(t *testing.T, options ...serverOption) {
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			}, options...)
			resp := s.client(t).Forward(testContext(t), request("GET", test.path, "Impersonate-User", "bob"), test.cred)
			body := finish(t, resp)
			switch {
			case resp.Status != test.want:
				t.Errorf("%s: %d %.200s, want %d", test.name, resp.Status, body, test.want)
			case test.want == 503 && (strings.Contains(body, "the-gateway") || resp.Header.Get("Retry-After") != "1"):
				t.Errorf("%s: %v %s", test.name, resp.Header, body)
			case test.want != 503 && body != test.body:
				t.Errorf("%s: the answer was changed: %.200s", test.name, body)
			}
		})
	}
}
