// Package upstream is the only client of the upstream, which is a remote kube-apiserver or the
// origin in this process. It lists and watches for the cache (Source), reads discovery documents
// (Client.DiscoveryDocument), and forwards the requests and protocol upgrades that the cache does
// not serve (Client.Forward).
//
// Requests to a remote upstream use two kinds of connections that never mix. One kind carries the
// gateway's own credentials, with everything client-go supports in a kubeconfig. The other is
// anonymous: it verifies the server as strictly, but has no client certificate and adds no token,
// and carries requests with the client's own bearer token. So the gateway's identity cannot leak
// into a client's request, and one user's connection cannot serve another's with more than its
// token.
//
// Each kind has a pool of HTTP/2 connections and a pool of HTTP/1.1 connections (package pool).
// Short requests use the latter, with a connection of their own while they last. Upgrades and
// probes get a new connection each. Feeds have HTTP/2 connections of their own, whose pings tell
// how old the last sign of life is.
//
// A write is sent again only if it certainly was not processed (pool.Transport). Package health
// decides whether the upstream is alive, package balance chooses one of several API servers, and
// package header which header lines pass. The origin is called by a function instead (package
// inprocess), with the user in the context.
//
// Packages proxy and serve call it. It imports package cache/source, whose contract it implements,
// and nothing of proxy but the packages below it and proxy/edge/websocket.
package upstream
