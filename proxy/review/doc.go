// Package review holds what TokenReviews and SubjectAccessReviews have in common: creating one, what
// its errors mean, the cache of the results, and how users share the reviews.
//
// Packages authn and authz use it; it imports no other package of the proxy.
package review
