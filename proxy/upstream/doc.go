// Package upstream is everything of kubeweir that talks to the upstream, a remote
// kube-apiserver or the origin in this process: it lists and watches for the cache
// (Source), asks what the server serves (Discovery), and passes on requests and protocol
// upgrades that the cache does not answer (Client.Forward).
//
// Requests to a remote one go through two kinds of connections that never mix. One kind
// carries the gateway's own credentials, with everything client-go supports in a
// kubeconfig. The other is anonymous: it checks the server as strictly, but has no
// client certificate and adds no token, and carries requests with the client's own
// bearer token. So neither can the gateway's identity leak onto a client's
// request, nor can one user's connection serve another's with more than its token.
//
// Each kind has a pool of HTTP/2 connections and a pool of HTTP/1.1 connections. The
// latter carry what is small and soon over: forwarded requests and revalidations, on a
// connection of their own while they last. Upgrades get a new one each, as do probes. Feeds
// have a pool of their own, with pings that tell how old the last sign of life is, and so
// have the looks at several servers.
//
// What changes something is sent again, by anybody, only if it surely was not processed
// (sends).
//
// The origin is called by a function instead (package inprocess), with who asks in the
// context.
package upstream
