package reason

// WatchEnd is the reason why a watch that was served from the cache ended.
type WatchEnd uint8

// The reasons.
const (
	// NotEnded means that the watch continues.
	NotEnded WatchEnd = iota
	// WatchTimeout means that the watch's timeoutSeconds have passed.
	WatchTimeout
	// WatchClient is a client that disconnected, or to which nothing can be written.
	WatchClient
	// WatchExpired is a watch from a version before the history.
	WatchExpired
	// WatchSlow is a watch whose next event is no longer in the history.
	WatchSlow
	// WatchRewound means that the upstream's versions went back.
	WatchRewound
	// WatchDiffers means that a check found the collection to differ from the upstream.
	WatchDiffers
	// WatchRedefined is a change of the resource's definition, or of the server that serves it.
	WatchRedefined
	// WatchFeedLost is a collection that can no longer be updated.
	WatchFeedLost
	// WatchStopped is a collection that is shut down with the process.
	WatchStopped
	// PermissionRevoked means that the upstream no longer allows the watch, or the impersonation
	// behind it.
	PermissionRevoked
	// NamespacesChanged means that the watch shows the namespaces that the user may see, and that
	// these have changed.
	NamespacesChanged
	// CredentialInvalid means that the token or certificate is no longer valid, or identifies
	// another user.
	CredentialInvalid
	// Unconfirmed means that the user could not be reviewed for too long.
	Unconfirmed
	// WatchBlocked means that the user agent was blocked.
	WatchBlocked
	// PolicyChanged means that the configuration was reloaded and that its rules treat the watch
	// differently.
	PolicyChanged
	// WatchDraining is the gateway's shutdown.
	WatchDraining
	// WatchFailed is an object that cannot be rendered, or a panic.
	WatchFailed
	// WatchOperator is an operator who ended the watch.
	WatchOperator

	watchEnds
)

const (
	endOfFile      = "The end of the response, without an error; clients resume from the last version."
	endWithNothing = "The end of the response at once, without pending events or a bookmark. Further requests are rejected."
	expiredEvent   = "An ERROR event with a Status 410 `Expired`, then the end; clients list again."
)

var watchEndEntries = [watchEnds]Entry{
	NotEnded: {},
	WatchTimeout: {
		Label: "timeout", When: "The timeoutSeconds of the watch have passed; without them, 30 to 60 minutes.",
		Client: endOfFile + " A bookmark comes two seconds before, if the watch has bookmarks.", Do: "Nothing.",
	},
	WatchClient: {
		Label: "client", When: "The client disconnected, its connection broke, or it did not read (then also counted in kubeweir_slow_watches_ended_total, or ended by the write timeout).",
		Client: "Nothing, or a closed connection.", Do: "Nothing, unless kubeweir_slow_watches_ended_total grows: find the client that does not read.",
	},
	WatchExpired: {
		Label: "expired", When: "The watch starts before the cache's history, and the upstream no longer has the version; or the history cannot be extended, and no slot is free to continue the watch at the upstream.",
		Client: expiredEvent, Do: "Normal after a long disconnection of a client. Otherwise see kubeweir_cache_backfills_total, and raise --history-bytes, --history-events or --max-resumed-watches.",
	},
	WatchSlow: {
		Label: "slow", When: "The client reads more slowly than events arrive, and its next event is no longer in the history.",
		Client: expiredEvent, Do: "Check the client and its link; raise the limits of the history. kubeweir_cache_watchers_lagging is an early warning.",
	},
	WatchRewound: {
		Label: "rewound", When: "The upstream's versions went back: it was restored from a backup, or is another cluster. In tests, also a reset of the test API.",
		Client: expiredEvent, Do: "Nothing, if a restore was intended.",
	},
	WatchDiffers: {
		Label: "differs", When: "The self-check found differences between the cache of the resource and the upstream, and refills the cache.",
		Client: expiredEvent, Do: "Report it with the log lines \"cached object differs from the upstream\"; see the runbook of KubeweirCacheDiffers.",
	},
	WatchRedefined: {
		Label: "redefined", When: "The CustomResourceDefinition changed, was deleted or is no longer known, or another server now serves the group version.",
		Client: endOfFile, Do: "Nothing.",
	},
	WatchFeedLost: {
		Label: "feed-lost", When: "The cache of the resource stopped permanently: an object cannot be decoded, a panic was contained, or the upstream has denied the gateway the resource for a minute.",
		Client: endOfFile + " Reads are forwarded for a minute, or while the gateway is denied and up to 45 s longer.",
		Do:     "If the gateway lacks a permission (kubeweir_upstream_missing_rights), grant it. Otherwise report it with the log line \"collection stopped\".",
	},
	WatchStopped: {
		Label: "stopped", When: "The caches were closed, at the end of a shutdown.", Client: endOfFile, Do: "Nothing.",
	},
	PermissionRevoked: {
		Label: "permission-revoked", When: "The upstream no longer allows the watch, or the impersonation that it needs.",
		Client: endWithNothing, Do: "Nothing, if it was intended.",
	},
	NamespacesChanged: {
		Label: "namespaces-changed", When: "The watch shows the namespaces that the user may see (visibleLists in rules), and the user lost or gained a namespace.",
		Client: expiredEvent + " Pending events are not sent.", Do: "Nothing.",
	},
	CredentialInvalid: {
		Label: "credential-invalid", When: "The token or certificate of the watch is no longer valid, or identifies another user.",
		Client: endWithNothing, Do: "Nothing; clients reconnect with their next token.",
	},
	Unconfirmed: {
		Label: "unconfirmed", When: "The permission or credential could not be reviewed for longer than --authorization-watch-grace.",
		Client: endWithNothing, Do: "Check kubeweir_upstream_gone and the gateway's permission to create reviews.",
	},
	WatchBlocked: {
		Label: "blocked", When: "An operator blocked the user agent.",
		Client: "A last bookmark, if the watch has bookmarks, and the end of the response. Further requests get 429.", Do: "Nothing, if it was intended. The block ends with its time or with the process.",
	},
	PolicyChanged: {
		Label: "policy-changed", When: "The configuration was reloaded, and its rules reject the watch, or serve it in another way: redacted, without managedFields, at another delivery rate.",
		Client: "The end of the response at once, without pending events or a bookmark. Clients reconnect under the new rules.", Do: "Nothing.",
	},
	WatchDraining: {
		Label: "draining", When: "The gateway is shutting down; watches end spread over the drain time.",
		Client: "A last bookmark, if the watch has bookmarks, and the end of the response. Clients reconnect elsewhere.", Do: "Nothing.",
	},
	WatchFailed: {
		Label: "failed", When: "An object or a bookmark could not be encoded in the form of the watch, or a panic was contained.",
		Client: "An ERROR event with a Status 500 `InternalError`, then the end. After a panic during a write: a broken connection.",
		Do:     "Report it with the log line.",
	},
	WatchOperator: {
		Label: "operator", When: "An operator ended the watch at the console (`--console-actions`); see the log.",
		Client: endOfFile, Do: "Nothing. The client may reconnect; use a rule or RBAC to keep it out.",
	},
}

// Entry returns the description of the reason.
func (w WatchEnd) Entry() Entry { return watchEndEntries[w] }

// Revoked reports whether the client must not receive any further event.
func (w WatchEnd) Revoked() bool {
	return w == PermissionRevoked || w == NamespacesChanged || w == CredentialInvalid || w == Unconfirmed || w == PolicyChanged
}

// String returns the reason's label.
func (w WatchEnd) String() string { return watchEndEntries[w].Label }

// WatchEnds returns all reasons, in order.
func WatchEnds() []WatchEnd { return all(NotEnded+1, watchEnds) }
