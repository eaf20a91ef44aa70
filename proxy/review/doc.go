// Package review holds what TokenReviews and SubjectAccessReviews have in common: how they are
// created and what their errors mean, the cache of their results, what happens while the upstream
// is unavailable, and how users share them.
//
// Packages authn and authz, and the packages below authz, use it. It imports no other package of
// the proxy.
package review
