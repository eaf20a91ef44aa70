package responses

import (
	"context"
	"crypto/sha256"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// Cache caches responses. A user with many responses evicts its own first. It is safe for
// concurrent use.
type Cache struct {
	authorizer *authz.Authorizer
	responses  *review.Cache[key, *Response]
	flights    flight.Group[key, *Response]
}

// key is the client, whom it acts as, and the request.
type key struct {
	client, subject authn.Digest
	request         [sha256.Size]byte
}

// Origin is where a response comes from.
type Origin uint8

const (
	// FromUpstream is a response to this request.
	FromUpstream Origin = iota
	// Shared is a response to an equal request that began after this one came.
	Shared
	// Cached is a cached response.
	Cached
)

// New returns a cache of at most size responses for the users of authorizer.
func New(authorizer *authz.Authorizer, size int) *Cache {
	return &Cache{authorizer: authorizer, responses: review.NewCache[key, *Response](size)}
}

// Covers reports whether the client and the user that it acts as are known by a current decision of
// the upstream. Other requests must be forwarded.
func (c *Cache) Covers(s *authn.Subject) bool { return !s.UpstreamDecides && !s.Offline }

// Get returns the response to a request of s, named by its digest: a cached one or that of fetch,
// which simultaneous callers share. share is the part of a request to the upstream that this caller
// caused. The error is that of fetch or ctx, or review.ErrNoReview.
func (c *Cache) Get(ctx context.Context, s *authn.Subject, request [sha256.Size]byte, fetch func(context.Context) (*Response, error)) (r *Response, origin Origin, share float64, err error) {
	k := key{client: s.Identity.User.Digest(), subject: s.User.Digest(), request: request}
	if r, ok := c.cached(k); ok {
		return r, Cached, 0, nil
	}
	if review.Disabled(ctx) {
		return nil, origin, 0, review.ErrNoReview
	}
	r, by, err := c.flights.Do(ctx, k, func(ctx context.Context) (*Response, error) {
		return c.fetch(ctx, s.Identity.User.GetName(), k, fetch)
	})
	if origin = FromUpstream; !by.First {
		origin = Shared
	}
	return r, origin, by.Part(), err
}

// cached returns a response since which no RBAC object has changed.
func (c *Cache) cached(k key) (*Response, bool) {
	r, ok := c.responses.Get(k)
	return r, ok && r.generation == c.authorizer.Generation()
}

func (c *Cache) fetch(ctx context.Context, name string, k key, fetch func(context.Context) (*Response, error)) (*Response, error) {
	if r, ok := c.cached(k); ok { // from the round before this one
		return r, nil
	}
	generation, began := c.authorizer.Generation(), c.authorizer.Clock()
	r, err := fetch(ctx)
	if err != nil || !r.Keep {
		return r, err
	}
	r.generation = generation
	ttl, _ := c.authorizer.TTL(r.Allowed, began)
	if r.For > 0 {
		ttl = min(ttl, r.For)
	}
	c.responses.Put(review.Entry[key, *Response]{Key: k, Owner: name, Value: r, Added: c.responses.Now(), TTL: ttl})
	return r, nil
}
