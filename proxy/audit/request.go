package audit

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Metadata is what is known about a request when its client has been identified.
type Metadata struct {
	// ID is the request's Audit-Id.
	ID string
	// Cluster is the name of the upstream if there are several, else "".
	Cluster string
	Request *api.Request
	Info    *api.RequestInfo
	// Received is when the request arrived.
	Received time.Time
	// User is who sent the request, nil if that is unknown.
	User user.Info
	// Client is done when the client has left: events then do not wait long for a full queue. nil if
	// that never happens.
	Client context.Context
}

// accountName returns the name of the user whose share of memory the request takes.
func (m *Metadata) accountName() string {
	if m.User == nil {
		return ""
	}
	return m.Cluster + "/" + m.User.GetName()
}

// Request is a request that is recorded. Its methods may be called on nil, for a request that is not.
// They are called in the order of the stages, by one goroutine at a time.
type Request struct {
	log    *Log
	method string
	info   *api.RequestInfo
	ctx    context.Context // has only ac
	ac     *audit.AuditContext
	level  auditinternal.Level
	user   string // who sent the request, unique over all clusters
	// omitManagedFields leaves them out of objects.
	omitManagedFields bool
	// unidentified requests have one event, when the response begins.
	unidentified bool
	// upstream is true if the upstream adds objects and annotations.
	upstream bool
	// started is true if the response has begun.
	started atomic.Bool
	body    *requestBody // nil unless it is recorded
	reply   *responseBody
}

// Begin begins to record a request, unless the policy has level None for it.
func (l *Log) Begin(m *Metadata) *Request {
	if !l.Enabled() {
		return nil
	}
	sender := m.User
	if hasBadTimeout(m.Request) {
		sender = nil // kube-apiserver rejects it before it identifies the client
	}
	attributes := &authorizer.AttributesRecord{
		User: sender, Verb: m.Info.Verb, Path: m.Info.Path, ResourceRequest: m.Info.IsResourceRequest,
		Namespace: m.Info.Namespace, APIGroup: m.Info.APIGroup, APIVersion: m.Info.APIVersion,
		Resource: m.Info.Resource, Subresource: m.Info.Subresource, Name: m.Info.Name,
	}
	config := l.policy.EvaluatePolicyRule(attributes)
	r := &Request{
		log: l, method: m.Request.Method, info: m.Info, ctx: audit.WithAuditContext(context.Background()),
		level: config.Level, user: m.accountName(), omitManagedFields: config.OmitManagedFields, unidentified: sender == nil,
	}
	audit.ObservePolicyLevel(r.ctx, config.Level)
	if config.Level == auditinternal.LevelNone {
		return nil
	}
	r.ac = audit.AuditContextFrom(r.ctx)
	audit.WithAuditID(r.ctx, types.UID(m.ID))
	if err := r.ac.Init(config, sink{l, cmp.Or(m.Client, context.Background())}); err != nil {
		panic(err) // it is new
	}
	audit.LogRequestMetadata(r.ctx, httpRequest(m.Request), m.Received, attributes)
	if m.Cluster != "" {
		r.annotate("kubeweir/cluster", m.Cluster)
	}
	return r
}

// hasBadTimeout reports whether the request has a time limit that cannot be parsed (package filters,
// parseTimeout).
func hasBadTimeout(r *api.Request) bool {
	if !strings.Contains(r.RawQuery, "timeout=") || r.Info().LongRunning() {
		return false
	}
	values, _ := url.ParseQuery(r.RawQuery)
	_, err := time.ParseDuration(values.Get("timeout"))
	return err != nil && values.Get("timeout") != ""
}

// maxSourceIPs limits the addresses of one event; a header can hold thousands.
const maxSourceIPs = 64

// httpRequest returns the parts of a request that are recorded.
func httpRequest(r *api.Request) *http.Request {
	req := &http.Request{
		Method: r.Method, RemoteAddr: r.RemoteAddr, Header: make(http.Header, 3),
		URL: &url.URL{Path: r.Path, RawPath: r.RawPath, RawQuery: r.RawQuery},
	}
	for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} {
		value := r.Header.Get(name)
		if value == "" {
			continue
		}
		if parts := strings.SplitN(value, ",", maxSourceIPs+1); len(parts) > maxSourceIPs && name == "X-Forwarded-For" {
			value = strings.Join(parts[:maxSourceIPs], ",")
		}
		req.Header.Set(name, value)
	}
	return req
}

// Received records that the request was received. It returns false if the request must be rejected,
// because that could not be recorded.
func (r *Request) Received() bool {
	if r == nil || r.unidentified || r.ac.ProcessEventStage(r.ctx, auditinternal.StageRequestReceived) {
		return true
	}
	audit.ApiserverAuditDroppedCounter.WithContext(r.ctx).Inc()
	return false
}

// Impersonated records as whom the request is made.
func (r *Request) Impersonated(u user.Info) {
	if r != nil {
		r.ac.LogImpersonatedUser(u, "")
	}
}

// Context returns ctx for an upstream in this process, which adds to the events what it knows:
// objects, annotations of admission, the decision of the authorizer.
func (r *Request) Context(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	r.upstream = true
	return auditedContext{ctx, r.ctx}
}

// auditedContext is a context with the audit context of another one.
type auditedContext struct {
	context.Context
	audit context.Context
}

// Value implements context.Context.
func (c auditedContext) Value(key any) any {
	if v := c.audit.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// Decided records the authorizer's decision.
func (r *Request) Decided(allowed bool, reason string) {
	if r == nil {
		return
	}
	decision := "forbid"
	if allowed {
		decision = "allow"
	}
	r.annotate("authorization.k8s.io/decision", decision)
	r.annotate("authorization.k8s.io/reason", reason)
}

// From records the origin of the response.
func (r *Request) From(source string) {
	if r != nil {
		r.annotate("kubeweir/source", source)
	}
}

func (r *Request) annotate(key, value string) { audit.AddAuditAnnotation(r.ctx, key, value) }

// Responding records a response that is about to be sent, and takes its objects, as far as the policy
// records them. A response that is completely in memory is recorded as complete, so that its client
// does not get it before, as with kube-apiserver; for any other, Started and Complete follow. long is
// true for long-running requests.
func (r *Request) Responding(resp *api.Response, long bool) {
	if r == nil {
		return
	}
	streaming := resp.Stream != nil || resp.Upgrade != nil
	r.logRequestObject()
	if !streaming {
		r.capture(resp)
	}
	switch {
	case streaming:
		next := resp.Started
		resp.Started = func() {
			r.respond(resp.Status, long)
			if next != nil {
				next()
			}
		}
	case resp.BodyTo == nil:
		r.Complete(resp.Status, long)
	case long:
		r.respond(resp.Status, true)
	}
	done := resp.Done
	resp.Done = func(n int64, err error) {
		if done != nil {
			done(n, err)
		}
		if streaming || resp.BodyTo != nil {
			r.Complete(resp.Status, long)
		}
	}
}

// respond records that the response begins.
func (r *Request) respond(status int, long bool) {
	if r.started.Swap(true) {
		return
	}
	r.ac.SetEventResponseStatusCode(int32(status)) //nolint:gosec // it has three digits
	if long || r.unidentified {
		r.ac.ProcessEventStage(r.ctx, auditinternal.StageResponseStarted)
	}
}

// Complete records that the response is complete.
func (r *Request) Complete(status int, long bool) {
	if r == nil {
		return
	}
	r.reply.log(r)
	r.respond(status, long)
	if !r.unidentified {
		r.ac.SetEventResponseStatusCode(int32(status)) //nolint:gosec // it has three digits
		r.ac.ProcessEventStage(r.ctx, auditinternal.StageResponseComplete)
	}
}

// Panicked records that the request caused a panic.
func (r *Request) Panicked() {
	if r == nil {
		return
	}
	if r.body != nil {
		r.body.release()
	}
	if r.reply != nil {
		r.reply.release()
	}
	r.ac.SetEventResponseStatus(&metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: "APIServer panic'd: look in the log for details",
	})
	r.ac.ProcessEventStage(r.ctx, auditinternal.StagePanic)
}

// Action is what an operator did at the console.
type Action struct {
	Metadata
	// Name describes the action. Status is that of the response.
	Name   string
	Status int
	// Allowed and Reason are why it was performed or rejected.
	Allowed bool
	Reason  string
}

// Record records an action, as a request that is complete.
func (l *Log) Record(a *Action) {
	r := l.Begin(&a.Metadata)
	if r == nil {
		return
	}
	r.Decided(a.Allowed, a.Reason)
	r.annotate("kubeweir/action", a.Name)
	r.Complete(a.Status, false)
}
