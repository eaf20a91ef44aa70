package conformance

func errorAssertions() []Assertion {
	return []Assertion{
		{ID: "error-1", Text: "An unknown group, version or path gets 404 in plain text; an unknown resource of a known group gets a Status 404.", Cases: []string{"error/resource *", "error/unknown *", "error/group that exists in the wrong place", "error/root", "error/api with a trailing slash"}},
		{ID: "error-2", Text: "A method that a path does not support gets 405, including HEAD.", Cases: []string{"error/method *", "get/HEAD", "get/OPTIONS", "list/HEAD", "error/create-only resource", "error/review is not read", "error/token review is not read"}},
		{ID: "error-3", Text: "Ambiguous paths mean what they mean upstream: dots, double and trailing slashes, escapes, a superfluous or missing namespace.", Cases: []string{"error/a namespace in a namespace", "error/empty namespace", "error/namespace*", "error/watch namespaces in a namespace", "error/dot segments", "error/dots as a name", "error/double slash", "error/empty object name", "error/escaped *", "error/path behind a name", "error/slash behind a name", "error/trailing slash", "error/cluster-scoped *"}, Tests: []string{"proxy.TestDifferential", "test/security.TestPathTailsAreTheClientsOwn", "test/security.TestOneNamespaceIsNotAllNamespaces"}},
		{ID: "error-4", Text: "Queries with escapes, semicolons, repeated, unknown or very many parameters mean what they mean upstream; so does the body of a get.", Cases: []string{"error/bad escape in the query", "error/semicolon in the query", "error/parameter given twice", "error/limit given twice", "error/unknown parameter", "error/many parameters", "error/selector of many terms", "error/body of a GET", "error/timeout*", "error/component statuses"}},
		{ID: "error-5", Text: "Requests that cannot be served exactly as upstream are forwarded, for a reason; see docs/reasons.md.", Tests: []string{"proxy.TestForwardedReads", "cache/read.TestReadMatrix"}},
		{ID: "error-6", Text: "Each rejection by kubeweir itself has a reason, see docs/reasons.md.", Tests: []string{"proxy.TestRejectionsAreCounted"}},
		{ID: "error-7", Text: "Above a limit a request gets 429 in plain text with Retry-After: 1; one user cannot take all slots.", Tests: []string{"proxy.TestOverloadIsRetryable", "proxy.TestOneUserCannotTakeAllSlots", "proxy/inflight.TestLimiterSharesFairly", "test/security.TestOneUserCannotTakeAllWatches"}},
		{ID: "error-8", Text: "A request with an ambiguous header is rejected at the edge, and reaches nothing.", Tests: []string{"proxy/edge/h1.TestMalformedRequests", "proxy/edge/h1.TestHeaderLimit", "proxy/edge/h1.TestTargets"}},
	}
}

func discoveryAssertions() []Assertion {
	return []Assertion{
		{ID: "discovery-1", Text: "/api and /apis are served aggregated (v2) on request, with as=APIGroupDiscoveryList in the Content-Type, otherwise plain.", Cases: []string{"discovery/aggregated", "discovery/as client-go asks", "discovery/without peers", "discovery/protobuf", "discovery/plain*", "discovery/v2beta1*"}},
		{ID: "discovery-2", Text: "Aggregated discovery has an ETag, gets 304 for conditional requests, and is compressed for clients that accept it.", Cases: []string{"discovery/ETag*", "discovery/gzip"}},
		{ID: "discovery-3", Text: "Groups, versions and resources are listed, including custom ones.", Cases: []string{"discovery//api*", "discovery/protobuf resources", "discovery/a custom resource is listed", "discovery/documents"}},
		{ID: "discovery-4", Text: "OpenAPI v2 is served in JSON and protobuf, v3 per group version, with a hash that makes it immutable.", Cases: []string{"discovery//openapi/*", "discovery/OpenAPI *", "discovery/schemas"}},
		{ID: "discovery-8", Text: "A cached OpenAPI document is served only after the cluster has confirmed to this client, by 304, that it is current; so it is never outdated, and no client gets a document that the cluster denies it.", Tests: []string{"proxy.TestOpenAPIDocumentsAreBounded", "test/e2e.TestOpenAPIFromMemory"}},
		{ID: "discovery-5", Text: "/version, the service account issuer's keys and configuration are served.", Cases: []string{"discovery//version*", "discovery//openid/*", "discovery//.well-known/*", "discovery/version for nobody in particular"}},
		{ID: "discovery-6", Text: "/livez, /readyz and /healthz are served to all clients, by kubeweir itself; they reveal no details to unauthenticated clients.", Cases: []string{"discovery/healthz", "discovery/livez", "discovery/readyz", "access/health checks"}, Tests: []string{"proxy/healthz.TestHealth"}},
		{ID: "discovery-7", Text: "Other non-resource paths are authorized as such: 403 names the path.", Cases: []string{"discovery/api for nobody in particular", "discovery/metrics*", "discovery/statusz*", "discovery/flagz*"}},
		{ID: "discovery-9", Text: "/statusz and /flagz are forwarded, as text and structured (config.k8s.io).", Cases: []string{"discovery/structured*", "discovery/text*", "discovery/JSON statusz", "access/pages"}},
	}
}

func identityAssertions() []Assertion {
	return []Assertion{
		{ID: "identity-1", Text: "An invalid token gets 401 with a Status, in every form; the same over a WebSocket.", Cases: []string{"auth/invalid token*", "watch/invalid token", "socket/bad token as subprotocol"}, Tests: []string{"proxy/authn.TestAuthenticate", "proxy.TestRejections"}},
		{ID: "identity-2", Text: "Authorization headers without a bearer token are ignored; the word bearer is case-insensitive.", Cases: []string{"auth/no bearer", "auth/empty bearer", "auth/bearer *"}},
		{ID: "identity-3", Text: "A client without credentials is system:anonymous if anonymous requests are allowed, otherwise it gets 401.", Cases: []string{"auth/anonymous*"}, Tests: []string{"proxy/authn.TestAnonymousOff"}},
		{ID: "identity-4", Text: "A read that the upstream does not allow gets 403, worded as by the upstream: user, verb, resource, group, scope.", Cases: []string{"auth/with a body of HTML letters", "watch/without rights*", "socket/without rights", "access/refusals", "write/without rights", "auth/cluster-scoped refused", "auth/list refused*", "auth/get refused", "auth/custom list refused", "auth/grouped list refused", "auth/list of all refused", "auth/log refused", "auth/namespace refused", "auth/other name refused", "auth/other namespace refused", "auth/refused by certificate", "auth/secrets refused", "auth/subresource refused", "auth/unknown *", "auth/unnamed list refused", "auth/get of nothing refused"}, Tests: []string{"proxy/authz.TestForbiddenMatchesLibrary", "proxy.TestRejections", "test/e2e.TestPermissions"}},
		{ID: "identity-5", Text: "A read that the upstream allows is served, also from the cache: by namespace, by name, by the group of a certificate.", Cases: []string{"auth/allowed*", "auth/watch is allowed"}, Tests: []string{"proxy/authz.TestReview", "test/e2e.TestIdentities"}},
		{ID: "identity-6", Text: "A list or watch by metadata.name is authorized with that name.", Cases: []string{"auth/list by *", "auth/watch by name is allowed by name"}},
		{ID: "identity-7", Text: "A decision is cached for the configured time at most, and invalidated when an RBAC object changes.", Tests: []string{"proxy/authz.TestDecisionsAreCached", "proxy/authz.TestInvalidate", "test/e2e.TestPermissions"}},
		{ID: "identity-8", Text: "A watch whose permission or credential is lost delivers nothing more and ends.", Tests: []string{"cache/watch.TestRevokedWatchGetsNothingMore", "proxy/authz/revocation.TestRevocationEndsWatches", "proxy/authz/revocation.TestTokenOfAnOpenWatch"}},
		{ID: "identity-9", Text: "Impersonation is authorized, then applied to cached and forwarded requests alike; malformed headers get 400. Denials are worded as by Kubernetes 1.37, whatever the release of the cluster.", Cases: []string{"auth/admin as *", "auth/impostor as *", "auth/alice as *", "auth/certificate as bob", "auth/nobody as bob", "auth/anonymous as bob", "auth/group without user", "auth/uid without user", "auth/extra without user", "access/impersonation"}, Tests: []string{"proxy/authz.TestImpersonate", "proxy/authz.TestImpersonationDenied"}},
		{ID: "identity-10", Text: "Front-proxy headers are trusted only with the certificate of a front proxy, and are never forwarded.", Cases: []string{"auth/front-proxy headers*"}, Tests: []string{"proxy.TestForwardedAsTheClient"}},
		{ID: "identity-11", Text: "Self-reviews and token reviews have the upstream's response.", Cases: []string{"auth/SelfSubject*", "auth/TokenReview *", "access/reviews", "access/service accounts and tokens"}},
		{ID: "identity-18", Text: "A cached self-review (--self-reviews cached) is the upstream's response to the same review of the same user in the same form, byte for byte. It is invalidated together with decisions. Unusual reviews are forwarded.", Cases: []string{"self/*"}, Tests: []string{"proxy.TestSelfReviewsAreRemembered", "proxy.TestSelfReviewsOfOthers", "proxy.TestUnusualSelfReviewsAreForwarded", "proxy.TestSelfReviewsAreShared"}},
		{ID: "identity-19", Text: "A rule with readOnly rejects requests that are not certainly a get, list, watch or self-review with 403, whatever the upstream allows and whomever the client impersonates.", Tests: []string{"proxy.TestReadOnly", "proxy.TestReadOnlyOfResource", "test/e2e.TestRules"}},
		{ID: "identity-20", Text: "With a rule with visibleLists, a list or watch of all namespaces that the user may not make shows exactly the namespaces in which the user may make it, and a list of Namespaces those that the user may get: at one version, with a Warning. Pages and watches get 410 when the set has changed.", Tests: []string{"proxy.TestVisibleLists", "proxy.TestVisiblePages", "proxy.TestVisibleNames", "proxy.TestVisibleWatch", "proxy.TestVisibleBadInput", "proxy.TestVisibleReviews"}},
		{ID: "identity-12", Text: "A token as a WebSocket subprotocol authenticates, and is then removed from the subprotocols. Beside another valid credential it is ignored, and stays an ordinary subprotocol.", Cases: []string{"socket/token as *", "socket/two tokens as subprotocols*", "socket/bad token as subprotocol beside another credential"}, Tests: []string{"proxy/authn.TestSubprotocolsLeft"}},
		{ID: "identity-13", Text: "A request is forwarded with its client's own token, or by impersonation for clients with certificates; as the gateway only if the response is shared.", Tests: []string{"proxy.TestForwardedAsTheClient", "proxy/authn.TestSetUpstreamHeader"}},
		{ID: "identity-14", Text: "If the upstream cannot be reached for a review, an unknown client gets 503, not 401.", Tests: []string{"proxy/authz.TestFailClosed", "proxy/authn.TestTokensWithoutUpstream"}},
		{ID: "identity-15", Text: "The sidecar listener serves only this machine, and no foreign web pages.", Tests: []string{"proxy/authn.TestSidecar", "test/security.TestWebPagesReachNothing"}},
		{ID: "identity-16", Text: "Users cannot write roles beyond their own permissions, and cannot change the role of a binding.", Cases: []string{"access/roles and escalation"}},
		{ID: "identity-17", Text: "Every request is audited, including reads from the cache.", Tests: []string{"proxy.TestEveryRequestIsAudited", "test/security.TestNoRequestGoesUnrecorded"}},
	}
}

func writeAssertions() []Assertion {
	return []Assertion{
		{ID: "write-1", Text: "A write with a stale version gets 409 Conflict; a creation of an existing object gets 409 AlreadyExists.", Cases: []string{"write/create, read, update, conflict", "patch/leases"}},
		{ID: "write-2", Text: "A write without a change preserves the version.", Cases: []string{"write/no-op writes keep the version"}},
		{ID: "write-3", Text: "generateName generates unused names.", Cases: []string{"write/generated names"}},
		{ID: "write-4", Text: "Invalid objects are rejected with kube-apiserver's Status, field by field.", Cases: []string{"write/creation that is refused", "write/unusual creations", "validation/*"}},
		{ID: "write-5", Text: "A body above 3 MiB gets 413.", Cases: []string{"write/bodies over the limit"}},
		{ID: "write-6", Text: "Unknown fields are rejected, warned about or dropped, according to fieldValidation.", Cases: []string{"write/unknown fields"}},
		{ID: "write-7", Text: "A dry run has the response of the write, and writes nothing.", Cases: []string{"write/dry run"}},
		{ID: "write-8", Text: "Custom resources are defaulted, pruned and validated by their schema; status is a subresource if it is declared.", Cases: []string{"write/custom resources", "definitions/*"}},
		{ID: "write-9", Text: "Responses to writes have the requested form.", Cases: []string{"write/representations of what was written"}},
		{ID: "write-10", Text: "JSON, merge and strategic merge patches, and server-side apply with its conflicts, behave as upstream.", Cases: []string{"patch/every kind", "patch/server-side apply"}},
		{ID: "write-11", Text: "metadata.generation counts changes of the specification only.", Cases: []string{"patch/deployment generations"}},
		{ID: "write-12", Text: "Finalizers, preconditions, propagation policies and grace periods of deletions are respected.", Cases: []string{"life/finalizers", "life/preconditions and policies", "life/pods", "life/jobs orphan by default"}},
		{ID: "write-13", Text: "Deleting a collection deletes exactly the objects that match its selector.", Cases: []string{"life/collections"}},
		{ID: "write-14", Text: "Deleting a namespace deletes its objects; it accepts no new ones meanwhile.", Cases: []string{"life/namespaces", "namespaces/life"}},
		{ID: "write-15", Text: "Services get addresses and ports, pods have their subresources, quotas and limits are enforced.", Cases: []string{"services/allocation", "pods/subresources", "quota and limits"}},
		{ID: "write-16", Text: "A write is sent upstream once; if its outcome is unknown, the response says so.", Tests: []string{"proxy/upstream.TestWritesAreSentOnce", "proxy/upstream.TestFrozenWrite"}},
	}
}

func gatewayAssertions() []Assertion {
	return []Assertion{
		{ID: "fresh-1", Text: "With strict consistency a most-recent read contains every write that was acknowledged before the request.", Cases: []string{"list/unset", "get/unset"}, Tests: []string{"proxy.TestStrictListsAreRevalidated", "cache/freshness.TestFresh", "test/e2e.TestStrictLists"}},
		{ID: "fresh-2", Text: "Identical most-recent reads are coalesced onto the next request to the upstream, never onto one in flight; forms are not mixed.", Tests: []string{"proxy/consistency.TestCollapseSharesTheNextRequest", "proxy/consistency.TestCollapseKeepsFormsApart", "proxy/consistency.TestCollapseNeverServesHalfAnResponse"}},
		{ID: "fresh-3", Text: "A revalidated list has the objects and the version that the upstream listed.", Tests: []string{"cache/read.TestRevalidate", "cache/read.TestRevalidatePages", "proxy.TestRevalidatedListsArePermitted"}},
		{ID: "session-1", Text: "With session consistency a read contains every write that went through this gateway, by any client.", Tests: []string{"proxy.TestSessionSeesWritesMadeHere", "proxy/consistency.TestWriteIsRecordedBeforeItsResponseGoesOut", "test/e2e.TestSessionConsistency"}},
		{ID: "session-2", Text: "This includes deletions, and writes whose effect the response does not state.", Tests: []string{"proxy.TestSessionSeesDeletionsByUpdate", "proxy/consistency.TestWritesOfUnknownEffect", "test/security.TestPartialDeleteCollectionIsNotTakenForRejected"}},
		{ID: "session-3", Text: "A session read sends nothing to the upstream, unless a write must be settled.", Tests: []string{"proxy.TestSessionReadsCauseNoRequest", "proxy.TestSessionChecksFreshnessOnce"}},
		{ID: "session-5", Text: "A most-recent get or list with Cache-Control: no-cache is strict in session mode, too.", Tests: []string{"proxy.TestNoCacheReadsAreStrict", "test/e2e.TestNoCacheReads"}},
		{ID: "session-4", Text: "In session mode discovery and the version are recent responses of the upstream to the same user, byte for byte, and never older than a change of a definition or an APIService that the gateway has seen or forwarded. If the feeds lag or the upstream is unreachable, they have Age and Warning: 110.", Tests: []string{"proxy.TestDiscoveryIsRemembered", "proxy.TestDiscoveryAfterChanges", "proxy.TestDiscoveryAfterWrites", "proxy.TestDiscoveryThatIsForwarded", "proxy.TestDocumentsUnderWay", "proxy.TestDiscoveryWhileAway", "test/e2e.TestSessionDiscovery"}},
		{ID: "stale-1", Text: "A response from a cache whose feed is broken or lags has Age and Warning: 110.", Tests: []string{"proxy.TestStaleResponsesSaySo", "proxy.TestLateResponsesSayHowOldTheyAre", "test/security.TestLateDataIsNotServedAsNew"}},
		{ID: "stale-2", Text: "A truncated list is never served.", Tests: []string{"cache/reflector.TestListThatEndsEarlyIsNeverServed", "test/security.TestListThatUpstreamEndsEarlyIsNeverServed"}},
		{ID: "order-1", Text: "For one resource, API version and encoding, responses from one gateway's cache never go back in time.", Tests: []string{"cache/reflector.TestRandomOperations", "test/security.TestDeletionsOfOneVersionAreNotLost"}},
		{ID: "cost-1", Text: "Any number of watches of a resource cost the upstream one watch per encoding.", Tests: []string{"test/e2e.TestOneUpstreamWatch", "test/e2e.TestOneUpstreamWatchAtStart", "cache.TestEachEncodingHasItsOwnReflector"}},
		{ID: "aggregated-1", Text: "Resources of aggregated API servers are forwarded as the client, unless the configuration lists their group.", Tests: []string{"proxy.TestAggregatedGroupsAreForwarded", "proxy.TestConfiguredGroupsAreCached", "test/security.TestAggregatedResponsesAreNotShared"}},
		{ID: "drain-1", Text: "On shutdown watches end spread over the drain time, each with a last bookmark.", Tests: []string{"cache/watch.TestDrainSpreadsAndBookmarks", "proxy.TestDrainEndsForwardedStreams", "test/e2e.TestDrain"}},
		{ID: "upgrade-1", Text: "exec, attach, port-forward, followed logs and other upgrades are passed through byte for byte, without delay.", Tests: []string{"test/e2e.TestUpgrade", "proxy/edge.TestUpgrade"}},
		{ID: "panic-1", Text: "A panic ends the request, watch or task in which it occurs, not the process.", Tests: []string{"proxy/edge.TestPanics", "cache/watch.TestWatchPanicEndsThatWatchOnly", "cache.TestReflectorPanicStopsCollection"}},
	}
}
