// Package route decides what becomes of a request.
//
// Next is a pure function of Facts: the parsed request, the settings in force, the permission as
// far as it is known, what the cache holds and can reach. It returns a Decision: a response
// (Reject), a way to get one (ReadCache, Revalidate, Coalesce, Forward), or a fact that is missing
// (Authorize, FindCollection, CheckCurrent). Whoever executes the decision adds what it learned to the
// Facts and calls Next again, until there is a response.
//
// There are two such callers, both in package proxy. Gateway serves requests: it asks for reviews,
// starts collections, waits for versions and pays from budgets. Gateway.Explain only inspects what
// is known, without side effects, and describes the decision. So an explanation follows the same
// logic as the request.
//
// To add a reason to forward a read: declare it in package reason, then return it from
// Facts.qualify if the request and its resource tell, or from the functions of read.go if the state
// of the cache does.
//
// The package imports policy, authz and the vocabulary of the cache. It does not import package
// proxy, and knows neither connections nor the upstream client.
package route
