// Package clients has the HTTP/2 clients that are in use talk to `kubeweir gateway`, in front of a real kube-apiserver:
// Go (x/net), curl, nghttp and h2load, Node, Python's h2, and Chromium. What they are told to do is the same
// (scenario_test.go) as far as they can; each does it over one connection. What is not installed, the tests install from
// Debian's packages.
package clients
