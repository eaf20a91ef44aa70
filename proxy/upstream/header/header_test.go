package header

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeweir/kubeweir/internal/api"
)

func request(method string, lines ...string) *api.Request {
	r := &api.Request{Method: method, RemoteAddr: "192.0.2.7:4711"}
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	return r
}

func TestRequest(t *testing.T) {
	own, client := Identity{}, Identity{Token: true}
	keep := Identity{Token: true, Impersonation: true}
	tests := map[string]struct {
		keep   Identity
		method string
		in     []string
		want   http.Header
	}{
		"passed on": {client, "GET", []string{
			"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1", "Accept", "application/json", "Accept-Encoding", "gzip",
			"Content-Type", "application/apply-patch+yaml", "User-Agent", "kubectl/v1.36", "Audit-Id", "abc", "If-None-Match", `"x"`,
			"Authorization", "Bearer t", "Kubectl-Command", "kubectl get", "Cookie", "a=b", "X-Custom", "ä",
		}, http.Header{
			"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json"}, "Accept-Encoding": {"gzip"},
			"Content-Type": {"application/apply-patch+yaml"}, "User-Agent": {"kubectl/v1.36"}, "Audit-Id": {"abc"}, "If-None-Match": {`"x"`},
			"Authorization": {"Bearer t"}, "Kubectl-Command": {"kubectl get"}, "Cookie": {"a=b"}, "X-Custom": {"ä"},
		}},
		"of the connection": {client, "GET", []string{
			"Connection", "keep-alive", "Keep-Alive", "timeout=5", "X-Three", "3",
			"Upgrade", "h2c", "Http2-Settings", "x", "Trailer", "X", "Transfer-Encoding", "chunked", "Proxy-Authorization", "secret",
			"Proxy-Connection", "close", "Host", "gateway", "Content-Length", "5", "Expect", "100-continue",
		}, http.Header{"X-Three": {"3"}}},
		"trailers": {client, "GET", []string{"Te", "trailers"}, http.Header{"Te": {"trailers"}}},
		// A client cannot drop the headers that the gateway adds.
		"named by the connection": {keep, "GET", []string{"Connection", "Impersonate-User, Audit-Id", "Impersonate-User", "bob", "Audit-Id", "a"}, http.Header{
			"Impersonate-User": {"bob"}, "Audit-Id": {"a"},
		}},
		"front proxy":            {client, "GET", []string{"X-Remote-User", "admin", "x-remote-group", "system:masters", "X-Remote-Extra-A", "b", "X-Remote-Uid", "1", "X-Remote-", "x"}, http.Header{}},
		"impersonation stripped": {client, "GET", []string{"Impersonate-User", "admin", "impersonate-group", "system:masters", "Impersonate-Extra-A", "b", "Impersonate-Uid", "1", "Impersonate-", "x"}, http.Header{}},
		"impersonation kept": {keep, "GET", []string{"Impersonate-User", "bob", "Impersonate-Group", "a", "Impersonate-Group", "b"}, http.Header{
			"Impersonate-User": {"bob"}, "Impersonate-Group": {"a", "b"},
		}},
		"underscores": {keep, "GET", []string{
			"Impersonate_user", "admin", "X_remote_user", "admin", "X-Remote_group", "g", "Impersonate-Extra-A_b", "c", "X_b", "d",
		}, http.Header{"Impersonate-Extra-A_b": {"c"}, "X_b": {"d"}}},
		"own identity": {own, "GET", []string{"Authorization", "Bearer stolen", "Impersonate-User", "admin", "X-Remote-User", "admin", "Accept", "x"}, http.Header{"Accept": {"x"}}},
		"own identity, impersonation by the caller": {Identity{Impersonation: true}, "GET", []string{"Authorization", "Bearer stolen", "Impersonate-User", "bob"}, http.Header{
			"Impersonate-User": {"bob"},
		}},
		"forwarded for": {client, "GET", []string{"X-Forwarded-For", "198.51.100.1", "X-Forwarded-For", "198.51.100.2, 198.51.100.3"}, http.Header{
			"X-Forwarded-For": {"198.51.100.1, 198.51.100.2, 198.51.100.3, 192.0.2.7"},
		}},
		"idempotency key of a write": {client, "DELETE", []string{"Idempotency-Key", "x", "X-Idempotency-Key", "y"}, http.Header{"idempotency-key": {"x"}, "x-idempotency-key": {"y"}}},
		"idempotency key of a read":  {client, "GET", []string{"Idempotency-Key", "x"}, http.Header{"Idempotency-Key": {"x"}}},
		"token as subprotocol": {client, "GET", []string{"Sec-Websocket-Protocol", tokenProtocol + "dG9rZW4, v5.channel.k8s.io"}, http.Header{
			"Sec-Websocket-Protocol": {tokenProtocol + "dG9rZW4, v5.channel.k8s.io"},
		}},
		"token as subprotocol emptied": {own, "GET", []string{"Sec-Websocket-Protocol", tokenProtocol + "dG9rZW4, v5.channel.k8s.io", "Sec-Websocket-Protocol", "v4.channel.k8s.io"}, http.Header{
			"Sec-Websocket-Protocol": {tokenProtocol + ", v5.channel.k8s.io", "v4.channel.k8s.io"},
		}},
		"only token as subprotocol": {own, "GET", []string{"Sec-Websocket-Protocol", tokenProtocol + "dG9rZW4"}, http.Header{
			"Sec-Websocket-Protocol": {tokenProtocol},
		}},
		"token as a later subprotocol": {own, "GET", []string{"Sec-Websocket-Protocol", "a,\t" + tokenProtocol + "dG9rZW4,b"}, http.Header{
			"Sec-Websocket-Protocol": {"a," + tokenProtocol + ",b"},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Request(request(tt.method, tt.in...), tt.keep)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := tt.want["X-Forwarded-For"]; !ok {
				tt.want["X-Forwarded-For"] = []string{"192.0.2.7"}
			}
			if _, ok := tt.want["User-Agent"]; !ok {
				tt.want["User-Agent"] = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestForwardedForOfSockets(t *testing.T) {
	for remote, want := range map[string]string{"@": "", "": "", "[2001:db8::1]:80": "2001:db8::1", "192.0.2.1:1": "192.0.2.1"} {
		r := request("GET")
		r.RemoteAddr = remote
		h, err := Request(r, Identity{Token: true})
		if err != nil || h.Get("X-Forwarded-For") != want {
			t.Errorf("%q: X-Forwarded-For %q, %v; want %q", remote, h.Get("X-Forwarded-For"), err, want)
		}
	}
}

func TestResponse(t *testing.T) {
	in := http.Header{
		"Content-Type": {"application/json"}, "Audit-Id": {"a"}, "Warning": {`299 - "one"`, `299 - "two"`}, "Retry-After": {"1"},
		"Etag": {`"e"`}, "Vary": {"Accept", "Accept-Encoding"}, "X-Kubernetes-Pf-Flowschema-Uid": {"u"}, "X-Kubernetes-Pf-Prioritylevel-Uid": {"v"},
		"Cache-Control": {"no-cache, private"}, "Content-Encoding": {"gzip"}, "Date": {"x"}, "Location": {"/elsewhere"},
		"Connection": {"close, X-Hop"}, "X-Hop": {"y"}, "Keep-Alive": {"z"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"T"}, "Upgrade": {"h2c"},
		"Proxy-Authenticate": {"Basic"}, "Content-Length": {"7"},
	}
	want := in.Clone()
	for _, name := range []string{"Connection", "X-Hop", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade", "Proxy-Authenticate", "Content-Length"} {
		delete(want, name)
	}
	got := http.Header{}
	for _, f := range Response(in, "GET") {
		got.Add(f.Name, f.Value)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	head := Response(in, "HEAD")
	if head.Get("Content-Length") != "7" {
		t.Error("HEAD does not tell the length")
	}
}
