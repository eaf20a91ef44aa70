// Package responses caches what the upstream responded to self-reviews: what users may do, and who
// they are.
//
// That the upstream responded to somebody is a decision, too. So a response counts as long as one,
// for AllowedTTL or DeniedTTL of the Authorizer, and until an RBAC object changes. Nobody gets a
// response that was given to another user.
package responses
