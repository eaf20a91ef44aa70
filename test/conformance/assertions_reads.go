package conformance

func getAssertions() []Assertion {
	return []Assertion{
		{ID: "get-1", Text: "A get without resourceVersion reads the most recent state.", Cases: []string{"get/unset"}, Tests: []string{"proxy.TestRoutes", "proxy.TestPromptReads"}},
		{ID: "get-2", Text: "A get with resourceVersion 0 reads any state: the one in the cache.", Cases: []string{"get/any"}, Tests: []string{"proxy.TestRoutes"}},
		{ID: "get-3", Text: "A get with a version reads a state that is not older than that.", Cases: []string{"get/not older*"}},
		{ID: "get-4", Text: "A get at a version that does not come within three seconds is answered 504 with the cause ResourceVersionTooLarge.", Cases: []string{"get/future version"}},
		{ID: "get-5", Text: "A get with a resourceVersion that is no number is answered 500.", Cases: []string{"get/version no number", "get/negative version"}},
		{ID: "get-6", Text: "An object that is not there is answered 404 with reason NotFound; details.kind is the plural.", Cases: []string{"get/missing *", "get/in a missing namespace", "get/invalid name"}},
		{ID: "get-7", Text: "A get with watch=true returns the object.", Cases: []string{"get/watch on an object*"}},
		{ID: "get-8", Text: "JSON is indented where pretty says so, and for people's user agents.", Cases: []string{"get/pretty*"}},
		{ID: "get-9", Text: "Parameters that nobody knows are ignored; export, which was removed, is answered 400.", Cases: []string{"get/unknown parameters", "get/removed parameter"}},
		{ID: "get-10", Text: "The status of an object, its scale and its other subresources are read as the object's type has them; unknown ones are answered 404.", Cases: []string{"get/scale of *", "get/status of *", "get/unknown subresource*", "get/no status subresource"}},
		{ID: "get-11", Text: "A deprecated version of a resource is served, with its warning.", Cases: []string{"get/deprecated version warns", "list/deprecated version"}},
		{ID: "get-12", Text: "Answers from the cache have an ETag; a read that names it is answered 304.", Tests: []string{"cache.TestConditionalReads", "cache.TestTableETagFollowsTheClock"}},
	}
}

func listAssertions() []Assertion {
	return []Assertion{
		{ID: "list-1", Text: "A list without resourceVersion, or with an empty one, reads the most recent state.", Cases: []string{"list/unset", "list/empty parameters"}, Tests: []string{"test/e2e.TestStrictLists"}},
		{ID: "list-2", Text: "A list with resourceVersion 0 reads any state, and tells which one it was.", Cases: []string{"list/any", "list/any, not older"}},
		{ID: "list-3", Text: "A list with resourceVersion 0 is whole whatever its limit.", Cases: []string{"list/any with limit is the full list", "list/any, not older, with limit", "chunk/any version has no pages"}},
		{ID: "list-4", Text: "A list with a version, without limit or with NotOlderThan, reads a state that is not older.", Cases: []string{"list/not older*"}},
		{ID: "list-5", Text: "A list with Exact, or with a version and a limit, reads just that state and reports its version.", Cases: []string{"list/exact", "list/exact, newest", "list/exact with limit", "list/exact by limit"}},
		{ID: "list-6", Text: "A list of a state that is no longer held is answered 410 with reason Expired.", Cases: []string{"list/exact version too old", "list/exact by limit too old"}},
		{ID: "list-7", Text: "A list at a version that does not come within three seconds is answered 504 with the cause ResourceVersionTooLarge.", Cases: []string{"list/future version*", "list/exact future version"}},
		{ID: "list-8", Text: "A version that is no number is answered 400.", Cases: []string{"list/version *", "list/exact version no number"}},
		{ID: "list-9", Text: "A resourceVersionMatch that does not go with the version, the token or the verb is answered 422.", Cases: []string{"list/match *", "list/exact zero", "list/unknown match*", "list/initial events*"}},
		{ID: "list-10", Text: "Parameters that cannot be read are answered 400; a negative limit is none.", Cases: []string{"list/limit *", "list/timeoutSeconds no number", "list/timeout no duration", "list/several faults", "list/negative limit is none", "list/bool parameters that are none", "list/timeoutSeconds is ignored"}},
		{ID: "list-11", Text: "A selector that cannot be read is answered 400.", Cases: []string{"list/label selector*", "list/field selector*"}},
		{ID: "list-12", Text: "A list of nothing has items [], never null.", Cases: []string{"list/empty namespace*", "list/missing namespace"}},
		{ID: "list-13", Text: "Bodies above 128 KiB are compressed by gzip for those who accept it without a weight; smaller ones are not.", Cases: []string{"list/gzip*", "list/no gzip*", "list/identity"}},
		{ID: "list-14", Text: "The Audit-Id of a request is echoed.", Cases: []string{"list/Audit-Id*", "watch/Audit-Id"}},
		{ID: "list-15", Text: "Lists are ordered by namespace, then name, bytewise.", Cases: []string{"list/exact"}, Tests: []string{"cache.TestOrderAndCounts"}},
		{ID: "list-16", Text: "Every resource that the upstream lists and watches is served in every form that it has there.", Cases: []string{"every/*", "types/*"}},
		{ID: "list-17", Text: "JSON is indented, and YAML given, where that is asked for.", Cases: []string{"list/pretty", "list/yaml*", "get/yaml*"}, Tests: []string{"cache.TestYAML", "cache.TestYAMLIsBounded"}},
		{ID: "list-18", Text: "A shardSelector leaves the objects whose uid or namespace has a hash in its ranges, with all versions, pages, selectors and forms, and lists of a Go type say so in metadata.shardInfo.", Cases: []string{"shard/most recent*", "shard/any version", "shard/all", "shard/several ranges", "shard/by namespace*", "shard/not older", "shard/exact", "shard/with *", "shard/of one", "shard/empty parameter", "shard/an object has none", "shard/protobuf*", "shard/table", "shard/metadata", "shard/pretty", "shard/gzip", "shard/custom*", "shard/nothing there", "shard/pages*", "shard/inconsistent continuation", "shard/yaml"}, Tests: []string{"cache.TestListShard", "cache.TestShardForms", "cache.TestShardsAddUp"}},
		{ID: "list-19", Text: "What is no shardSelector is answered 500 in kube-apiserver's words, after the right and the other parameters have been looked at; versions that are gone or to come as without it.", Cases: []string{"shard/no selector*", "shard/expired token", "shard/exact version too old", "shard/future version", "shard/unknown *", "shard/bad *", "shard/without rights"}, Tests: []string{"cache.TestShardRefusals"}},
		{ID: "list-20", Text: "Shards are read in front of a server that does not know them: what the cache cannot answer is forwarded, and refused where the answer does not say that it is the shard.", Cases: []string{"shard/before a server that does not know them"}, Tests: []string{"proxy.TestShards", "proxy.TestOnlyShardsPass", "proxy.TestShardWatchesAreStopped", "test/matrix.TestMatrix"}},
	}
}

func chunkAssertions() []Assertion {
	return []Assertion{
		{ID: "chunk-1", Text: "A list with a limit has so many items at most, and a token while there are more; all pages report the version of the first.", Cases: []string{"chunk/pages share one version", "chunk/one item a page", "chunk/cluster-scoped", "chunk/namespace", "chunk/kubectl's chunks", "chunk/limit *"}},
		{ID: "chunk-2", Text: "Pages of exact states and of states not older have that version.", Cases: []string{"chunk/exact*", "chunk/not older"}},
		{ID: "chunk-3", Text: "Tables and metadata have pages as objects do.", Cases: []string{"chunk/tables*", "chunk/metadata"}},
		{ID: "chunk-4", Text: "With a selector a page is filled with what matches; remainingItemCount is told without a selector only.", Cases: []string{"chunk/with a *", "chunk/remainingItemCount", "chunk/no remainingItemCount with a selector"}},
		{ID: "chunk-5", Text: "A token with a version other than 0 is answered 400; with 0, or without limit, it goes on.", Cases: []string{"chunk/token *"}},
		{ID: "chunk-6", Text: "A token of a state that is no longer held is answered 410, with another token that goes on in the newest state.", Cases: []string{"chunk/expired token*", "chunk/the token of the refusal works"}},
		{ID: "chunk-7", Text: "A token of version -1 goes on in the newest state, and its next page has an ordinary token.", Cases: []string{"chunk/inconsistent continuation*"}},
		{ID: "chunk-8", Text: "A token that cannot be read, or whose key is not below the list, is answered 400.", Cases: []string{"chunk/bad token *"}},
		{ID: "chunk-9", Text: "Tokens are kube-apiserver's own: a list begun here goes on there and the other way round, with or without the slash.", Cases: []string{"chunk/start *", "chunk/pages share one version"}, Tests: []string{"cache.TestRevalidatePages"}},
		{ID: "chunk-10", Text: "A token of a version to come is answered 504, one of another negative version as the upstream does.", Cases: []string{"chunk/future token", "chunk/any negative version"}},
		{ID: "chunk-11", Text: "Events, which kube-apiserver keeps in no watch cache, have pages at resourceVersion 0, too.", Cases: []string{"chunk/any version has pages without a watch cache", "chunk/the same, walked"}},
	}
}

func selectorAssertions() []Assertion {
	return []Assertion{
		{ID: "select-1", Text: "Label selectors have all of their operators; != and notin also match objects without the label.", Cases: []string{"selector/label *", "selector/label, *"}},
		{ID: "select-2", Text: "metadata.name and metadata.namespace select every resource that has them.", Cases: []string{"selector/field metadata.*", "watch/by name", "live/name"}},
		{ID: "select-3", Text: "The fields that a kind selects by are those of kube-apiserver; those of custom resources are their selectableFields.", Cases: []string{"selector/field *", "selector/field, *", "watch/by node", "watch/by phase*", "live/phase*", "live/custom, field selector"}},
		{ID: "select-4", Text: "Field and label selectors are joined by and.", Cases: []string{"selector/field and label"}},
		{ID: "select-5", Text: "A field that the kind does not select by is answered 400, for lists and watches.", Cases: []string{"selector/unsupported field*"}},
		{ID: "select-6", Text: "The selectors that a read is authorized with are those that select.", Tests: []string{"test/security.TestSelectorsThatAuthorizeAreThoseThatSelect", "proxy.TestDifferential"}},
		{ID: "select-7", Text: "A costly selector delays those who sent it, and nobody else.", Tests: []string{"test/security.TestCostlySelectorsDelayNobodyElse", "watchmux.TestCostlyFiltersAreAskedByTheirReaders"}},
	}
}

func watchAssertions() []Assertion {
	return []Assertion{
		{ID: "watch-1", Text: "A watch from a version brings every event after it, in rising order, none lost and none twice.", Cases: []string{"watch/all events after a version, in order", "watch/in all namespaces", "watch/from further back", "watch/the start version is exclusive", "watch/no more than that", "live/from a version", "live/in all namespaces", "live/custom", "live/custom, another version", "watch/what was written"}, Tests: []string{"test/e2e.TestRawWatchGuarantees", "watchmux.TestModel", "cache.TestRandom"}},
		{ID: "watch-2", Text: "Between a list and a watch from its version nothing is missed, also when the list came from the cache.", Cases: []string{"live/from a list's version"}, Tests: []string{"test/e2e.TestInformersStayEqual", "test/e2e.TestListThenWatch"}},
		{ID: "watch-3", Text: "A watch from before the history gets 200, one ERROR event with a Status 410 Expired, and its end.", Cases: []string{"watch/too old*", "socket/too old*"}, Tests: []string{"cache.TestWatchExpired"}},
		{ID: "watch-4", Text: "A watch at a version to come is silent until it has passed; with initial events it gets an ERROR event 504.", Cases: []string{"watch/future version is silent", "watch/future version"}, Tests: []string{"watchmux.TestFuture"}},
		{ID: "watch-5", Text: "Bookmarks come once a minute and two seconds before the end, with kind, apiVersion and a version only, and never above what was delivered.", Cases: []string{"idle/bookmarks*"}, Tests: []string{"cache.TestWatchBookmarksAndDeadline", "cache.TestBookmarkTemplate"}},
		{ID: "watch-6", Text: "An object that leaves the selection is DELETED, as it was last seen, with the version of the change.", Cases: []string{"watch/leaving *", "watch/both kinds of change", "live/pod leaves a label selector", "live/absence of a label"}, Tests: []string{"cache.TestWatchLeavingObjectIsThePreviousOne", "watchmux.TestTransitions"}},
		{ID: "watch-7", Text: "An object that enters the selection is ADDED; one that is deleted within it is DELETED with the version of the deletion.", Cases: []string{"watch/entering a label selector", "watch/deletion within a selector", "live/pod enters a label selector", "live/custom, entering a field selector", "live/a collection goes"}, Tests: []string{"cache.TestWatchSelectorTransitions"}},
		{ID: "watch-8", Text: "A watch ends cleanly after its timeoutSeconds, without an ERROR event.", Cases: []string{"watch/ends cleanly in time*"}, Tests: []string{"cache.TestWatchBookmarksAndDeadline"}},
		{ID: "watch-9", Text: "sendInitialEvents brings ADDED events of all there is; the bookmark behind them carries k8s.io/initial-events-end where bookmarks are allowed.", Cases: []string{"watch/any version", "watch/initial events and their end", "watch/metadata", "watch/not older than", "watch/nothing there", "watch/pods", "watch/with a selector", "watch/without bookmarks there is no mark", "live/marked, then live"}, Tests: []string{"cache.TestWatchInitialEvents", "cache.TestWatchManyInitialEvents"}},
		{ID: "watch-10", Text: "A watch without a version, or from 0, begins with what is there, and marks its end where bookmarks are allowed.", Cases: []string{"watch/any version *", "watch/any version, *", "watch/no version *", "watch/no version, *", "live/initial events, then live"}},
		{ID: "watch-11", Text: "sendInitialEvents=false begins now; after a version there are no initial events.", Cases: []string{"watch/from now on*", "watch/no initial events after a version", "live/from now on"}},
		{ID: "watch-12", Text: "Options that do not go together are answered 422 before the watch begins.", Cases: []string{"watch/initial events with*", "watch/match without initial events", "watch/custom resource, initial events without match"}},
		{ID: "watch-13", Text: "Parameters and selectors that cannot be read are answered before the watch begins, as the upstream does.", Cases: []string{"watch/version no number", "watch/initial events, version no number", "watch/timeoutSeconds no number", "watch/label selector", "watch/field selector", "watch/bad includeObject", "watch/custom resource, version no number", "watch/POST"}},
		{ID: "watch-14", Text: "watch is true with any word but 0 and false; limit and pretty mean nothing to a watch.", Cases: []string{"watch/watch=*", "watch/an empty word is true", "watch/any other word is true", "watch/limit means nothing", "watch/pretty means nothing"}},
		{ID: "watch-15", Text: "The deprecated paths with watch in them work; a name that contradicts the selector is answered 400.", Cases: []string{"watch/path*", "socket/path"}},
		{ID: "watch-16", Text: "A resource that is not there cannot be watched: 404.", Cases: []string{"watch/unknown resource*"}},
		{ID: "watch-17", Text: "A watch from a version is never compressed. One that begins with what is there is, as in kube-apiserver 1.37, by gzip (or zstd) for those who accept it, if a list of the same objects would be; not by fields, and not as a Table.", Cases: []string{"watch/is never compressed"}, Tests: []string{"cache.TestCompressedWatch", "cache.TestNotCompressedWatch", "cache.TestCompressedWatchEnds", "test/e2e.TestCompressedWatchLists"}},
		{ID: "watch-18", Text: "Over a WebSocket each event is a message: text for JSON, binary for protobuf; it is closed with 1000 in time.", Cases: []string{"socket/JSON in text frames", "socket/protobuf in binary frames", "socket/table", "socket/metadata*", "socket/custom", "socket/any version", "socket/most recent", "socket/initial events*", "socket/leaving a label selector", "socket/by name", "socket/closed normally in time", "socket/binary subprotocol", "live/WebSocket"}, Tests: []string{"cache.TestWatchInMessages"}},
		{ID: "watch-19", Text: "Events of other namespaces are not seen, and a write that changes nothing is no event.", Cases: []string{"live/other namespaces are not seen", "live/no-op writes are no events"}},
		{ID: "watch-20", Text: "When an object's last finalizer is removed its DELETED event still has it, with a new version.", Cases: []string{"live/finalizers"}},
		{ID: "watch-21", Text: "When a definition goes, watches of its objects see them go and end.", Cases: []string{"live/a definition goes"}, Tests: []string{"test/e2e.TestDefinitions", "cache.TestWatchEnds"}},
		{ID: "watch-22", Text: "A slow watcher delays nobody; off the history it gets 410 and ends.", Tests: []string{"cache.TestSlowWatcherDelaysNobody", "cache.TestWatchEnds", "test/e2e.TestSlowConsumer"}},
		{ID: "watch-23", Text: "Where the upstream is lost and comes back, a client that watches on, and lists again where it is told to, misses nothing; bookmarks say no more than was delivered.", Cases: []string{"fault/the upstream is lost*"}, Tests: []string{"cache.TestWatchSurvivesABrokenFeed", "cache.TestCutAnywhere"}},
		{ID: "watch-24", Text: "An upstream whose versions went back ends watches with 410, and the cache begins anew.", Tests: []string{"cache.TestRewoundBelowProof", "cache.TestWatchEnds"}},
		{ID: "watch-25", Text: "Every end of a watch has a reason, see docs/reasons.md.", Tests: []string{"cache.TestWatchEnds"}},
		{ID: "watch-26", Text: "In front of a server without WatchList lists and watches work as well; sendInitialEvents is answered as there.", Cases: []string{"old/without WatchList*"}},
		{ID: "watch-27", Text: "A watch over a WebSocket is served, counted, limited and revoked as any other, and costs the upstream nothing of its own.", Tests: []string{"proxy.TestWebSocketWatch", "proxy.TestWebSocketAnswers", "test/e2e.TestOneUpstreamWatchOfWebSockets"}},
		{ID: "watch-28", Text: "The handshake is answered as kube-apiserver does, byte by byte: an Origin is asked for, version 13 and one subprotocol besides a token that authenticates; no extension is agreed to. What is wrong with the watch is answered in plain HTTP. A handshake whose body was not read to its end is 400 here; kube-apiserver takes the body for frames.", Cases: []string{"socket/handshake*", "socket/body of the handshake", "socket/subprotocol*", "socket/empty subprotocol", "socket/empty key", "socket/empty origin", "socket/extensions are not agreed to", "socket/several *", "socket/another version", "socket/origin *", "socket/HEAD", "socket/no *", "socket/null origin", "socket/POST", "socket/unknown resource", "socket/YAML", "socket/initial events without match", "socket/invalid token"}, Tests: []string{"proxy/websocket.TestAccepts"}},
		{ID: "watch-29", Text: "What a client sends over a WebSocket is not looked at, but that pings are answered (of several that wait the last), that a close frame ends the watch, and that frames must be masked (1002) and have 32 MiB at most. Who sends more than 33 MiB at once, or 1 MiB or 1,000 frames a second, is closed with 1008; kube-apiserver reads on.", Cases: []string{"socket/ping", "socket/empty ping", "socket/masked ping", "socket/long ping", "socket/pong and data", "socket/reserved bits and opcodes", "socket/unmasked*", "socket/close without a code", "socket/length with the highest bit", "socket/too large", "socket/fragments without end"}, Tests: []string{"proxy/websocket.TestReader", "proxy/websocket.TestPingsAreBounded", "test/security.TestHostileWebSockets"}},
		{ID: "watch-30", Text: "A watch of a shard has its initial objects and its events, and bookmarks as any other.", Cases: []string{"shard/watch*", "shard/initial events*"}, Tests: []string{"cache.TestWatchShard"}},
	}
}

func formAssertions() []Assertion {
	return []Assertion{
		{ID: "form-1", Text: "The first clause of Accept that can be served, in the order of weights, decides; without one it is JSON.", Cases: []string{"negotiation/exact list *", "negotiation/list *", "negotiation/custom list *", "negotiation/several Accept lines are one"}},
		{ID: "form-2", Text: "Nothing that can be served is 406, in the words of who refuses it upstream.", Cases: []string{"negotiation/406 *", "watch/YAML", "watch/unknown media type", "watch/table in protobuf", "watch/custom resource, YAML"}},
		{ID: "form-3", Text: "Built-in kinds are served in protobuf: objects, lists, pages and watch frames.", Cases: []string{"get/protobuf *", "negotiation/protobuf list*", "watch/protobuf", "watch/protobuf, *", "live/protobuf", "live/pods in protobuf"}},
		{ID: "form-4", Text: "Custom resources have no protobuf form of their objects: 406, or JSON where that is accepted as well.", Cases: []string{"get/custom resource *", "negotiation/custom list takes JSON", "negotiation/custom list has no protobuf", "watch/custom resource takes JSON", "watch/custom resource in protobuf"}},
		{ID: "form-5", Text: "Metadata alone is served of every resource, in JSON and protobuf, of custom resources as well.", Cases: []string{"get/metadata", "get/protobuf metadata", "negotiation/protobuf metadata of a custom list", "negotiation/as the garbage collector asks", "watch/metadata*", "watch/protobuf metadata*", "watch/as the garbage collector asks", "live/metadata", "live/protobuf metadata", "live/custom protobuf metadata", "patch/protobuf metadata of a custom resource"}, Tests: []string{"cache.TestWatchPartialMetadata"}},
		{ID: "form-6", Text: "PartialObjectMetadata of a list is 406; a list of one object is as the upstream has it.", Cases: []string{"negotiation/metadata *"}},
		{ID: "form-7", Text: "Tables have the columns and cells of kube-apiserver's printers, of custom resources those of their definition. In front of another release than kubeweir's own the columns are that release's, or Tables are forwarded; cells are as kubeweir's release writes them.", Cases: []string{"get/table", "negotiation/table*", "negotiation/custom table *", "every/table", "every/wide table", "negotiation/default columns*", "watch/default columns"}, Tests: []string{"cache/table.TestFollowing", "cache.TestColumnsOfTheServer", "test/matrix.TestMatrix", "cache.TestRowThatCannotBePrinted"}},
		{ID: "form-8", Text: "includeObject says what a row has of its object: its metadata, all of it, nothing; another word is 400. Without a Table it means nothing.", Cases: []string{"negotiation/includeObject without a table*", "negotiation/table with object*", "negotiation/custom table with object*", "watch/table with*"}},
		{ID: "form-9", Text: "Of a watch of Tables the first event alone has column definitions.", Cases: []string{"watch/table*", "live/table: later events have no columns", "live/custom table", "live/pods as a table"}, Tests: []string{"cache.TestWatchTable"}},
		{ID: "form-10", Text: "An error is a Status and never transformed; it is in the form that is accepted, else indented JSON.", Cases: []string{"get/an error *", "get/an error, pretty"}},
		{ID: "form-11", Text: "Watches in JSON are plain frames, in protobuf of type stream=watch.", Cases: []string{"watch/JSON*"}},
		{ID: "form-12", Text: "An object's bytes reach the client as the upstream wrote them.", Cases: []string{"get/any", "list/any"}, Tests: []string{"cache.TestListBytes", "cache.TestGetBytes"}},
		{ID: "form-13", Text: "A deprecated version of a custom resource is watched as its own.", Cases: []string{"watch/deprecated version"}},
		{ID: "form-14", Text: "Objects, lists, watches, metadata and the objects of Tables are without managedFields where Accept says drop=metadata.managedFields (KEP-5958), whether the upstream knows that or not. What is not answered from the cache it answers: one that does not know the parameter sends everything. A drop of anything else is the upstream's affair.", Cases: []string{"negotiation/drop of something else*"}, Tests: []string{"test/matrix.TestMatrix", "cache.TestListBytes", "cache.TestGetBytes", "cache/form.TestEventBytes", "api.TestNegotiateDrop"}},
	}
}
