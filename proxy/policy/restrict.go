package policy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/reason"
)

// A Restriction is what rules forbid a request, whatever the upstream allows.
type Restriction struct {
	// Redacted says that the client sees objects without their secrets.
	Redacted bool
	// Why and Text are the reason and the message of a refusal; Text is "" if the request may go on.
	Why  reason.Refusal
	Text string
}

// Restrict decides what rules forbid a request of actors: who sends it, and as whom. What is
// forbidden to any of them is forbidden.
func (c *Compiled) Restrict(r *api.Request, actors []user.Info) (x Restriction) {
	if !c.restricts {
		return x
	}
	if x.Redacted = c.redacts && c.restrictsAny(r, actors, redactedOf); x.Redacted {
		if missing := unredactable(r); missing != "" {
			x.Why, x.Text = reason.Redacted, "a rule of kubeweir shows this client a redacted view, which "+missing
			return x
		}
	}
	if !readsOnly(r) && c.restrictsAny(r, actors, readOnlyOf) {
		x.Why, x.Text = reason.ReadOnly, "a rule of kubeweir lets this client read only"
	}
	return x
}

// restrictsAny reports whether a setting restricts any of the actors. A path that others read
// differently may be one of any resource.
func (c *Compiled) restrictsAny(r *api.Request, actors []user.Info, setting func(*Settings) Choice) bool {
	userAgent := r.Header.Get("User-Agent")
	return slices.ContainsFunc(actors, func(u user.Info) bool {
		if !r.PlainPath() {
			return c.rules.mayRestrict(u, userAgent, setting)
		}
		settings := c.rules.decide(u, userAgent, r.Info())
		return setting(&settings) == Yes
	})
}

func readOnlyOf(s *Settings) Choice { return s.ReadOnly }
func redactedOf(s *Settings) Choice { return s.Redacted }

// readsOnly reports whether a request surely changes nothing: a get, a list, a watch, or a
// question of the client about itself. It can be read in one way only, for a path that others
// read differently may be one of what is not allowed.
func readsOnly(r *api.Request) bool {
	if IsSelfReview(r) {
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

// unredactable says why a request has no answer in a redacted view, "" if it may have one: a
// get, a list or a watch that can be read in one way only, or what has no objects in it.
func unredactable(r *api.Request) string {
	if IsSelfReview(r) {
		return ""
	}
	info := r.Info()
	switch {
	case r.Method != "GET" && r.Method != "HEAD":
		return "has no writes: their answers have the objects"
	case !readsOnly(r):
		return "has gets, lists and watches only, by paths that everybody reads alike"
	case !info.IsResourceRequest:
		return unredactablePath(info.Path)
	case r.Method == "HEAD":
		return "has no answers to HEAD"
	case info.Subresource == "log":
		return "has no logs: what is secret in them is not known"
	case info.Subresource == "" && !info.Exact:
		return "has no requests that can be read in more than one way: give each parameter once, escaped, in ASCII, and none that reads do not have"
	case info.Subresource == "":
		return unredactableSelector(info.Options.FieldSelector)
	}
	return ""
}

// unredactablePath is unredactable for what is no resource. Health, versions and what there
// is, with its schemas, are shown; metrics and logs of a server may say anything.
func unredactablePath(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "", "api", "apis", "version", "openapi", "openid", ".well-known", "healthz", "livez", "readyz":
		return ""
	}
	return "does not have this path"
}

// unredactableSelector is unredactable for a selector, by which one could ask for a value
// until the answer is not empty.
func unredactableSelector(selector fields.Selector) string {
	if selector == nil {
		return ""
	}
	for _, term := range selector.Requirements() {
		if json.MayRedact(term.Field) {
			return "does not have the field " + term.Field + " to select by"
		}
	}
	return ""
}

// AccessReviewPath is where clients ask whether they may do something. The other questions, what
// they may do and who they are, have no answer that is a refusal.
const AccessReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// IsSelfReview reports whether a request asks what its user may do, or who it is. Nothing is
// changed by it.
func IsSelfReview(r *api.Request) bool {
	if r.Method != "POST" || r.RawPath != r.Path || r.Upgrade != "" {
		return false
	}
	switch r.Path {
	case AccessReviewPath, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		return true
	}
	return false
}
