package reason

// Forward is the reason why a read (get, list or watch) is forwarded to the upstream instead of being served
// from the cache.
type Forward uint8

// The reasons, in the order in which they are checked. Those up to InvalidSelector depend only on
// the request and the resource.
const (
	// NotForwarded means that the read was served from the cache.
	NotForwarded Forward = iota
	// Head is a request with the method HEAD.
	Head
	// Subresource is a read of a subresource: a log, a scale, a proxy.
	Subresource
	// Upgraded is a read that requests an upgrade and is not a watch that kube-apiserver would
	// serve over a WebSocket.
	Upgraded
	// Inexact is a path or query that can be read in more than one way (api.RequestInfo.Exact).
	Inexact
	// UnknownResource is a resource that discovery does not name.
	UnknownResource
	// Unwatchable is a resource without the verbs list and watch.
	Unwatchable
	// DefinitionsUnknown is a resource that may be a custom one while the definitions are not
	// watched.
	DefinitionsUnknown
	// Unserved is a custom resource whose definition is not established or does not serve the
	// version.
	Unserved
	// Aggregated is a resource that an APIService assigns to another API server.
	Aggregated
	// Scope is a path whose namespace does not fit the resource: given for a cluster-scoped one, or
	// missing.
	Scope
	// Impersonated is a request whose impersonation the upstream must decide.
	Impersonated
	// Representation is an Accept header, or an includeObject, for a representation that the cache
	// does not have.
	Representation
	// InvalidVersion is a resourceVersion that is not a number.
	InvalidVersion
	// InvalidSelector is a selector that the resource does not support.
	InvalidSelector
	// CacheUnavailable is a collection that cannot be filled.
	CacheUnavailable
	// Redefined is a resource whose definition or server changed during the request.
	Redefined
	// Unservable is a representation or path that the collection does not have.
	Unservable
	// AmbiguousVersion is a version that the upstream reads from its store: "00", or a number with
	// a limit in a list that can contain only one object.
	AmbiguousVersion
	// VersionAhead is a version that the cache has not reached yet.
	VersionAhead
	// VersionGone is a past version that is no longer retained.
	VersionGone
	// NotCurrent is a read of the most recent state for which the freshness check failed.
	NotCurrent
	// Unrenderable is an object without a row or metadata.
	Unrenderable
	// TooLargeToShare is a response above the size that is shared between clients.
	TooLargeToShare
	// NoRoomToShare is a response for which the shared responses left no room.
	NoRoomToShare
	// GatewayRejected is a shared request that the upstream rejected for the gateway.
	GatewayRejected
	// SharedFailed is a shared request that failed or whose client disconnected.
	SharedFailed
	// History is a watch from before the cache's history, which cannot be extended. The upstream may
	// still have the version.
	History

	forwards
)

var forwardEntries = [forwards]Entry{
	NotForwarded: {},
	Head: {
		Label: "head", When: "A HEAD request.",
		Client: "Usually the upstream's 405.", Do: "Nothing.",
	},
	Subresource: {
		Label: "subresource", When: "A read of a subresource (log, scale, status, proxy).",
		Do: "Nothing: responses of subresources are not cached.",
	},
	Upgraded: {
		Label: "upgraded",
		When:  "A read with an upgrade that is not a WebSocket watch, or a handshake that kube-apiserver rejects: no Origin, no key, a version other than 13, several subprotocols (a token counts as one unless it authenticates the client).",
		Do:    "Nothing: the upstream reports the error. Valid WebSocket watches are served from the cache.",
	},
	Inexact: {
		Label: "inexact",
		When:  "The path or the query is ambiguous: empty, dot or encoded segments, the deprecated `/proxy/` paths, unknown or repeated parameters, invalid selectors or options.",
		Do:    "If one client causes many, check its requests (`--audit-log-path` or the debug log) and make it use the plain form.",
	},
	UnknownResource: {
		Label: "unknown-resource", When: "The resource is not in discovery.",
		Client: "The upstream's 404, unless the resource was just created.", Do: "Nothing; discovery is refreshed.",
	},
	Unwatchable: {
		Label: "unwatchable", When: "The resource does not support list and watch (componentstatuses, metrics).", Do: "Nothing.",
	},
	DefinitionsUnknown: {
		Label: "definitions-unknown", When: "CustomResourceDefinitions are not watched (the gateway is starting, or may not read them), and the kind is not known to be built in.",
		Do: "If it lasts, grant get, list and watch on customresourcedefinitions.apiextensions.k8s.io.",
	},
	Unserved: {
		Label: "unserved", When: "The CustomResourceDefinition is not established, or does not serve this version.",
		Do: "Check the conditions of the CustomResourceDefinition.",
	},
	Aggregated: {
		Label: "aggregated", When: "An APIService delegates the group version to another server, or APIServices cannot be read and the kind is not built in.",
		Do: "If the server returns the same data to all users, add the group to --cache-aggregated-groups. Grant get, list and watch on apiservices.apiregistration.k8s.io.",
	},
	Scope: {
		Label: "scope", When: "The path has a namespace for a cluster-scoped resource, or none for a namespaced one.",
		Client: "The upstream's 404 or 400.", Do: "Nothing.",
	},
	Impersonated: {
		Label: "impersonated", When: "The client impersonates in a way that only the upstream can decide.",
		Do: "Nothing; the upstream authorizes the impersonation and the read.",
	},
	Representation: {
		Label: "representation", When: "The Accept header requests a form that the cache does not have: a watch in YAML; protobuf of a custom resource; a Table in CBOR, without a printer, or with other columns in the upstream's release than in kubeweir's; an invalid includeObject; YAML of more than 1 MiB of JSON, or while four others are being transcoded.",
		Client: "The upstream's response; 406 if it does not have the form either.", Do: "Make clients request JSON or protobuf.",
	},
	InvalidVersion: {
		Label: "invalid-version", When: "The resourceVersion is not a number.",
		Client: "The upstream's error.", Do: "Nothing.",
	},
	InvalidSelector: {
		Label: "invalid-selector", When: "The field selector uses a field that the resource does not support.",
		Client: "The upstream's 400.", Do: "Nothing.",
	},
	CacheUnavailable: {
		Label: "cache-unavailable", When: "The cache of the resource cannot be filled: the first list was denied or failed twice, an object cannot be decoded, or versions went back twice within a minute.",
		Do: "Look for \"collection stopped\" and feed errors in the log, and check kubeweir_cache_feed_restarts_total. Grant the gateway get, list and watch on the resource.",
	},
	Redefined: {
		Label: "redefined", When: "The resource's definition, or the server that serves it, changed during the request.", Do: "Nothing.",
	},
	Unservable: {
		Label: "unservable", When: "The collection does not have the requested form or path.", Do: "Nothing; report it if it happens often.",
	},
	AmbiguousVersion: {
		Label: "ambiguous-version", When: "The upstream serves this request from its store at an unspecified version: `00`, or a number with a limit and a selector for one object.", Do: "Nothing.",
	},
	VersionAhead: {
		Label: "version-ahead", When: "The feed has not reached the resourceVersion 100 ms after the request; for a watch, also if the upstream did not confirm it.",
		Client: "The upstream's response; 504 with `Too large resource version` if it has not reached the version either.",
		Do:     "If it grows for one resource, check the lag of its feed: kubeweir_cache_feed_lag_seconds.",
	},
	VersionGone: {
		Label: "version-gone", When: "The exact version, or that of the continue token, is no longer retained, and the list could not be revalidated.",
		Client: "The upstream's page, or its 410 Expired.", Do: "Raise --history-age or --history-bytes if clients page slowly.",
	},
	NotCurrent: {
		Label: "not-current", When: "The read requires the most recent state, and the freshness check failed: the upstream did not respond in time, or the feed is broken.",
		Do: "Check kubeweir_cache_fresh_rounds_total{way=\"failed\"} and the feed.",
	},
	Unrenderable: {
		Label: "unrenderable", When: "The Table row or metadata form of an object cannot be built.", Do: "Report it with the kind and the line in the debug log.",
	},
	TooLargeToShare: {
		Label: "too-large-to-share", When: "The response to a most-recent read is too large for coalescing. This is remembered for a minute.",
		Do: "Raise --collapsed-body-bytes, or make clients read with resourceVersion=0 or with session consistency.",
	},
	NoRoomToShare: {
		Label: "no-room-to-share", When: "Coalesced responses already hold all their memory (kubeweir_collapsed_bytes_limit).",
		Do: "See too-large-to-share.",
	},
	GatewayRejected: {
		Label: "gateway-rejected", When: "The upstream rejected the coalesced request with 401, 403 or 429, which concerns the gateway and not the client.",
		Do: "Grant the gateway get, list and watch on the resource. For 429, check the upstream's priority and fairness.",
	},
	SharedFailed: {
		Label: "shared-failed", When: "The coalesced request broke off, or its client disconnected while it waited.",
		Do: "Check kubeweir_upstream_broken_responses_total.",
	},
	History: {
		Label:  "history",
		When:   "The watch starts before the cache's history, and this cannot be extended backwards: the resource has no bookmarks (Events, some aggregated API servers), the history has no room, the watch has a selector of labels or fields and the upstream no longer has the previous states, or the upstream did not send the events in time.",
		Client: "The upstream's events, or its 410 Expired.", Do: "Normal for Events. Otherwise see kubeweir_cache_backfills_total, and raise --history-bytes or --history-events if its result is full.",
	},
}

// Entry returns the description of the reason.
func (f Forward) Entry() Entry { return forwardEntries[f] }

// String returns the reason's label.
func (f Forward) String() string { return forwardEntries[f].Label }

// Forwards returns all reasons, in order.
func Forwards() []Forward { return all(NotForwarded+1, forwards) }
