package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestVerify asks servers of all kinds.
func TestVerify(t *testing.T) {
	response := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/debug/verify" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	found := func(collections string) http.HandlerFunc {
		return response(200, "application/json", `{"collections":[`+collections+`]}`)
	}
	const (
		same    = `{"group":"","version":"v1","resource":"pods","encoding":"json","result":"same","resourceVersion":7,"objects":20,"sampled":10}`
		differs = `{"group":"apps","version":"v1","resource":"deployments","encoding":"json","result":"differs","resourceVersion":8,"objects":2,"sampled":0,"differing":3,` +
			`"differences":[{"key":"a/b","difference":"missing","upstream":6},{"key":"a/c","difference":"version","cached":3,"upstream":4}]}`
		unfinished = `{"group":"","version":"v1","resource":"nodes","encoding":"protobuf","result":"unfinished","objects":0,"sampled":0,"error":"it is stale"}`
	)
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		args    []string
		code    int
		stdout  []string
		stderr  string
	}{
		{"same", found(same), nil, 0, []string{"COLLECTION  ENCODING  OBJECTS  VERSION  SAMPLED  RESULT\npods        json      20       7        10       same\n"}, ""},
		{"differs", found(same + "," + differs), nil, 1, []string{
			"deployments.apps  json      2        8        0        differs\n",
			"deployments.apps a/b: missing (cached: none, upstream: 6)\ndeployments.apps a/c: version (cached: 3, upstream: 4)\ndeployments.apps: and 1 more\n",
		}, "kubeweir: 1 of 2 collections differ from the upstream"},
		{"unfinished", found(unfinished), nil, 1, []string{"nodes       protobuf  -        -        -        unfinished: it is stale\n"}, "kubeweir: 1 of 1 collections could not be compared"},
		{"as json", found(differs), []string{"-o", "json"}, 1, []string{`"key": "a/b"`}, "kubeweir: 1 of 1 collections differ"},
		{"nothing", found(""), nil, 1, nil, "kubeweir: this gateway does not cache anything yet"},
		{"nothing of it", found(""), []string{"--resource", "pdos"}, 1, nil, "kubeweir: this gateway does not cache pdos"},
		{"another program", response(404, "text/plain", "404 page not found"), nil, 1, nil, "is not a kubeweir admin listener that supports verify: 404 Not Found"},
		{"a web page", response(200, "text/html", "<html>"), nil, 1, nil, "is not a kubeweir admin listener that supports verify: 200 OK"},
		{"other JSON", response(200, "application/json", "{}"), nil, 1, nil, "is not a kubeweir admin listener that supports verify: 200 OK"},
		{"refused", response(403, "text/plain", "forbidden: not from here\n"), nil, 1, nil, "rejects the request: forbidden: not from here"},
		{"busy", response(429, "text/plain", "somebody else\n"), nil, 1, nil, "rejects the request: somebody else"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(c.handler)
			defer s.Close()
			expectVerify(t, append([]string{"--admin", s.URL}, c.args...), c.code, c.stdout, c.stderr)
		})
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	expectVerify(t, []string{"--admin", free.Addr().String()}, 1, nil, "kubeweir: no gateway responds at http://"+free.Addr().String()+"; check --admin and the --admin-listen of the gateway: ")
	expectVerify(t, []string{"--admin", "ftp://x"}, 2, nil, `kubeweir: --admin must be a URL such as http://127.0.0.1:9444, not "ftp://x"`)
	expectVerify(t, []string{"--admin", "http://x/metrics"}, 2, nil, `kubeweir: --admin must be a URL`)
	expectVerify(t, []string{"-o", "yaml"}, 2, nil, `kubeweir: --output must be table or json, not "yaml"`)
	expectVerify(t, []string{"pods"}, 2, nil, `kubeweir: unexpected argument "pods"`)
}

func expectVerify(t *testing.T, args []string, code int, stdout []string, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if got := command(t.Context(), append([]string{"verify"}, args...), &out, &errOut); got != code {
		t.Errorf("verify %v: code %d, want %d", args, got, code)
	}
	for _, want := range stdout {
		if !strings.Contains(out.String(), want) {
			t.Errorf("verify %v printed\n%s, which lacks\n%s", args, &out, want)
		}
	}
	if !strings.Contains(errOut.String(), stderr) || strings.Count(errOut.String(), "\n") > 1 || stderr == "" && errOut.Len() > 0 {
		t.Errorf("verify %v: error %q, want %q", args, errOut.String(), stderr)
	}
}
