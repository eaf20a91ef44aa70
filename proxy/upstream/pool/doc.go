// Package pool makes the connections to an API server: a pool of HTTP/1.1 connections and transports of
// HTTP/2, with the gateway's credentials or without any. It knows what may be sent again.
package pool
