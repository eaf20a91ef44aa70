//go:build unix

// Package edgetest starts servers of package edge for tests, and provides clients that write bytes
// and frames to them. A test package sets the protocols that they serve, in HTTP1 and HTTP2.
package edgetest
