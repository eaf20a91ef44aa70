// Package visible compares cluster-wide lists and watches under the rule visibleLists with what a
// real kube-apiserver lists namespace by namespace. It uses random permissions and random requests
// in every form. After each change of permissions it checks that exactly those open watches end
// whose visible namespaces have changed. In every fourth state a webhook denies some requests that
// RBAC allows, or allows them only without selectors.
//
// A failure prints the seed (internal/soak).
package visible
