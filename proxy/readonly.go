package proxy

import (
	"slices"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/reason"
)

// restrict refuses what a rule forbids whatever the upstream allows; nil means go on. What is
// forbidden to who sends the request is, as whomever they act.
func (g *Gateway) restrict(x *exchange) *api.Response {
	if !g.restricts || readsOnly(x.request) || !slices.ContainsFunc(actors(x), func(u *identity.User) bool { return g.mayReadOnly(x, u) }) {
		return nil
	}
	g.refused.Count(reason.ReadOnly)
	x.decision.Reason = "a rule of kubeweir lets this client read only"
	return x.fail(identity.Forbidden(x.subject.User, identity.AttributesOf(x.info), x.decision.Reason))
}

// actors are who sends a request, and as whom, even if the upstream is to decide that.
func actors(x *exchange) []*identity.User {
	all := []*identity.User{x.subject.User, x.sender.User}
	if x.subject.UpstreamDecides {
		all = append(all, x.subject.Wanted())
	}
	return all
}

// mayReadOnly reports whether u may make no request like x but reads. A path that others read
// differently may be one of any resource.
func (g *Gateway) mayReadOnly(x *exchange, u *identity.User) bool {
	userAgent := x.request.Header.Get("User-Agent")
	if !x.request.PlainPath() {
		return g.rules.mayRestrict(u, userAgent)
	}
	settings := g.rules.decide(u, userAgent, x.info)
	return restrictsSome(&settings)
}

func restrictsSome(s *Settings) bool { return s.ReadOnly == Yes }

// readsOnly reports whether a request surely changes nothing: a get, a list, a watch, or a
// question of the client about itself. It can be read in one way only, for a path that others
// read differently may be one of what is not allowed.
func readsOnly(r *api.Request) bool {
	if isSelfReview(r) {
		return true
	}
	if r.Method != "GET" && r.Method != "HEAD" || !r.PlainPath() {
		return false
	}
	info := r.Info()
	if !info.IsResourceRequest {
		return r.Upgrade == ""
	}
	switch info.Verb {
	case "get", "list":
		return r.Upgrade == "" && subresourceIsRead(info.Subresource)
	case "watch":
		return subresourceIsRead(info.Subresource)
	}
	return false
}

// subresourceIsRead reports whether a GET of the subresource, "" for the object itself, reads.
// Others connect to something (exec, attach, portforward, proxy), and those of aggregated API
// servers may do anything.
func subresourceIsRead(subresource string) bool {
	switch subresource {
	case "", "status", "scale", "log", "ephemeralcontainers", "resize", "approval":
		return true
	}
	return false
}
