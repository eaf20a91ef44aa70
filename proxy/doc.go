// Package proxy serves the requests of the main listeners. Gateway.Serve is a pipeline:
//
//	identify   admit, impersonate    who sends the request, and a slot for it; as whom
//	policy     charge, restrict      budgets (before impersonate) and rules in force (package policy)
//	route      respond               what to do next (package route), and doing it
//	execute    execute, learn        the cache, one upstream request for many clients, forwarding
//	account    complete              metrics, usage, audit log, budgets
//
// Each step either returns a response or leaves what it learned in the exchange, the state of one
// request. Decisions are pure functions in package route; this package executes them, and package
// explain describes them without side effects.
//
// To add a per-user setting: policy.Settings with its methods complete and list, servedOtherwise in
// enforce.go, and config.Rule. A reason to forward: packages reason and route; its doc says where.
// A response header: Gateway.complete for all responses of Serve (rejections by transports and
// clusters.Router do not pass it), markRead for reads from the cache. An authenticator: package
// authn. A step of a request: route.Action and Gateway.execute.
//
// Package proxy knows no transport but the handshake of WebSocket watches: proxy/edge calls Serve,
// and proxy/upstream sends requests. Package serve puts the parts together. It may import the
// packages below proxy, cache and watchmux; only serve and proxy/console import it.
package proxy
