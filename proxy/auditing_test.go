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
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/authn"
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

// recordedEvents serves requests with a policy that records everything, and returns the events.
func recordedEvents(t *testing.T, level auditapi.Level, change func(*Options), use func(b *gatewayBench)) []auditv1.Event {
	t.Helper()
	var out bytes.Buffer
	log, err := audit.Open(audit.Options{
		Stdout: &out, File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlocking}},
		Policy: &auditapi.Policy{Rules: []auditapi.PolicyRule{{Level: level}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	use(newGatewayBench(t, func(o *Options) {
		o.Audit = log
		if change != nil {
			change(o)
		}
	}))
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	for line := range strings.Lines(out.String()) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// TestRejectedAndPanickedRequestsAreAudited checks the last stages of requests without a usual response.
func TestRejectedAndPanickedRequestsAreAudited(t *testing.T) {
	events := recordedEvents(t, auditapi.LevelMetadata, nil, func(b *gatewayBench) {
		b.upstream.response = func(*api.Request) *api.Response { panic("upstream") }
		func() {
			defer func() { _ = recover() }()
			b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/panics"))
		}()
		b.gateway.slots.inFlight.SetLimit(1)
		b.gateway.slots.inFlight.Acquire("other", 1)
		b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/busy")).Done(0, nil)
	})
	var got []string
	for _, e := range events {
		code := int32(0)
		if e.ResponseStatus != nil {
			code = e.ResponseStatus.Code
		}
		got = append(got, fmt.Sprint(e.ObjectRef.Name, " ", e.Stage, " ", code))
	}
	if want := []string{"panics RequestReceived 0", "panics Panic 500", "busy RequestReceived 0", "busy ResponseComplete 429"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

type panickingWriter struct{}

func (panickingWriter) Write([]byte) (int, error) { panic("writer") }

// TestPanicsWhileAuditingReleaseSlots checks that a request whose first event causes a panic leaves no
// slot behind.
func TestPanicsWhileAuditingReleaseSlots(t *testing.T) {
	log, err := audit.Open(audit.Options{
		Stdout: panickingWriter{}, File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlocking}},
		Policy: &auditapi.Policy{Rules: []auditapi.PolicyRule{{Level: auditapi.LevelMetadata}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newGatewayBench(t, func(o *Options) { o.Audit = log })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/p"))
	}()
	if n := b.gateway.slots.inFlight.InUse(); n != 0 {
		t.Errorf("%d slots are held after a panic", n)
	}
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

type noTokenReviews struct{ err error }

func (n noTokenReviews) Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	return nil, n.err
}

// TestRequestsOfUnknownClientsAreAudited checks requests that are rejected before their client is known.
func TestRequestsOfUnknownClientsAreAudited(t *testing.T) {
	events := recordedEvents(t, auditapi.LevelMetadata, func(o *Options) {
		o.Blocked = policy.NewBlocked(nil)
		if err := o.Blocked.Block("bad-agent*", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}, func(b *gatewayBench) {
		for _, agent := range []string{"bad-agent/1", "good"} {
			b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/blocked", "User-Agent: "+agent)).Done(0, nil)
		}
		var err error
		if b.gateway.Authenticator, err = authn.New(authn.Options{TokenReviewer: noTokenReviews{apierrors.NewServiceUnavailable("away")}}); err != nil {
			t.Fatal(err)
		}
		b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/unreviewed")).Done(0, nil)
		b.gateway.slots.unidentified.SetLimit(1)
		b.gateway.slots.unidentified.Acquire()
		b.gateway.Serve(t.Context(), request("DELETE /api/v1/namespaces/a/pods/busy")).Done(0, nil)
	})
	var got []string
	for _, e := range events {
		if e.User.Username == "" {
			got = append(got, fmt.Sprint(e.ObjectRef.Name, " ", e.Stage, " ", e.ResponseStatus.Code))
		}
	}
	if want := []string{"blocked ResponseStarted 429", "unreviewed ResponseStarted 503"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRedactedResponsesAreAuditedAsSent checks that the log has what the client saw, and no more.
func TestRedactedResponsesAreAuditedAsSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := audit.Open(audit.Options{
			Stdout: &out, File: audit.File{Path: "-", Delivery: audit.Delivery{Mode: audit.ModeBlocking}},
			Policy: &auditapi.Policy{Rules: []auditapi.PolicyRule{{Level: auditapi.LevelRequestResponse}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b := redactedBench(t, func(o *Options) { o.Audit = log })
		for _, path := range []string{"namespaces/default/secrets/a", "secrets", "pods"} {
			if status, text := b.read(t, "GET /api/v1/"+path+"?resourceVersion=0", "Authorization: Bearer agent", "Accept: application/json"); status != 200 || leaks(text) {
				t.Fatal(status, text)
			}
		}
		if err := log.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), `"responseObject":`); n != 3 || leaks(out.String()) {
			t.Errorf("%d objects in\n%s", n, &out)
		}
	})
}
