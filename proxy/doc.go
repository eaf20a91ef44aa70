// Package proxy serves the requests of the main listeners. Gateway.Serve is a pipeline:
//
//	identify   admit, impersonate    who sends the request, and as whom; a slot for it
//	policy     charge, restrict      rules and budgets in force (package policy)
//	route      respond               what to do next (package route), and doing it
//	execute    execute, learn        the cache, one upstream request for many clients, forwarding
//	account    complete              metrics, usage, audit log, budgets
//
// Each step either returns a response or leaves what it learned in the exchange, the state of one
// request. Decisions are pure functions in package route; this package executes them, and Explain
// executes them without side effects.
//
// To add a per-user setting: policy.Settings and Settings.complete. A reason to forward: packages
// reason and route. A response header: Gateway.complete, or markRead for reads from the cache. An
// authenticator: package authn. An action on a request: route.Action and Gateway.execute.
//
// Package proxy knows no transport: proxy/edge calls Serve, and proxy/upstream sends requests.
// Package serve puts the parts together. It may import the packages below proxy, cache and
// watchmux; only serve, proxy/admin and proxy/console import it.
package proxy
