// Package server assembles the origin: an API server in this process with the
// behaviour of kube-apiserver v1.37, over a storage.Engine.
//
// The chain is kube-apiserver's (cmd/kube-apiserver/app, CreateServerChain):
//
//	filters (filters.go) ─▶ origin/aggregator ─▶ origin/builtin/groups ─▶ origin/crd ─▶ 404
//
// Each link is a genericapiserver.GenericAPIServer whose delegate is the next one, made
// from one shared config; whatever a link has to run is a post-start hook of it, so that
// the outermost one knows all. origin/builtin/access says who asks and what they may
// do, origin/builtin/admit admits, origin/builtin/bootstrap writes what has to exist.
//
// All parts talk to the API as its clients do, through a RoundTripper that calls the
// handler (loopback.go), as system:apiserver.
//
// The start is what is special here. Nothing is built before somebody asks for it that
// can be built later (OpenAPI documents), what kube-apiserver derives at every start is
// read from the program (the structure of types for server-side apply), and what the
// libraries' controllers look for every 100 ms is there before they look (lifecycle.go).
package server
