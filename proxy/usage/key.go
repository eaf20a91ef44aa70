package usage

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName bounds the names that are kept, in bytes; clients choose how long theirs are.
const maxName = 128

// Bounded is a name of at most 128 bytes: of a longer one the beginning, and a digest that tells
// it from others that begin alike.
func Bounded(name string) string {
	if len(name) <= maxName {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	const mark = "…"
	end := hex.EncodeToString(digest[:8])
	return strings.ToValidUTF8(name[:maxName-len(mark)-len(end)], "") + mark + end
}

// Resource is what a request is about. The zero value is for what is about none.
type Resource struct{ Group, Resource, Subresource string }

// String is the name: pods, deployments.apps, pods/log; "(no resource)" for none.
func (r Resource) String() string {
	if r.Resource == "" {
		return "(no resource)"
	}
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return name
}

// clone holds no larger string alive.
func (r Resource) clone() Resource {
	return Resource{strings.Clone(r.Group), strings.Clone(r.Resource), strings.Clone(r.Subresource)}
}

// Asker is who makes a request, with what, and of what.
type Asker struct {
	// User is who authenticated, whomever they act as; "" if that is not known.
	User      string
	UserAgent string // as the client says it
	Resource  Resource
}

// bounded is the asker with bounded names.
func (a Asker) bounded() Asker {
	r := a.Resource
	return Asker{Bounded(a.User), Bounded(a.UserAgent), Resource{Bounded(r.Group), Bounded(r.Resource), Bounded(r.Subresource)}}
}

// clone holds no larger string alive.
func (a Asker) clone() Asker {
	return Asker{strings.Clone(a.User), strings.Clone(a.UserAgent), a.Resource.clone()}
}
