//go:build unix

// Package edgetest starts servers of package edge for tests, and is the clients that write bytes
// and frames to them. A package of tests says with which protocols, in HTTP1 and HTTP2.
package edgetest
