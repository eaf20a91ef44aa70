// Package responses caches what the upstream responded to small requests of clients: what they may
// do, who they are, what it serves. Package proxy uses it for self-reviews, discovery and OpenAPI.
//
// That the upstream responded to somebody is a decision, too. So a response counts as long as one,
// for AllowedTTL or DeniedTTL of the Authorizer, and until an RBAC object changes. Nobody gets a
// response that was given to another user.
package responses
