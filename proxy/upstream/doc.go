// Package upstream is everything of kubeweir that talks to a remote
// kube-apiserver: it lists and watches for the cache (Source), asks what the
// server serves (Discovery), and passes on requests and protocol upgrades that
// the cache does not answer (Client.Forward).
//
// Requests go through two kinds of connections that never mix. One kind carries
// the gateway's own credentials, with everything client-go supports in a
// kubeconfig. The other is anonymous: it checks the server as strictly, but has no
// client certificate and adds no token, and carries requests with the client's own
// bearer token. So neither can the gateway's identity leak onto a client's
// request, nor can one user's connection serve another's with more than its token.
//
// Feeds have a third pool, with pings that tell how old the last sign of life is,
// and upgrades a fourth and fifth, which speak HTTP/1.1 only.
package upstream
