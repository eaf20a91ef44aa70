// Package openapi keeps the OpenAPI documents of the cluster in memory.
//
// Package proxy serves them after the cluster has confirmed, with 304 to the request of the client
// itself, that they are current, and while the cluster is unreachable. Their number and size are
// bounded; the least recently used ones go first.
package openapi
