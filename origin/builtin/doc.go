// Package builtin is what kubeweir knows about the types built into Kubernetes
// beyond their schema: how they are converted, defaulted and printed. It is the
// only package that imports k8s.io/kubernetes, which is large and not meant as a
// library; everything it offers is in terms of other packages.
//
// Importing it registers the built-in API groups in k8s.io/kubernetes' own
// scheme at program start. All else is built on first use.
package builtin
