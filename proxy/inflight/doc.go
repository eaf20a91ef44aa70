// Package inflight bounds what the gateway does at the same time, fairly between users.
//
// A Semaphore bounds a total. A Limiter divides its limit between users, too: a user may hold up to
// three permits for each free one, so a user alone gets three quarters of the limit, and one who
// holds nothing finds a permit however many others want more than there are. Both never block:
// callers get a permit or reject the request, with Rejected, at once. Limits can be changed while
// permits are held.
//
// Package proxy limits requests, watches, held memory and rewritten responses with it, package
// clusters the requests of each cluster. Both count rejected requests through Overloads.
//
// The package imports only the vocabulary: api, reason and internal packages.
package inflight
