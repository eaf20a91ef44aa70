// Package authn finds out who sends a request, in front of a cluster whose API server has the last
// word: client certificates and the headers of authenticating front proxies are verified here,
// bearer tokens are reviewed by TokenReview.
//
//	Authenticator.Authenticate   request -> Identity   who holds the connection or token
//	TakeImpersonation            headers -> user       as whom the client asks to act
//	Subject.SetUpstreamHeader    Subject -> headers    what a forwarded request carries
//
// Authenticate and TakeImpersonation remove the credentials from the request's header, so that none
// reaches the upstream by accident. Package authz decides whether an Identity may impersonate, and
// what the resulting Subject may do.
//
// Results are cached for the TTLs of Options under a keyed hash of the token, never the token. If
// the upstream is unavailable, an accepted token stays valid for OfflineTTL more; an unknown one is
// answered 503, not 401, so that clients keep it.
//
// Package proxy, its listeners and serve use the package. It imports the API vocabulary, package
// review and what is internal.
package authn
