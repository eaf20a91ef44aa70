package reason

// Forward says why a read (get, list or watch) is forwarded to the upstream instead of being answered from the cache.
type Forward uint8

// The reasons, in the order in which they are looked for. Those up to InvalidSelector are told by the request and the
// resource alone.
const (
	// NotForwarded is no reason: the read was answered here.
	NotForwarded Forward = iota
	// Head is a request of the method HEAD.
	Head
	// Subresource is a read of a subresource: a log, a scale, a proxy.
	Subresource
	// Upgraded is a read that asks for an upgrade and is no watch that kube-apiserver would
	// give a WebSocket.
	Upgraded
	// Inexact is a path or query that can be read in more than one way (api.RequestInfo.Exact).
	Inexact
	// UnknownResource is a resource that discovery does not name.
	UnknownResource
	// Unwatchable is a resource without the verbs list and watch.
	Unwatchable
	// DefinitionsUnknown is a resource that may be custom while the definitions are not watched.
	DefinitionsUnknown
	// Unserved is a custom resource whose definition is not established or does not serve the version.
	Unserved
	// Aggregated is a resource of another API server, by an APIService.
	Aggregated
	// Scope is a path whose namespace does not go with the resource.
	Scope
	// Impersonated is a request whose impersonation the upstream decides.
	Impersonated
	// Representation is an Accept header, or an includeObject, that asks for a form the cache does not have.
	Representation
	// InvalidVersion is a resourceVersion that is no number.
	InvalidVersion
	// InvalidSelector is a selector that the resource does not have.
	InvalidSelector
	// CacheUnavailable is a collection that cannot be filled.
	CacheUnavailable
	// Redefined is a resource whose definition or server changed during the request.
	Redefined
	// Unservable is a form or path that the collection does not have.
	Unservable
	// AmbiguousVersion is a version that upstream answers from its store: "00", or a number with a limit of a
	// list that can have one object only.
	AmbiguousVersion
	// VersionAhead is a version that the feed has not brought yet.
	VersionAhead
	// VersionGone is a version of the past that is not held.
	VersionGone
	// Unproven is a read of the most recent state that the cache could not be shown to hold.
	Unproven
	// Unrenderable is an object that has no row or metadata.
	Unrenderable
	// TooLargeToShare is an answer above the size that is shared between callers.
	TooLargeToShare
	// NoRoomToShare is an answer for which the shared answers left no room.
	NoRoomToShare
	// GatewayRefused is a shared request that the upstream refused the gateway.
	GatewayRefused
	// SharedFailed is a shared request that broke or whose client left.
	SharedFailed
	// History is a watch from before the cache's history, which the upstream may still have.
	History

	forwards
)

var forwardEntries = [forwards]Entry{
	NotForwarded: {},
	Head: {
		Label: "head", When: "A HEAD request.",
		Client: "The upstream's 405, usually.", Do: "Nothing.",
	},
	Subresource: {
		Label: "subresource", When: "A read of a subresource (log, scale, status, proxy).",
		Do: "Nothing: what subresources answer is not in the object's cache.",
	},
	Upgraded: {
		Label: "upgraded",
		When:  "A read that asks for an upgrade and is no WebSocket watch, or a handshake that kube-apiserver refuses: no Origin, no key, a version other than 13, several subprotocols, among which a token counts unless it is what authenticates.",
		Do:    "Nothing: the upstream says what is wrong. WebSocket watches in order are served from the cache.",
	},
	Inexact: {
		Label: "inexact",
		When:  "The path or the query can be read in more than one way: empty, dot or encoded segments, the deprecated `/proxy/` paths, unknown or repeated parameters, selectors or options that are not valid.",
		Do:    "If one client causes many, look at its requests (`--audit-log-path` or the debug log) and have it use the plain form.",
	},
	UnknownResource: {
		Label: "unknown-resource", When: "Discovery does not name the resource.",
		Client: "The upstream's 404, unless the resource has just come to be.", Do: "Nothing; discovery is read again.",
	},
	Unwatchable: {
		Label: "unwatchable", When: "The resource has no verbs list and watch (componentstatuses, metrics).", Do: "Nothing.",
	},
	DefinitionsUnknown: {
		Label: "definitions-unknown", When: "The custom resource definitions are not watched (the gateway starts, or may not read them), and the kind is not known to be built in.",
		Do: "If it lasts, grant get, list and watch on customresourcedefinitions.apiextensions.k8s.io.",
	},
	Unserved: {
		Label: "unserved", When: "The definition of the custom resource is not established, or does not serve this version.",
		Do: "Look at the definition's conditions.",
	},
	Aggregated: {
		Label: "aggregated", When: "An APIService hands the group version to another server, or APIServices cannot be read and the kind is not built in.",
		Do: "Name the group with --cache-aggregated-groups if its server answers everybody alike; else nothing. Grant get, list and watch on apiservices.apiregistration.k8s.io.",
	},
	Scope: {
		Label: "scope", When: "The namespace in the path, or its absence, does not go with the resource.",
		Client: "The upstream's 404 or 400.", Do: "Nothing.",
	},
	Impersonated: {
		Label: "impersonated", When: "The client impersonates in a way that only the upstream can decide.",
		Do: "Nothing; the upstream authorizes the impersonation and the read.",
	},
	Representation: {
		Label: "representation", When: "The Accept header asks for a form that the cache does not have: a watch in YAML, protobuf of a custom resource, a Table in CBOR, without printer, or that has other columns in the release of the upstream than in kubeweir's, an invalid includeObject; or in YAML for more than 1 MiB of JSON, or while four others are being transcoded.",
		Client: "The upstream's answer, 406 if it lacks the form as well.", Do: "Have clients ask for JSON or protobuf.",
	},
	InvalidVersion: {
		Label: "invalid-version", When: "The resourceVersion is not a number.",
		Client: "The upstream's error.", Do: "Nothing.",
	},
	InvalidSelector: {
		Label: "invalid-selector", When: "The field selector names a field that the resource does not select by.",
		Client: "The upstream's 400.", Do: "Nothing.",
	},
	CacheUnavailable: {
		Label: "cache-unavailable", When: "The cache of the resource cannot be filled: the upstream refuses or fails its first list twice, an object cannot be read, versions went back twice within a minute.",
		Do: "Look for \"collection stopped\" and feed errors in the log and at kubeweir_cache_feed_restarts_total; grant the gateway get, list and watch on the resource.",
	},
	Redefined: {
		Label: "redefined", When: "The resource's definition, or the server that serves it, changed while the request was under way.", Do: "Nothing.",
	},
	Unservable: {
		Label: "unservable", When: "The collection does not have the form or the path that is asked for.", Do: "Nothing; report it if it is frequent.",
	},
	AmbiguousVersion: {
		Label: "ambiguous-version", When: "The upstream answers this version from its store, at no exact version: `00`, or a number with a limit where one object is selected.", Do: "Nothing.",
	},
	VersionAhead: {
		Label: "version-ahead", When: "The resourceVersion is above what the feed has brought, 100 ms after the request; for a watch, also when the upstream did not confirm it.",
		Client: "The upstream's answer; 504 with `Too large resource version` if it has not got there either.",
		Do:     "If it grows on one resource, its feed is late: kubeweir_cache_feed_lag_seconds.",
	},
	VersionGone: {
		Label: "version-gone", When: "The exact version, or that of the continue token, is no longer held, and the list could not be revalidated.",
		Client: "The upstream's page, or its 410 Expired.", Do: "Raise --history-age or --history-bytes if clients page slowly.",
	},
	Unproven: {
		Label: "unproven", When: "The read asks for the most recent state and the cache could not be shown to hold it: the upstream did not answer in time, or the feed is broken.",
		Do: "Look at kubeweir_cache_fresh_rounds_total{way=\"failed\"} and the feed.",
	},
	Unrenderable: {
		Label: "unrenderable", When: "A row or the metadata of an object cannot be made.", Do: "Report it with the kind and the debug log's line.",
	},
	TooLargeToShare: {
		Label: "too-large-to-share", When: "The answer to a most-recent read is larger than what is shared between callers; remembered for a minute.",
		Do: "Raise --collapsed-body-bytes, or let clients read with resourceVersion=0 or in session mode.",
	},
	NoRoomToShare: {
		Label: "no-room-to-share", When: "The answers that are being shared take all their room (kubeweir_collapsed_bytes_limit).",
		Do: "As for too-large-to-share.",
	},
	GatewayRefused: {
		Label: "gateway-refused", When: "The upstream answered the shared request with 401, 403 or 429, which is about the gateway and not the client.",
		Do: "Grant the gateway get, list and watch on the resource; look at the upstream's priority and fairness if it says 429.",
	},
	SharedFailed: {
		Label: "shared-failed", When: "The shared request broke off, or its client left while it waited.",
		Do: "Look at kubeweir_upstream_broken_responses_total.",
	},
	History: {
		Label: "history", When: "A watch goes on from before the cache's history, and the upstream may still have that.",
		Client: "The upstream's events, or its 410 Expired.", Do: "Usual just after a start. Otherwise raise --history-age, --history-bytes or --history-events.",
	},
}

// Entry describes the reason.
func (f Forward) Entry() Entry { return forwardEntries[f] }

// String is the reason's label.
func (f Forward) String() string { return forwardEntries[f].Label }

// Forwards are all reasons, in order.
func Forwards() []Forward { return all(NotForwarded+1, forwards) }
