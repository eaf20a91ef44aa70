package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestEveryRequestIsAudited: reads and writes, answered here or forwarded, refused or
// not, and upgrades when they begin and when they end; not questions after health.
func TestEveryRequestIsAudited(t *testing.T) {
	var out bytes.Buffer
	log, err := audit.Open(audit.Options{File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlocking}}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	b := newGatewayBench(t, func(o *Options) { o.Audit = log })
	b.upstream.response = func(r *api.Request) *api.Response {
		if r.Upgrade != "" {
			return &api.Response{Status: 101, Upgrade: func(net.Conn) {}}
		}
		return &api.Response{Status: 200, Body: []byte("upstream")}
	}
	send := func(r *api.Request) {
		resp := b.gateway.Serve(t.Context(), r)
		if resp.Started != nil {
			resp.Started()
		}
		resp.Done(0, nil)
	}
	send(request("GET /readyz"))
	send(request("POST /api/v1/namespaces/a/pods"))
	send(request("DELETE /api/v1/namespaces/a/secrets/x"))
	send(request("GET /api/v1/namespaces/a/secrets/x"))
	send(request("GET /api/v1/namespaces/a/pods?resourceVersion=0"))
	exec := request("GET /api/v1/namespaces/a/pods/p/exec")
	exec.Upgrade = "SPDY/3.1"
	send(exec)
	socket := b.gateway.Serve(t.Context(), request(socketWatch, socketHeader...))
	socket.Started()
	stop(socket)
	attach := request("GET /api/v1/namespaces/a/pods/p/attach")
	attach.Upgrade = "websocket"
	rejected := b.gateway.Serve(t.Context(), attach)
	rejected.Status = 400 // by the transport, see api.Response.Done
	rejected.Done(0, nil)
	bad := request("DELETE /api/v1/namespaces/a/pods/p")
	bad.Header.Set("Authorization", "Bearer bad")
	send(bad)
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for line := range strings.Lines(out.String()) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got[e.Verb+" "+e.RequestURI+" "+string(e.Stage)] = fmt.Sprint(e.User.Username, " ", e.Annotations["kubeweir/source"], " ", e.ResponseStatus.Code)
	}
	want := map[string]string{
		"create /api/v1/namespaces/a/pods ResponseComplete":                 "admin forwarded 200",
		"delete /api/v1/namespaces/a/secrets/x ResponseComplete":            "admin forwarded 200",
		"get /api/v1/namespaces/a/secrets/x ResponseComplete":               "admin forwarded 200",
		"list /api/v1/namespaces/a/pods?resourceVersion=0 ResponseComplete": "admin cached 200",
		"get /api/v1/namespaces/a/pods/p/exec ResponseStarted":              "admin forwarded 101",
		"watch /api/v1/pods?watch=1&resourceVersion=0 ResponseStarted":      "admin cached 101",
		"watch /api/v1/pods?watch=1&resourceVersion=0 ResponseComplete":     "admin cached 101",
		"get /api/v1/namespaces/a/pods/p/exec ResponseComplete":             "admin forwarded 101",
		"delete /api/v1/namespaces/a/pods/p ResponseStarted":                "  401",
		"get /api/v1/namespaces/a/pods/p/attach ResponseStarted":            "admin forwarded 400",
		"get /api/v1/namespaces/a/pods/p/attach ResponseComplete":           "admin forwarded 400",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("events: %v", got)
	}
}

// TestDecisionsByRulesAreAudited: a question that is answered from memory was allowed, and what
// a rule forbids was not, and why.
func TestDecisionsByRulesAreAudited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := audit.Open(audit.Options{File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlocking}}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		b := selfBench(t, func(o *Options) {
			o.Audit = log
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"admin"}}, Settings: policy.Settings{ReadOnly: policy.Yes}}}
		})
		b.post(accessReviews, listPods)
		b.post(accessReviews, listPods)
		b.do("DELETE /api/v1/namespaces/a/pods/p")
		if err := log.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			a := e.Annotations
			got = append(got, fmt.Sprint(e.Verb, " ", a["kubeweir/source"], " ", a["authorization.k8s.io/decision"], " ", a["authorization.k8s.io/reason"]))
		}
		want := []string{"create forwarded  ", "create cached allow ", "delete  forbid a rule of kubeweir (readOnly: true) restricts this client to reads"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
