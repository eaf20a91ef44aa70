package reason

// WatchEnd says why a watch that was served from the cache ended.
type WatchEnd uint8

// The reasons.
const (
	// NotEnded is no reason: the watch goes on.
	NotEnded WatchEnd = iota
	// WatchTimeout is the end of the watch's timeoutSeconds.
	WatchTimeout
	// WatchClient is a client that left, or to which nothing can be written.
	WatchClient
	// WatchExpired is a watch from a version before the history.
	WatchExpired
	// WatchSlow is a watch whose next event has left the history.
	WatchSlow
	// WatchRewound is an upstream whose versions went back.
	WatchRewound
	// WatchDiffers is a collection that was found to differ from the upstream.
	WatchDiffers
	// WatchRedefined is a change of the resource's definition, or of the server that serves it.
	WatchRedefined
	// WatchFeedLost is a collection that can be fed no more.
	WatchFeedLost
	// WatchStopped is a collection that is shut down with the process.
	WatchStopped
	// PermissionRevoked: the upstream does not allow the watch any more, or the impersonation behind it.
	PermissionRevoked
	// NamespacesChanged: the watch shows the namespaces that the user may see, and these are others now.
	NamespacesChanged
	// CredentialInvalid: the token or certificate is not good any more, or stands for somebody else.
	CredentialInvalid
	// Unconfirmed: the upstream could not be asked about the user for too long.
	Unconfirmed
	// WatchBlocked: the user agent was blocked.
	WatchBlocked
	// PolicyChanged: the configuration was reloaded, and its rules serve the watch in another way.
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
	endOfFile      = "The end of the response, without an error; clients watch on from the last version."
	endWithNothing = "The end of the response at once, without events or a bookmark that were still due; what the client asks next is refused."
	expiredEvent   = "An ERROR event with a Status 410 `Expired`, then the end; clients list again."
)

var watchEndEntries = [watchEnds]Entry{
	NotEnded: {},
	WatchTimeout: {
		Label: "timeout", When: "The watch's timeoutSeconds are over, or, without any, half an hour to an hour.",
		Client: endOfFile + " A bookmark comes two seconds before, if the watch has bookmarks.", Do: "Nothing.",
	},
	WatchClient: {
		Label: "client", When: "The client left, its connection broke, or it did not read and was ended for that (then also counted in kubeweir_slow_watches_ended_total, or by the write timeout).",
		Client: "Nothing, or a connection that is closed.", Do: "Nothing, unless kubeweir_slow_watches_ended_total grows: find the client that does not read.",
	},
	WatchExpired: {
		Label: "expired", When: "The watch begins at a version before the cache's history, and no place is free to let the upstream continue it.",
		Client: expiredEvent, Do: "Usual after a long absence of a client. Otherwise raise --history-age, --history-bytes, --history-events or --max-resumed-watches.",
	},
	WatchSlow: {
		Label: "slow", When: "The client reads more slowly than events come, and the next one for it has left the history.",
		Client: expiredEvent, Do: "Look at the client and its link; raise the history's bounds. kubeweir_cache_watchers_lagging warns before.",
	},
	WatchRewound: {
		Label: "rewound", When: "The upstream's versions went back: it was restored from a backup, or is another cluster.",
		Client: expiredEvent, Do: "Nothing, if a restore was meant.",
	},
	WatchDiffers: {
		Label: "differs", When: "The self-check found the cache of the resource to differ from the upstream, and fills it anew.",
		Client: expiredEvent, Do: "Report it with the log's lines \"cached object differs from the upstream\"; the runbook of KubeweirCacheDiffers tells more.",
	},
	WatchRedefined: {
		Label: "redefined", When: "The custom resource's definition changed, was deleted or is not known any more, or another server serves the group version now.",
		Client: endOfFile, Do: "Nothing.",
	},
	WatchFeedLost: {
		Label: "feed-lost", When: "The cache of the resource ended for good: an object of the upstream cannot be read, a panic was contained, or the upstream has refused the gateway what it reads for a minute.",
		Client: endOfFile + " Reads are forwarded for a minute, or for as long as the gateway is refused and up to three quarters of a minute more.",
		Do:     "If the gateway is refused (kubeweir_upstream_missing_rights), grant the right. Otherwise report it with the log's line \"collection stopped\".",
	},
	WatchStopped: {
		Label: "stopped", When: "The caches were closed, at the end of a shutdown.", Client: endOfFile, Do: "Nothing.",
	},
	PermissionRevoked: {
		Label: "permission-revoked", When: "The upstream does not allow the watch any more, or the impersonation behind it.",
		Client: endWithNothing, Do: "Nothing, if it was meant.",
	},
	NamespacesChanged: {
		Label: "namespaces-changed", When: "The watch shows the namespaces that the user may see (visibleLists of rules), and the rights have changed: in one of them the user may watch no more, or in another one now.",
		Client: expiredEvent + " Nothing that was still due comes before it.", Do: "Nothing.",
	},
	CredentialInvalid: {
		Label: "credential-invalid", When: "The token or certificate of the watch is not good any more, or stands for somebody else.",
		Client: endWithNothing, Do: "Nothing; clients come back with the next token.",
	},
	Unconfirmed: {
		Label: "unconfirmed", When: "The upstream could not be asked about the user for longer than --authorization-watch-grace.",
		Client: endWithNothing, Do: "Look at kubeweir_upstream_gone and at the gateway's right to create reviews.",
	},
	WatchBlocked: {
		Label: "blocked", When: "Somebody has blocked the user agent.",
		Client: "A last bookmark, if the watch has bookmarks, and the end of the response; what the client asks next is answered 429.", Do: "Nothing, if it was meant; it ends by itself, or with the gateway.",
	},
	PolicyChanged: {
		Label: "policy-changed", When: "The configuration was reloaded, and its rules reject the watch, or serve it in another way: redacted, without managedFields, at another delivery rate.",
		Client: "The end of the response at once, without events or a bookmark that were still due; clients watch on by the new rules.", Do: "Nothing.",
	},
	WatchDraining: {
		Label: "draining", When: "The gateway shuts down; ends are spread over the drain time.",
		Client: "A last bookmark, if the watch has bookmarks, and the end of the response; clients watch on elsewhere.", Do: "Nothing.",
	},
	WatchFailed: {
		Label: "failed", When: "An object or a bookmark could not be given in the form of the watch, or a panic was contained.",
		Client: "An ERROR event with a Status 500 `InternalError`, then the end; after a panic in the middle of a write a broken connection.",
		Do:     "Report it with the log's line.",
	},
	WatchOperator: {
		Label: "operator", When: "Somebody ended the watch in the console (`--console-actions`); the log says when.",
		Client: endOfFile, Do: "Nothing; who watches too much comes back, and is kept away by its rights.",
	},
}

// Entry describes the reason.
func (w WatchEnd) Entry() Entry { return watchEndEntries[w] }

// Revoked reports whether the client may have nothing more.
func (w WatchEnd) Revoked() bool {
	return w == PermissionRevoked || w == NamespacesChanged || w == CredentialInvalid || w == Unconfirmed || w == PolicyChanged
}

// String is the reason's label.
func (w WatchEnd) String() string { return watchEndEntries[w].Label }

// WatchEnds are all reasons, in order.
func WatchEnds() []WatchEnd { return all(NotEnded+1, watchEnds) }
