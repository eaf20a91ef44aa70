// Package healthz serves /livez, /readyz and /healthz in the form of kube-apiserver
// (k8s.io/apiserver/pkg/server/healthz).
//
// A Health has named checks. /livez fails only for checks that a restart may fix; /readyz and
// /healthz evaluate all of them. The Health of a gateway for several clusters has one part per
// cluster, and is ready as long as one of the parts is.
//
// Two kinds of listeners call Serve. On the main ones anyone may ask, so responses contain neither
// causes nor names of clusters; those of a standalone server serve the checks of its API server
// instead. The admin listener serves both. Package serve makes the checks; the
// console shows their Results.
//
// The package imports only package api.
package healthz
