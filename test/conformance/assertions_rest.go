package conformance

func errorAssertions() []Assertion {
	return []Assertion{
		{ID: "error-1", Text: "An unknown group, version or path is 404 in plain text; an unknown resource of a known group a Status 404.", Cases: []string{"error/resource *", "error/unknown *", "error/group that exists in the wrong place", "error/root", "error/api with a trailing slash"}},
		{ID: "error-2", Text: "A method that a path does not have is 405, HEAD included.", Cases: []string{"error/method *", "get/HEAD", "get/OPTIONS", "list/HEAD", "error/create-only resource", "error/review is not read", "error/token review is not read"}},
		{ID: "error-3", Text: "Paths that can be read in more than one way mean what they mean upstream: dots, double and trailing slashes, escapes, a namespace too many or too few.", Cases: []string{"error/a namespace in a namespace", "error/empty namespace", "error/namespace*", "error/watch namespaces in a namespace", "error/dot segments", "error/dots as a name", "error/double slash", "error/empty object name", "error/escaped *", "error/path behind a name", "error/slash behind a name", "error/trailing slash", "error/cluster-scoped *"}, Tests: []string{"proxy.TestDifferential", "test/security.TestPathTailsAreTheClientsOwn", "test/security.TestOneNamespaceIsNotAllNamespaces"}},
		{ID: "error-4", Text: "Queries with escapes, semicolons, repeated, unknown or very many parameters mean what they mean upstream; so does the body of a get.", Cases: []string{"error/bad escape in the query", "error/semicolon in the query", "error/parameter given twice", "error/limit given twice", "error/unknown parameter", "error/many parameters", "error/selector of many terms", "error/body of a GET", "error/timeout*", "error/component statuses"}},
		{ID: "error-5", Text: "What cannot be answered here exactly as upstream is forwarded, for a reason; see docs/reasons.md.", Tests: []string{"proxy.TestForwardedReads", "cache/read.TestReadMatrix"}},
		{ID: "error-6", Text: "A refusal of kubeweir's own has a reason, see docs/reasons.md.", Tests: []string{"proxy.TestRefusalsAreCounted"}},
		{ID: "error-7", Text: "Over a limit a request is answered 429 in plain text with Retry-After: 1; one user cannot take all places.", Tests: []string{"proxy.TestOverloadIsRetryable", "proxy.TestOneUserCannotTakeAllPlaces", "proxy/inflight.TestLimiterSharesFairly", "test/security.TestOneUserCannotTakeAllWatches"}},
		{ID: "error-8", Text: "A request whose head has more than one reading is refused at the edge, and reaches nothing.", Tests: []string{"proxy/edge/h1.TestMalformedRequests", "proxy/edge/h1.TestHeaderLimit", "proxy/edge/h1.TestTargets"}},
	}
}

func discoveryAssertions() []Assertion {
	return []Assertion{
		{ID: "discovery-1", Text: "/api and /apis are served aggregated (v2) to who asks so, with as=APIGroupDiscoveryList in the Content-Type, else plain.", Cases: []string{"discovery/aggregated", "discovery/as client-go asks", "discovery/without peers", "discovery/protobuf", "discovery/plain*", "discovery/v2beta1*"}},
		{ID: "discovery-2", Text: "Aggregated discovery has an ETag, and 304 for who has it; it is compressed for who accepts that.", Cases: []string{"discovery/ETag*", "discovery/gzip"}},
		{ID: "discovery-3", Text: "Groups, versions and their resources are listed, custom ones as well.", Cases: []string{"discovery//api*", "discovery/protobuf resources", "discovery/a custom resource is listed", "discovery/documents"}},
		{ID: "discovery-4", Text: "OpenAPI v2 is served in JSON and protobuf, v3 by group version, with a hash that makes it immutable.", Cases: []string{"discovery//openapi/*", "discovery/OpenAPI *", "discovery/schemas"}},
		{ID: "discovery-8", Text: "An OpenAPI document that is kept is answered with when the cluster has just told this client, by 304, that it is current; so it is never an older one, and nobody gets one whom the cluster refuses it.", Tests: []string{"proxy.TestOpenAPIDocumentsAreBounded", "test/e2e.TestOpenAPIFromMemory"}},
		{ID: "discovery-5", Text: "/version, the service account issuer's keys and configuration are served.", Cases: []string{"discovery//version*", "discovery//openid/*", "discovery//.well-known/*", "discovery/version for nobody in particular"}},
		{ID: "discovery-6", Text: "/livez, /readyz and /healthz are answered for everybody, by kubeweir itself; they tell strangers no reasons.", Cases: []string{"discovery/healthz", "discovery/livez", "discovery/readyz"}, Tests: []string{"proxy/healthz.TestHealth"}},
		{ID: "discovery-7", Text: "Other paths that are no resources are authorized as such: 403 names the path.", Cases: []string{"discovery/api for nobody in particular", "discovery/metrics*", "discovery/statusz*", "discovery/flagz*"}},
		{ID: "discovery-9", Text: "/statusz and /flagz are the cluster's, as text and structured (config.k8s.io).", Cases: []string{"discovery/structured*", "discovery/text*", "discovery/JSON statusz"}},
	}
}

func identityAssertions() []Assertion {
	return []Assertion{
		{ID: "identity-1", Text: "A token that is not good is 401 with a Status, in every form; the same over a WebSocket.", Cases: []string{"auth/invalid token*", "watch/invalid token", "socket/bad token as subprotocol"}, Tests: []string{"proxy/authn.TestAuthenticate", "proxy.TestRefusals"}},
		{ID: "identity-2", Text: "Authorization headers that are no bearer tokens are none; the word bearer has no case.", Cases: []string{"auth/no bearer", "auth/empty bearer", "auth/bearer *"}},
		{ID: "identity-3", Text: "Who has no credentials is system:anonymous where that is let in, else 401.", Cases: []string{"auth/anonymous*"}, Tests: []string{"proxy/authn.TestAnonymousOff"}},
		{ID: "identity-4", Text: "A read that the upstream does not allow is 403, in its words: user, verb, resource, group, scope.", Cases: []string{"auth/with a body of HTML letters", "watch/without rights*", "socket/without rights", "access/refusals", "write/without rights", "auth/cluster-scoped refused", "auth/list refused*", "auth/get refused", "auth/custom list refused", "auth/grouped list refused", "auth/list of all refused", "auth/log refused", "auth/namespace refused", "auth/other name refused", "auth/other namespace refused", "auth/refused by certificate", "auth/secrets refused", "auth/subresource refused", "auth/unknown *", "auth/unnamed list refused", "auth/get of nothing refused"}, Tests: []string{"proxy/authz.TestForbiddenMatchesLibrary", "proxy.TestRefusals", "test/e2e.TestPermissions"}},
		{ID: "identity-5", Text: "A read that it allows is answered, by the cache as well: by namespace, by name, by a certificate's group.", Cases: []string{"auth/allowed*", "auth/watch is allowed"}, Tests: []string{"proxy/authz.TestReview", "test/e2e.TestIdentities"}},
		{ID: "identity-6", Text: "A list or watch by metadata.name is authorized with that name.", Cases: []string{"auth/list by *", "auth/watch by name is allowed by name"}},
		{ID: "identity-7", Text: "A decision is remembered for the configured time at most, and dropped when an RBAC object changes.", Tests: []string{"proxy/authz.TestDecisionsAreCached", "proxy/authz.TestInvalidate", "test/e2e.TestPermissions"}},
		{ID: "identity-8", Text: "A watch whose permission or credential is lost gets nothing more and ends.", Tests: []string{"cache/watch.TestRevokedWatchGetsNothingMore", "proxy/authz/revocation.TestRevocationEndsWatches", "proxy/authz/revocation.TestTokenOfAnOpenWatch"}},
		{ID: "identity-9", Text: "Impersonation is authorized, then applied to cached and forwarded requests alike; malformed headers are 400. Who may not is told so in the words of Kubernetes 1.37, whatever release the cluster is of.", Cases: []string{"auth/admin as *", "auth/impostor as *", "auth/alice as *", "auth/certificate as bob", "auth/nobody as bob", "auth/anonymous as bob", "auth/group without user", "auth/uid without user", "auth/extra without user", "access/impersonation"}, Tests: []string{"proxy/authz.TestImpersonate", "proxy/authz.TestImpersonationDenied"}},
		{ID: "identity-10", Text: "Front-proxy headers count with the certificate of a front proxy only, and are never passed on.", Cases: []string{"auth/front-proxy headers*"}, Tests: []string{"proxy.TestForwardedAsTheClient"}},
		{ID: "identity-11", Text: "Reviews of oneself and of tokens are answered as upstream does.", Cases: []string{"auth/SelfSubject*", "auth/TokenReview *", "access/reviews", "access/service accounts and tokens"}},
		{ID: "identity-18", Text: "What a user was answered to a question about itself (--self-reviews cached) is upstream's answer to the same question in the same form, but for its times, which go on; nobody gets another user's. It is dropped with decisions. Unusual questions are forwarded.", Cases: []string{"self/*"}, Tests: []string{"proxy.TestSelfReviewsAreRemembered", "proxy.TestSelfReviewsOfOthers", "proxy.TestUnusualSelfReviewsAreForwarded", "proxy.TestSelfReviewsAreShared"}},
		{ID: "identity-19", Text: "A rule with readOnly refuses whatever is not surely a get, list, watch or question about oneself with 403, whatever upstream allows and whomever the client impersonates.", Tests: []string{"proxy.TestReadOnly", "proxy.TestReadOnlyOfResource", "test/e2e.TestRules"}},
		{ID: "identity-20", Text: "By a rule with visibleLists, a list or watch of all namespaces whose user may not make it shows just the namespaces in each of which the user may, a list of Namespaces those that the user may get: at one version, with a Warning. Pages and watches of a set that has changed are 410.", Tests: []string{"proxy.TestVisibleLists", "proxy.TestVisiblePages", "proxy.TestVisibleNames", "proxy.TestVisibleWatch", "proxy.TestVisibleBadInput", "proxy.TestVisibleReviews"}},
		{ID: "identity-12", Text: "A token as a WebSocket subprotocol authenticates, and is taken out of the subprotocols then. Beside another credential that is good it is not looked at: it is a subprotocol as any.", Cases: []string{"socket/token as *", "socket/two tokens as subprotocols*", "socket/bad token as subprotocol beside another credential"}, Tests: []string{"proxy/authn.TestSubprotocolsLeft"}},
		{ID: "identity-13", Text: "A request is forwarded with its client's own token, or by impersonation for who comes with a certificate; as the gateway only where the answer is shared.", Tests: []string{"proxy.TestForwardedAsTheClient", "proxy/authn.TestSetUpstreamHeader"}},
		{ID: "identity-14", Text: "When the upstream cannot be asked, who is unknown is answered 503, not 401.", Tests: []string{"proxy/authz.TestFailClosed", "proxy/authn.TestTokensWithoutUpstream"}},
		{ID: "identity-15", Text: "The sidecar listener answers this machine only, and no page of elsewhere.", Tests: []string{"proxy/authn.TestSidecar", "test/security.TestWebPagesReachNothing"}},
		{ID: "identity-16", Text: "Roles cannot be written beyond one's own rights, and a binding's role cannot be changed.", Cases: []string{"access/roles and escalation"}},
		{ID: "identity-17", Text: "Every request is audited, reads from the cache included.", Tests: []string{"proxy.TestEveryRequestIsAudited", "test/security.TestNoRequestGoesUnrecorded"}},
	}
}

func writeAssertions() []Assertion {
	return []Assertion{
		{ID: "write-1", Text: "A write with a stale version is 409 Conflict; a creation of what is there 409 AlreadyExists.", Cases: []string{"write/create, read, update, conflict", "patch/leases"}},
		{ID: "write-2", Text: "A write that changes nothing keeps the version.", Cases: []string{"write/no-op writes keep the version"}},
		{ID: "write-3", Text: "generateName makes names that are not there.", Cases: []string{"write/generated names"}},
		{ID: "write-4", Text: "What is not valid is refused with kube-apiserver's Status, field by field.", Cases: []string{"write/creation that is refused", "write/unusual creations", "validation/*"}},
		{ID: "write-5", Text: "A body above 3 MiB is 413.", Cases: []string{"write/bodies over the limit"}},
		{ID: "write-6", Text: "Unknown fields are refused, warned of or dropped, as fieldValidation says.", Cases: []string{"write/unknown fields"}},
		{ID: "write-7", Text: "A dry run answers as the write would, and writes nothing.", Cases: []string{"write/dry run"}},
		{ID: "write-8", Text: "Custom resources are defaulted, pruned and validated by their schema; status is a subresource where it is declared.", Cases: []string{"write/custom resources", "definitions/*"}},
		{ID: "write-9", Text: "Answers to writes are in the form that is asked for.", Cases: []string{"write/representations of what was written"}},
		{ID: "write-10", Text: "JSON, merge and strategic merge patches, and server-side apply with its conflicts, do what they do upstream.", Cases: []string{"patch/every kind", "patch/server-side apply"}},
		{ID: "write-11", Text: "metadata.generation counts changes of the specification only.", Cases: []string{"patch/deployment generations"}},
		{ID: "write-12", Text: "Finalizers, preconditions, propagation policies and grace periods of deletions are kept.", Cases: []string{"life/finalizers", "life/preconditions and policies", "life/pods", "life/jobs orphan by default"}},
		{ID: "write-13", Text: "A collection is deleted by its selector, and nothing else.", Cases: []string{"life/collections"}},
		{ID: "write-14", Text: "A namespace takes its objects with it, and takes no new ones while it goes.", Cases: []string{"life/namespaces", "namespaces/life"}},
		{ID: "write-15", Text: "Services get addresses and ports, pods their subresources, quotas and limits are kept.", Cases: []string{"services/allocation", "pods/subresources", "quota and limits"}},
		{ID: "write-16", Text: "A write is sent upstream once; when nobody knows whether it was applied the answer says so.", Tests: []string{"proxy/upstream.TestWritesAreSentOnce", "proxy/upstream.TestFrozenWrite"}},
	}
}

func gatewayAssertions() []Assertion {
	return []Assertion{
		{ID: "fresh-1", Text: "Under strict consistency a read of the most recent state holds every write that was acknowledged before it came.", Cases: []string{"list/unset", "get/unset"}, Tests: []string{"proxy.TestStrictListsAreRevalidated", "cache/freshness.TestFresh", "test/e2e.TestStrictLists"}},
		{ID: "fresh-2", Text: "Equal most-recent reads share the next request to the upstream, never the one under way; forms are kept apart.", Tests: []string{"proxy/consistency.TestCollapseSharesTheNextRequest", "proxy/consistency.TestCollapseKeepsFormsApart", "proxy/consistency.TestCollapseNeverServesHalfAnAnswer"}},
		{ID: "fresh-3", Text: "A list that is revalidated has the objects and the version that the upstream named.", Tests: []string{"cache/read.TestRevalidate", "cache/read.TestRevalidatePages", "proxy.TestRevalidatedListsArePermitted"}},
		{ID: "session-1", Text: "In session mode a read holds every write that went through this gateway, whoever made it.", Tests: []string{"proxy.TestSessionSeesWritesMadeHere", "proxy/consistency.TestWriteIsRecordedBeforeItsAnswerGoesOut", "test/e2e.TestSessionConsistency"}},
		{ID: "session-2", Text: "That goes for deletions and for writes whose effect the answer does not tell.", Tests: []string{"proxy.TestSessionSeesDeletionsByUpdate", "proxy/consistency.TestWritesOfUnknownEffect", "test/security.TestHalfDoneDeleteCollectionIsNotTakenForRefused"}},
		{ID: "session-3", Text: "A session read asks the upstream for nothing, unless a write is to be settled.", Tests: []string{"proxy.TestSessionReadsAskNobody", "proxy.TestSessionProvesOnce"}},
		{ID: "session-5", Text: "A get or list of the most recent state with Cache-Control: no-cache is strict in session mode, too.", Tests: []string{"proxy.TestNoCacheReadsAreStrict", "test/e2e.TestNoCacheReads"}},
		{ID: "session-4", Text: "In session mode discovery and the version are what the upstream answered the same user lately, byte for byte, and never from before a change of a definition or an APIService that the gateway has seen or passed on; while what it hears is late, or the upstream away, with Age and Warning: 110.", Tests: []string{"proxy.TestDiscoveryIsRemembered", "proxy.TestDiscoveryAfterChanges", "proxy.TestDiscoveryAfterWrites", "proxy.TestDiscoveryThatIsForwarded", "proxy.TestDocumentsUnderWay", "proxy.TestDiscoveryWhileAway", "test/e2e.TestSessionDiscovery"}},
		{ID: "stale-1", Text: "An answer of a cache whose feed is broken or late has Age and Warning: 110.", Tests: []string{"proxy.TestStaleAnswersSaySo", "proxy.TestLateAnswersSayHowOldTheyAre", "test/security.TestLateDataIsNotServedAsNew"}},
		{ID: "stale-2", Text: "A list that ended early is never served.", Tests: []string{"cache/reflector.TestListThatEndsEarlyIsNeverServed", "test/security.TestListThatUpstreamEndsEarlyIsNeverServed"}},
		{ID: "order-1", Text: "For one resource, API version and encoding, answers of one gateway's cache never go back.", Tests: []string{"cache/reflector.TestRandomOperations", "test/security.TestDeletionsOfOneVersionAreNotLost"}},
		{ID: "cost-1", Text: "Any number of watches of a resource cost the upstream one watch per encoding.", Tests: []string{"test/e2e.TestOneUpstreamWatch", "test/e2e.TestOneUpstreamWatchAtStart", "cache.TestEachEncodingHasItsOwnReflector"}},
		{ID: "aggregated-1", Text: "What another API server serves is forwarded as the client, unless the configuration names its group.", Tests: []string{"proxy.TestAggregatedGroupsAreForwarded", "proxy.TestConfiguredGroupsAreCached", "test/security.TestAggregatedAnswersAreNotShared"}},
		{ID: "drain-1", Text: "On shutdown watches end spread over the time, each with a last bookmark.", Tests: []string{"cache/watch.TestDrainSpreadsAndBookmarks", "proxy.TestDrainEndsForwardedStreams", "test/e2e.TestDrain"}},
		{ID: "upgrade-1", Text: "exec, attach, port-forward, followed logs and other upgrades pass through byte for byte, as they come.", Tests: []string{"test/e2e.TestUpgrade", "proxy/edge.TestUpgrade"}},
		{ID: "panic-1", Text: "A panic ends what panicked, and not the process.", Tests: []string{"proxy/edge.TestPanics", "cache/watch.TestWatchPanicEndsThatWatchOnly", "cache.TestReflectorPanicStopsCollection"}},
	}
}
