// Package clients runs widely used HTTP/2 clients against `kubeweir gateway` in front of a real
// kube-apiserver: Go (x/net), curl, nghttp and h2load, Node, Python's h2, and Chromium. All of them
// run the same scenario (clients_test.go) as far as they can, each over one connection. The tests
// install missing clients from Debian's packages.
package clients
