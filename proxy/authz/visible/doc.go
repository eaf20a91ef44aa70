// Package visible finds the namespaces in which a user may do what it may not do in all of them, for
// rules with visibleLists.
//
// The candidates are the namespaces in which the RBAC objects of the cluster grant it; each counts
// once the upstream has confirmed it for just that namespace. So nothing is ever wider than the sum
// of what the user may do in one namespace after the other, whatever authorizers the upstream has.
// Namespaces that only an authorizer other than RBAC grants are not found.
//
// Sets are cached. After a change of an RBAC object the upstream reviews the namespaces that have
// become candidates; the others stay confirmed. Besides, it reviews each namespace of a list after
// AllowedTTL, and each of a watch after RecheckPeriod, a few at a time while the watch is open.
//
// Selectors only limit what may be done, by the definition of SubjectAccessReview. So a namespace in
// which the user may do it without selectors is confirmed for all selectors, and only the others are
// reviewed with the selectors.
//
// Packages proxy and revocation use it. It imports authn, authz, review and object.
package visible
