// Package authz decides what users may do, in front of a cluster whose API server has the last word:
// permissions are reviewed by SubjectAccessReview and the decisions are cached.
//
//	Authorizer.Impersonate   Identity -> Subject                     as whom a request acts
//	Authorizer.Authorize     Subject.User, Attributes -> Decision    whether it may
//
// It fails closed: an error allows nothing.
//
// # Freshness
//
// Decisions are cached for the TTLs of Options. Authorizer.Invalidate, called when an RBAC object of
// the cluster changed, drops all decisions; a review that began before it is not cached. If the
// gateway may not watch RBAC objects, nothing calls Invalidate: new requests notice a revocation
// after Options.AllowedTTL, open watches after revocation.Options.RecheckPeriod. Authorizers other
// than RBAC (webhooks, the node authorizer) are always followed only that far.
//
// # Offline
//
// While the upstream is unavailable, its last decision counts for Options.OfflineTTL, denials first.
// The RBAC objects in the cache (Options.Rules) decide requests that it never decided, never wider.
//
// Packages below it: rbac decides by RBAC objects, visible finds the namespaces in which a user may
// do something, revocation ends open watches that lost their permission, responses caches upstream
// responses per user. It imports authn, review, the API vocabulary and what is internal.
package authz
