// Package policy decides what an operator's configuration says about a request, whatever the
// upstream allows.
//
// A Policy has defaults and rules. Compile makes a Compiled of it, which is immutable, so a request
// is served by the policy in force when it arrived. For each setting, the first rule that matches
// the request and has the setting decides it (Decide). Restrict says what rules forbid: writes, and
// requests whose responses cannot be redacted. Restrictions fail closed: a request that two servers
// may read differently is rejected if any reading of it is forbidden.
//
// Budgets bound the upstream requests and bytes that each user matched by a rule may cause. The
// client pays, also if it impersonates a user; responses from the cache are free. A request is
// granted as long as something is left, and pays for one upstream request in advance. Its further
// cost is known only afterwards, and becomes a debt. While a budget is exhausted the gateway requests
// nothing of the upstream on behalf of the client, no access review either. So a permission that is
// not cached is unknown, and the response is 429 rather than 403.
//
// Blocked holds the user agents that an operator has blocked at run time.
//
// Package proxy enforces the decisions, package route takes them into account, package serve
// translates the configuration, and the console shows budgets and blocked user agents. The package
// imports usage (token buckets), cache/watch (the pace of watches) and the vocabulary; it knows no
// connections and sends no requests.
package policy
