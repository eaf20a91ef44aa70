// Package balance spreads requests over the API servers of a cluster, each of which it looks at.
package balance
