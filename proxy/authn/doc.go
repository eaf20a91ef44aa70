// Package identity decides who asks and what they may do, in front of a cluster
// whose API server has the last word on both: bearer tokens are reviewed by
// TokenReview, permissions by SubjectAccessReview.
//
// A request passes three steps, each with its own type:
//
//	Authenticator.Authenticate   request -> Identity   who holds the connection or token
//	authz.Authorizer.Impersonate       Identity -> Subject   whom they act as
//	authz.Authorizer.Authorize         Subject.User + authz.Attributes -> authz.Decision
//
// Authenticate and Impersonate take the credentials out of the request's header,
// so that nothing of them can reach the upstream by accident;
// Subject.SetUpstreamHeader puts back what a forwarded request must carry.
//
// An open watch outlives the decision that opened it. revocation.Watches reviews the
// permission and the credential of open watches again, at once when a watched
// RBAC object changed and periodically otherwise, and ends those that lost it.
//
// # Freshness
//
// responses.Cache are cached for the TTLs of the options. authz.Authorizer.Invalidate, called
// when an RBAC object of the cluster changed, drops all decisions; a review that
// began before it is not kept. Where the gateway may not watch RBAC objects,
// nothing calls Invalidate: a revocation is then noticed by new requests after
// authz.Options.AllowedTTL and by open watches after
// revocation.Options.RecheckPeriod. Authorizers other than RBAC (webhooks, the node
// authorizer) are always followed only that far.
package authn
