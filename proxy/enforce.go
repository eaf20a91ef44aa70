package proxy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// rejectBlocked rejects a request of a blocked user agent; nil means go on.
func (g *Gateway) rejectBlocked(x *exchange) *api.Response {
	if healthz.IsPath(x.Request.Path) {
		return nil
	}
	pattern, retry, blocked := g.Blocked.Reject(x.Request.Header.Get("User-Agent"))
	if !blocked {
		return nil
	}
	g.countRejected(x, reason.Blocked)
	return x.fail(api.NewTooManyRequests(fmt.Sprintf("an operator has temporarily blocked the user agent at kubeweir, by the pattern %q", pattern), policy.Seconds(retry)))
}

// countRejected counts a rejection of the request.
func (g *Gateway) countRejected(x *exchange, why reason.Rejection) {
	g.account.rejected.Count(why)
	x.span.SetReason(why.String())
}

var errOverBudget = errors.New("the sender is over an upstream budget")

// charge selects the budgets that apply to the request and rejects it if a rule blocks the client.
// If a budget is exhausted, no reviews are made for it.
func (g *Gateway) charge(ctx context.Context, x *exchange) (context.Context, *api.Response) {
	if !x.policy.HasBudgets {
		return ctx, nil
	}
	var blocked bool
	if x.Budgets, blocked = x.policy.ClientBudgetsOf(x.sender.User, x.Request); blocked {
		g.countRejected(x, reason.Blocked)
		return ctx, x.fail(api.NewTooManyRequests("a rule of kubeweir (block: true) blocks this client", policy.Seconds(policy.BlockedRetry)))
	}
	if x.Budgets.Exceeds(0) {
		ctx = review.WithoutReviews(ctx)
	}
	return ctx, nil
}

// restrict rejects requests that a rule forbids, whatever the upstream allows; nil means that the
// request may continue. The rules of the sender apply also if the sender impersonates another user.
func (g *Gateway) restrict(x *exchange) *api.Response {
	r := x.policy.Restrict(x.Request, x.Subject.Actors())
	if x.Redacted = r.Redacted; r.Text != "" {
		return g.rejectByRule(x, r.Why, r.Text)
	}
	return nil
}

// rejectByRule responds with a 403 that names the rule.
func (g *Gateway) rejectByRule(x *exchange, why reason.Rejection, text string) *api.Response {
	g.countRejected(x, why)
	x.Decision.Reason = text
	return x.fail(authz.Forbidden(x.Subject.User, authz.AttributesOf(x.Info), text))
}

// overBudget rejects a client that has exhausted a budget.
func (g *Gateway) overBudget(x *exchange) *api.Response {
	x.Budgets.Exceeded.Rule.Rejected.Add(1)
	g.countRejected(x, reason.OverBudget)
	return x.fail(x.Budgets.Rejection())
}

// SetPolicy replaces the policy. It applies to requests that arrive from then on. Streams that p
// would serve differently, or reject, end within two seconds (usagePeriod), so that their clients
// reconnect. Calls must not overlap.
func (g *Gateway) SetPolicy(p policy.Policy) {
	next := policy.Compile(p, g.policy.Load())
	if next.Any(func(s *policy.Settings) bool { return s.Mode == policy.ModeSession }) {
		g.session.StartObserving(g.policy.Load() != nil) // before a request can be in session mode
	}
	g.slots.inFlight.SetLimit(p.Limits.InFlight)
	g.slots.unidentified.SetLimit(p.Limits.InFlight)
	g.slots.longRunning.SetLimit(p.Limits.LongRunning)
	g.slots.resumed.SetLimit(p.Limits.Resumed)
	g.forwards.collapser.SetMaxBody(p.Limits.CollapsedBytes)
	g.policy.Store(next)
}

// budgets returns the budgets of the rules in force.
func (g *Gateway) budgets() []*policy.RuleBudgets { return g.policy.Load().Budgets() }

// outdated returns a function that reports whether the policy in force would now reject the
// stream of x or serve it differently. The function is not safe for concurrent use.
func (g *Gateway) outdated(x *exchange) func() bool {
	seen := x.policy
	return func() bool {
		now := g.policy.Load()
		if now == seen {
			return false
		}
		seen = now
		return x.servedOtherwise(now)
	}
}

// servedOtherwise reports whether p rejects the request of a stream, or changes what the stream
// sends.
func (x *exchange) servedOtherwise(p *policy.Compiled) bool {
	then := p.Decide(x.Subject.User, x.Request.Header.Get("User-Agent"), x.Info)
	budgets, blocked := p.ClientBudgetsOf(x.sender.User, x.Request)
	restriction := p.Restrict(x.Request, x.Subject.Actors())
	if blocked || restriction.Text != "" {
		return true
	}
	a, b := &x.Settings, &then
	return x.Redacted != restriction.Redacted || a.DropManagedFields != b.DropManagedFields || a.VisibleLists != b.VisibleLists ||
		a.Coalesce != b.Coalesce || a.WatchBytesPerSecond != b.WatchBytesPerSecond ||
		!x.Budgets.SameBytes(&budgets)
}

// endStreams ends streams whose user agent is blocked, or that the policy in force would reject
// or serve differently.
func (g *Gateway) endStreams() {
	g.account.usage.End(func(s *usage.Stream) bool {
		_, blocked := g.Blocked.Find(s.UserAgent)
		return blocked || s.Outdated()
	})
}

// whyEnded returns the reason for which endStreams ends the watch of x.
func (g *Gateway) whyEnded(x *exchange) reason.WatchEnd {
	if _, blocked := g.Blocked.Find(x.Request.Header.Get("User-Agent")); blocked {
		return reason.WatchBlocked
	}
	return reason.PolicyChanged
}

// Budgets returns the state of the rules' budgets, in their order.
func (g *Gateway) Budgets() []policy.BudgetState {
	out := []policy.BudgetState{}
	for _, b := range g.budgets() {
		out = append(out, b.State())
	}
	return out
}

// Fairness is the upstream's priority and fairness, if the upstream is in this process.
type Fairness interface {
	// Classify returns the UIDs of the flow schema and the priority level of a request of u, and
	// whether the level has no free seat. It is called for every read from memory, so it must be fast.
	Classify(u user.Info, r *api.RequestInfo) (schema, level string, full bool)
	// Serve calls serve once the priority level has a seat for the request, which it holds until serve
	// returns. A response is the rejection; then serve was not called.
	Serve(ctx context.Context, u user.Info, r *api.Request, serve func()) *api.Response
}

// flow is what Fairness knows about a request.
type flow struct {
	known, full   bool
	schema, level string
}

func (g *Gateway) flowOf(x *exchange) *flow {
	if f := &x.flow; !f.known {
		f.known = true
		f.schema, f.level, f.full = g.Fairness.Classify(x.Subject.User, x.Info)
	}
	return &x.flow
}

// mustQueue reports whether a read needs a seat. Reads from memory need none while the priority level
// has a free one: they are cheap, also those that wait for a version. Coalesced and revalidated reads are
// requests of the gateway itself to the upstream, which does not limit them.
func (g *Gateway) mustQueue(x *exchange, a route.Action) bool {
	return g.Fairness != nil && (a == route.Coalesce || a == route.Revalidate || g.flowOf(x).full)
}

// queue reads once the request has a seat.
func (g *Gateway) queue(ctx context.Context, x *exchange, d route.Decision) (resp *api.Response) {
	rejected := g.Fairness.Serve(ctx, x.Subject.User, x.Request, func() { resp = g.read(ctx, x, d) })
	if rejected == nil {
		return resp
	}
	if ctx.Err() == nil {
		g.countRejected(x, reason.PriorityLevelFull)
	}
	return rejected
}

// addFlow names the flow schema and the priority level of a request in the response, as the upstream
// does in those that it makes for the client. Like it, addFlow leaves out long-running requests other
// than watches, and WebSockets.
func (g *Gateway) addFlow(x *exchange, resp *api.Response) {
	if g.Fairness == nil || x.source == response.FromUpstream || resp.Status == 101 || x.Info.LongRunning() && x.Info.Verb != "watch" {
		return
	}
	f := g.flowOf(x)
	if x.source == response.FromCollapsed { // it names those of the gateway's request
		resp.Header.Del(schemaHeader)
		resp.Header.Del(levelHeader)
	}
	resp.Header = append(resp.Header, api.HeaderField{Name: schemaHeader, Value: f.schema}, api.HeaderField{Name: levelHeader, Value: f.level})
}

// The headers, in the form in which net/http sends them.
const (
	schemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"
	levelHeader  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)
