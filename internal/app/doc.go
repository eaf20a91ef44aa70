// Package app puts the parts of kubeweir together: Gateway is kubeweir in front of
// a cluster, Standalone kubeweir with the origin behind it. Both are the same proxy
// and cache; they differ in what is behind, and in who says who a client is.
package app
