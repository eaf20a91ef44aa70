package usage

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxName limits the names that are kept, in bytes; clients choose the length of theirs.
const maxName = 128

// Bounded returns a name of at most 128 bytes: of a longer one the beginning, and a digest that
// distinguishes it from others that begin alike.
func Bounded(name string) string {
	if len(name) <= maxName {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	const mark = "…"
	end := hex.EncodeToString(digest[:8])
	return strings.ToValidUTF8(name[:maxName-len(mark)-len(end)], "") + mark + end
}

// Resource is what a request is about, zero if it is about none.
type Resource struct{ Group, Resource, Subresource string }

// String returns the name: pods, deployments.apps, pods/log; "(no resource)" for none.
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

// clone copies the strings, which may be parts of larger ones.
func (r Resource) clone() Resource {
	return Resource{strings.Clone(r.Group), strings.Clone(r.Resource), strings.Clone(r.Subresource)}
}

// Client is who makes a request, with which program, and of what.
type Client struct {
	// User is who was authenticated, whomever the request acts as; "" if that is unknown.
	User      string
	UserAgent string // as the client sends it
	Resource  Resource
}

// bounded returns the client with bounded names.
func (c Client) bounded() Client {
	r := c.Resource
	return Client{Bounded(c.User), Bounded(c.UserAgent), Resource{Bounded(r.Group), Bounded(r.Resource), Bounded(r.Subresource)}}
}

// clone copies the strings, which may be parts of larger ones.
func (c Client) clone() Client {
	return Client{strings.Clone(c.User), strings.Clone(c.UserAgent), c.Resource.clone()}
}

// Cost is what requests have cost.
type Cost struct {
	// Requests is the number of requests, Rejected how many of them kubeweir answered 429.
	Requests int64 `json:"requests"`
	Rejected int64 `json:"rejected"`
	// Bytes counts the bytes of bodies, as they were sent to clients.
	Bytes int64 `json:"bytes"`
	// UpstreamRequests and UpstreamBytes are requests to the upstream, and the bytes sent to and
	// received from it. A request that several clients share counts in part for each.
	UpstreamRequests float64 `json:"upstreamRequests"`
	UpstreamBytes    float64 `json:"upstreamBytes"`
	// Work is an estimate of the CPU time, in nanoseconds of the machine that the prices were
	// measured on (see Price).
	Work float64 `json:"-"`
}

func (c *Cost) add(more *Cost) {
	c.Requests += more.Requests
	c.Rejected += more.Rejected
	c.Bytes += more.Bytes
	c.UpstreamRequests += more.UpstreamRequests
	c.UpstreamBytes += more.UpstreamBytes
	c.Work += more.Work
}

// The weight of a cost counts, besides the work, a request to the upstream as a millisecond,
// because it takes CPU there, too, and a byte as a nanosecond. A key with a large cost of any kind is
// kept, whichever kind a reader sorts by.
const (
	upstreamRequestWeight = 1e6
	upstreamByteWeight    = 1
	// requestWeight is the least weight of a request, and more than half of that of a cheap one: it
	// limits how many requests can be missing.
	requestWeight = 10e3
)

// weight returns how much a cost counts when keys are dropped.
func (c *Cost) weight() float64 {
	return requestWeight*float64(c.Requests) + c.Work + upstreamRequestWeight*c.UpstreamRequests + upstreamByteWeight*c.UpstreamBytes
}

// Price is what a kind of request costs in CPU time, in nanoseconds.
type Price struct{ Request, Byte float64 }

// Of returns the price of requests that sent so many bytes.
func (p Price) Of(requests, bytes int64) float64 {
	return p.Request*float64(requests) + p.Byte*float64(bytes)
}
