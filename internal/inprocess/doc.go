// Package inprocess is an http.RoundTripper that sends requests to an http.Handler of the same
// process.
//
// Client and server are those of net/http, connected by pipes in memory, so that streaming,
// deadlines and protocol upgrades work as over a network, without TLS. The handler sees the values
// of the request's context: that is how a client in this process says on whose behalf it acts. No
// request header can do that.
package inprocess
