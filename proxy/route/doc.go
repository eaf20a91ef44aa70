// Package route decides how a request is served.
//
// Next is a pure function of Facts: the parsed request, the settings in force, the permission as
// far as it is known, what the cache holds and can reach. It returns a Decision: a response
// (Reject), a way to get one (ReadCache, Revalidate, Coalesce, Forward), or a fact that is missing
// (Authorize, FindCollection, CheckCurrent). The caller executes the decision, adds what it learned to the
// Facts and calls Next again, until there is a response.
//
// There are two such callers. Package proxy serves requests: it sends reviews, starts collections,
// waits for versions and charges budgets. Package explain only inspects what is known, without side
// effects, and describes the decision. So an explanation follows the same logic as the request.
//
// To add a reason to forward a read: declare it in package reason, then return it from
// Facts.qualify if the request and its resource tell, from package cache/read or cache/watch
// (read.Forward) if a read shows it, or as Facts.Missing or Facts.NotCoalesced. If a read shows it,
// package explain tells in advance (unheld, notCoalesced).
//
// The package imports policy, authn, authz, edge/websocket (which requests are WebSocket
// handshakes) and the vocabulary of the cache. It does not import package proxy, and knows neither
// connections nor the upstream client.
package route
