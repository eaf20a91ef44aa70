// Package builtin knows the types built into Kubernetes beyond their schema: how they are
// converted, defaulted and printed. It and the packages below it are the only ones that import
// k8s.io/kubernetes, which is large and not meant as a library; only origin/aggregator uses one
// controller of it. Everything builtin offers is in terms of other packages.
//
// Importing it registers the built-in API groups in k8s.io/kubernetes' own scheme at program
// start. All else is built on first use.
package builtin
