// Package inprocess is an http.RoundTripper that sends requests to an http.Handler of the same
// process.
//
// Client and server are those of net/http, connected by pipes in memory, so that streaming,
// deadlines and protocol upgrades are what they are over a network, without TLS. Requests carry the
// values of their context to the handler: that is how a client in this process says on whose behalf
// it acts. No header of a request can do that.
package inprocess
