// Package health is the failure detector of an upstream: it knows whether the upstream is alive, since
// when it is not, how late what it sends is, and which connections to it are lost.
package health
