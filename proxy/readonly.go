package proxy

import (
	"slices"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/reason"
)

// restrict refuses what a rule forbids whatever the upstream allows; nil means go on. What is
// forbidden to who sends the request is, as whomever they act.
func (g *Gateway) restrict(x *exchange) *api.Response {
	if why, text := x.restriction(); text != "" {
		return g.forbid(x, why, text)
	}
	return nil
}

// restriction is what restrict refuses, and the text of that; "" for nothing.
func (x *exchange) restriction() (why reason.Refusal, text string) {
	if !x.policy.restricts {
		return why, ""
	}
	if x.redacted = x.policy.redacts && restrictsSomebody(x, redactedOf); x.redacted {
		if unshown := unredactable(x.request); unshown != "" {
			return reason.Redacted, "a rule of kubeweir shows this client a redacted view, which " + unshown
		}
	}
	if !readsOnly(x.request) && restrictsSomebody(x, readOnlyOf) {
		return reason.ReadOnly, "a rule of kubeweir lets this client read only"
	}
	return why, ""
}

// forbid refuses a request for a reason that a rule has.
func (g *Gateway) forbid(x *exchange, why reason.Refusal, text string) *api.Response {
	g.refused.Count(why)
	x.decision.Reason = text
	return x.fail(authz.Forbidden(x.subject.User, authz.AttributesOf(x.info), text))
}

// actors are who sends a request, and as whom, even if the upstream is to decide that.
func actors(x *exchange) []*authn.User {
	all := []*authn.User{x.subject.User, x.sender.User}
	if x.subject.UpstreamDecides {
		all = append(all, x.subject.RequestedUser())
	}
	return all
}

// restrictsSomebody reports whether a setting restricts any of those who make a request. A
// path that others read differently may be one of any resource.
func restrictsSomebody(x *exchange, setting func(*Settings) Choice) bool {
	userAgent := x.request.Header.Get("User-Agent")
	return slices.ContainsFunc(actors(x), func(u *authn.User) bool {
		if !x.request.PlainPath() {
			return x.policy.rules.mayRestrict(u, userAgent, setting)
		}
		settings := x.policy.rules.decide(u, userAgent, x.info)
		return setting(&settings) == Yes
	})
}

func readOnlyOf(s *Settings) Choice { return s.ReadOnly }
func redactedOf(s *Settings) Choice { return s.Redacted }

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
