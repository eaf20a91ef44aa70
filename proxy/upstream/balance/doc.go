// Package balance spreads the requests to a cluster over its API servers.
//
// A Set finds the servers (a list, a DNS name, or the endpoints of the Service kubernetes) and
// checks each of them once a second: /readyz over a connection that stays open, and over a new one
// if that does not respond in time. Requests go to the ready server with the least to do. The
// watches of the cache, and reads of any version, go to the preferred server, which changes only
// when it is not ready.
//
// A request that a server did not get, or a read that it did not respond to, goes to another
// server, each at most once. A write that may have been processed is never sent again. When a
// server is unresponsive, reads that wait for it move on, and writes end. When its connections are
// lost while new ones work, requests use new ones.
//
// Package upstream calls it. It makes connections with package pool and reports to package health.
package balance
