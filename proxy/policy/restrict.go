package policy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Restriction is what rules forbid about a request, whatever the upstream allows.
type Restriction struct {
	// Redacted is true if the client sees objects without their secret values.
	Redacted bool
	// Why and Text are the reason and the message of the rejection. Text is "" if the request is not
	// rejected.
	Why  reason.Rejection
	Text string
}

// Restrict decides what rules forbid about a request of actors: the client and the user that it
// impersonates. A request is rejected if it is forbidden to any of them.
func (c *Compiled) Restrict(r *api.Request, actors []user.Info) (x Restriction) {
	if !c.restricts {
		return x
	}
	if x.Redacted = c.redacts && c.restrictsAny(r, actors, redactedOf); x.Redacted {
		if missing := unredactable(r); missing != "" {
			x.Why, x.Text = reason.Redacted, "a rule of kubeweir (view: redacted) shows this client a redacted view, which "+missing
			return x
		}
	}
	if !readsOnly(r) && c.restrictsAny(r, actors, readOnlyOf) {
		x.Why, x.Text = reason.ReadOnly, "a rule of kubeweir (readOnly: true) restricts this client to reads"
	}
	return x
}

// restrictsAny reports whether a setting restricts any of the actors. A path that the upstream may read
// differently may be one of any resource.
func (c *Compiled) restrictsAny(r *api.Request, actors []user.Info, setting func(*Settings) Choice) bool {
	userAgent := r.Header.Get("User-Agent")
	return slices.ContainsFunc(actors, func(u user.Info) bool {
		if !r.PlainPath() {
			return c.mayRestrict(u, userAgent, setting)
		}
		settings := c.Decide(u, userAgent, r.Info())
		return setting(&settings) == Yes
	})
}

// mayRestrict reports whether a setting restricts u for some resource.
func (c *Compiled) mayRestrict(u user.Info, userAgent string, setting func(*Settings) Choice) bool {
	for i := range c.rules {
		switch r := &c.rules[i]; {
		case setting(&r.settings) == Unset || !r.matches(u, userAgent, nil):
		case setting(&r.settings) == Yes:
			return true
		case len(r.resources) == 0:
			return false
		}
	}
	return false
}

func readOnlyOf(s *Settings) Choice { return s.ReadOnly }
func redactedOf(s *Settings) Choice { return s.Redacted }

// readsOnly reports whether a request certainly changes nothing: a get, list, watch or self-review. A
// path that servers may read differently is no read, because it may be one of a write.
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

// subresourceIsRead reports whether a GET of the subresource, "" for the object itself, only reads.
// Other subresources connect to something (exec, attach, portforward, proxy), and those of aggregated
// API servers may have any effect.
func subresourceIsRead(subresource string) bool {
	switch subresource {
	case "", "status", "scale", "log", "ephemeralcontainers", "resize", "approval":
		return true
	}
	return false
}

// unredactable returns why a redacted view has no response to a request, "" if it may have one: to
// unambiguous gets, lists and watches, and to requests whose responses have no objects.
func unredactable(r *api.Request) string {
	if IsSelfReview(r) {
		return ""
	}
	info := r.Info()
	switch {
	case r.Method != "GET" && r.Method != "HEAD":
		return "does not allow writes: their responses contain the objects"
	case !readsOnly(r):
		return "allows only gets, lists and watches with unambiguous paths"
	case !info.IsResourceRequest:
		return unredactablePath(info.Path)
	case r.Method == "HEAD":
		return "does not allow HEAD"
	case info.Subresource == "log":
		return "does not allow logs: secrets in them cannot be recognized"
	case info.Subresource == "" && !info.Exact:
		return "does not allow ambiguous requests: give each parameter once, percent-encoded in ASCII, and only parameters of reads"
	case info.Subresource == "":
		return unredactableSelector(info.Options.FieldSelector)
	}
	return ""
}

// unredactablePath is unredactable for paths of no resource. Health, versions, discovery and schemas are
// shown; a server's metrics and logs may contain secrets.
func unredactablePath(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "", "api", "apis", "version", "openapi", "openid", ".well-known", "healthz", "livez", "readyz":
		return ""
	}
	return "does not include this path"
}

// unredactableSelector is unredactable for a field selector: with one of a redacted field, clients could
// guess its value until the response is not empty.
func unredactableSelector(selector fields.Selector) string {
	if selector == nil {
		return ""
	}
	for _, term := range selector.Requirements() {
		if json.MayRedact(term.Field) {
			return "does not allow field selectors on " + term.Field
		}
	}
	return ""
}

// AccessReviewPath is the path of SelfSubjectAccessReview, the only self-review that can deny
// something.
const AccessReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// IsSelfReview reports whether a request asks what its user may do, or who it is. It changes nothing.
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
