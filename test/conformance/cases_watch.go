package conformance

import (
	"fmt"
	"slices"
)

const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// watchCases watch the seeded objects: their current state, and their history.
func watchCases(env *Env) []Case {
	return slices.Concat(
		historyCases(env.Versions), initialCases(env.Versions), representationCases(env.Versions), pathCases(env.Versions),
		rejectedWatchCases(env.Versions), socketCases(env),
	)
}

func repeat(event string, n int) []string { return slices.Repeat([]string{event}, n) }

// changed are the events in namespace alpha after Versions.Middle: five pods were updated, one is
// terminating.
var changed = repeat(modified, 6)

// gone are the events of two pods in namespace beta: each was marked as terminating, then deleted.
var gone = []string{modified, deleted, modified, deleted}

// historyCases start at a version and read the events since.
func historyCases(v Versions) []Case {
	since := func(path string, rv int64, query string) string {
		return fmt.Sprintf("%s?watch=true&resourceVersion=%d%s", path, rv, query)
	}
	all := slices.Concat(repeat(modified, 5), gone, []string{modified})
	return []Case{
		watch("watch/1 all events after a version, in order", since(podsPath, v.Middle, ""), changed...),
		watch("watch/1 in all namespaces", since(allPods, v.Middle, ""), all...),
		watch("watch/1 from further back", since(allPods, v.Start, "")).count(100).far(),
		watch("watch/1 the start version is exclusive", since(allPods, v.Changed, ""), all[1:]...),
		watch("watch/1 no more than that", since(podsPath, v.Middle, "&timeoutSeconds=2"), changed...).toEOF().slow(),
		watch("watch/8 ends cleanly in time", since(podsPath, v.Seeded, "&timeoutSeconds=2")).toEOF().slow(),
		watch("watch/8 ends cleanly in time, custom", since(widgetsPath, v.Seeded, "&timeoutSeconds=2")).toEOF().slow(),
		watch("watch/8 ends at once after negative seconds", since(podsPath, v.Seeded, "&timeoutSeconds=-1")).toEOF(),
		watch("watch/8 ends at once after seconds that overflow", since(widgetsPath, v.Seeded, "&timeoutSeconds=9223372037")).toEOF(),
		watch("watch/future version is silent", since(podsPath, v.Seeded+100000, "&timeoutSeconds=2")).toEOF().slow(),
		watch("watch/3 too old", since(podsPath, v.Expired, ""), failed).toEOF().contains(`"reason":"Expired"`, `"code":410`).mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/3 too old, custom", since(widgetsPath, v.Expired, ""), failed).toEOF().contains(`"code":410`).mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/3 too old, table", since(podsPath, v.Expired, ""), failed).toEOF().accept(typeTable).contains(`"kind":"Status"`).mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/3 too old, metadata", since(podsPath, v.Expired, ""), failed).toEOF().accept(typeMeta).mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/3 too old, protobuf", since(podsPath, v.Expired, ""), failed).toEOF().accept(typeProto).contains("too old resource version").mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/3 too old, with a selector", since(podsPath, v.Expired, "&labelSelector=app%3Dnone"), failed).toEOF().mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/6 leaving a label selector", since(podsPath, v.Middle, "&labelSelector=tier%3Dfront"), deleted, deleted, modified).contains(`"tier":"front"`),
		watch("watch/7 entering a label selector", since(podsPath, v.Middle, "&labelSelector=tier%3Dmoved"), repeat(added, 5)...),
		watch("watch/6 both kinds of change", since(podsPath, v.Middle, "&labelSelector=tier"), added, modified, modified, modified, modified, modified).count(5),
		watch("watch/6 leaving by absence", since(podsPath, v.Middle, "&labelSelector=%21round"), repeat(deleted, 5)...).count(5),
		watch("watch/7 deletion within a selector", since(allPods, v.Middle, "&labelSelector=app%3Ddb"), gone...),
		watch("watch/55 by name", since(podsPath, v.Middle, "&fieldSelector=metadata.name%3Dweb-02"), modified),
		watch("watch/56 by node", since(allPods, v.Middle, "&fieldSelector=spec.nodeName%3Dnode-1"), modified, modified),
		watch("watch/56 by phase", since(allPods, v.Start, "&fieldSelector=status.phase%3DRunning")).count(30).far(),
		watch("watch/56 by phase, seen leaving", since(allPods, v.Start, "&fieldSelector=status.phase%3DPending")).count(60).far(),
		watch("watch/limit means nothing", since(podsPath, v.Middle, "&limit=2"), changed...),
		watch("watch/any other word is true", fmt.Sprintf("%s?watch=foo&resourceVersion=%d", podsPath, v.Middle), changed...),
		watch("watch/watch=1", fmt.Sprintf("%s?watch=1&resourceVersion=%d", podsPath, v.Middle), changed...),
		watch("watch/an empty word is true", fmt.Sprintf("%s?watch&resourceVersion=%d", podsPath, v.Middle), changed...),
		fresh("watch/watch=0 is a list", podsPath+"?watch=0&resourceVersion=0").contains(`"kind":"PodList"`),
		watch("watch/68 is never compressed", since(allPods, v.Start, ""), "").count(100).far().header("Accept-Encoding", "gzip"),
		watch("watch/pretty means nothing", since(podsPath, v.Middle, "&pretty=true"), changed...),
	}
}

// initialCases start with the current state.
func initialCases(v Versions) []Case {
	const list = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	blueAndRed := []string{added, added}
	marked := []string{added, added, bookmark}
	return []Case{
		watch("watch/any version starts with what is there", widgetsPath+"?watch=1&resourceVersion=0", blueAndRed...),
		watch("watch/no version starts with what is there", widgetsPath+"?watch=1", blueAndRed...),
		watch("watch/no version, pods", podsPath+"?watch=1", repeat(added, podsPerApp)...),
		watch("watch/any version, all pods", allPods+"?watch=1&resourceVersion=0", repeat(added, 2*podsPerApp-2)...),
		watch("watch/any version, with a selector", podsPath+"?watch=1&resourceVersion=0&labelSelector=tier%3Dmoved", repeat(added, 5)...),
		watch("watch/any version, bookmarks: the end is marked", widgetsPath+"?watch=1&resourceVersion=0&allowWatchBookmarks=true", marked...).contains(`"k8s.io/initial-events-end":"true"`),
		watch("watch/no version, bookmarks: the end is marked", podsPath+"?watch=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3Dweb-02", added, bookmark),
		watch("watch/14 initial events and their end", widgetsPath+"?watch=1&allowWatchBookmarks=true"+list, marked...).contains(`"k8s.io/initial-events-end":"true"`),
		watch("watch/14 pods", podsPath+"?watch=1&allowWatchBookmarks=true"+list, append(repeat(added, podsPerApp), bookmark)...),
		watch("watch/14 any version", podsPath+"?watch=1&allowWatchBookmarks=true&resourceVersion=0"+list, append(repeat(added, podsPerApp), bookmark)...),
		watch("watch/14 not older than", fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d%s", podsPath, v.Middle, list), append(repeat(added, podsPerApp), bookmark)...),
		watch("watch/14 nothing there", "/api/v1/namespaces/empty/pods?watch=1&allowWatchBookmarks=true"+list, bookmark),
		watch("watch/14 with a selector", podsPath+"?watch=1&allowWatchBookmarks=true&labelSelector=tier%3Dmoved"+list, append(repeat(added, 5), bookmark)...),
		watch("watch/14 protobuf", podsPath+"?watch=1&allowWatchBookmarks=true"+list, append(repeat(added, podsPerApp), bookmark)...).accept(typeProto),
		watch("watch/14 table", podsPath+"?watch=1&allowWatchBookmarks=true"+list, append(repeat(added, podsPerApp), bookmark)...).accept(typeTable).contains("initial-events-end"),
		watch("watch/14 table, custom", widgetsPath+"?watch=1&allowWatchBookmarks=true"+list, marked...).accept(typeTable),
		watch("watch/14 metadata", widgetsPath+"?watch=1&allowWatchBookmarks=true"+list, marked...).accept(typeMeta),
		watch("watch/14 protobuf metadata", widgetsPath+"?watch=1&allowWatchBookmarks=true"+list, marked...).accept(typeProtoMeta),
		watch("watch/14 without bookmarks there is no mark", widgetsPath+"?watch=1&timeoutSeconds=2"+list, added, added).toEOF().slow(),
		watch("watch/from now on", podsPath+"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=2").toEOF().slow(),
		watch("watch/from now on, any version", podsPath+"?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=2").toEOF().slow(),
		watch("watch/no initial events after a version", fmt.Sprintf("%s?watch=1&resourceVersion=%d&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", podsPath, v.Middle), changed...),
		watch("watch/14 future version", fmt.Sprintf("%s?watch=1&resourceVersion=%d%s", podsPath, v.Seeded+100000, list), failed).toEOF().contains("Too large resource version").mask(`current: \d+`).slow(),
	}
}

// pathCases watch by the deprecated paths that contain the verb.
func pathCases(v Versions) []Case {
	const alpha, widgetOf = "/api/v1/watch/namespaces/alpha/pods", "/apis/conf.example.com/v1/watch/namespaces/alpha/widgets"
	since := func(path, query string) string { return fmt.Sprintf("%s?resourceVersion=%d%s", path, v.Middle, query) }
	all := slices.Concat(repeat(modified, 5), gone, []string{modified})
	bad := func(name, path string, status int, text ...string) Case {
		c := fails("watch/path: "+name, path, status, text...)
		c.Watch, c.Count = true, 1
		return c
	}
	return []Case{
		watch("watch/path", since(alpha, ""), changed...),
		watch("watch/path of all namespaces", since("/api/v1/watch/pods", ""), all...),
		watch("watch/path of one object", since(alpha+"/web-02", ""), modified),
		watch("watch/path of one object, its name selected as well", since(alpha+"/web-02", "&fieldSelector=metadata.name%3Dweb-02"), modified),
		watch("watch/path of one object, by label", since(alpha+"/web-02", "&labelSelector=tier%3Dmoved"), added),
		watch("watch/path, by label", since(alpha, "&labelSelector=tier%3Dmoved"), repeat(added, 5)...),
		watch("watch/path, by field", since("/api/v1/watch/pods", "&fieldSelector=spec.nodeName%3Dnode-1"), modified, modified),
		watch("watch/path, watch=1 as well", since(alpha, "&watch=1"), changed...),
		watch("watch/path, watch=0", since(alpha, "&watch=0"), changed...),
		watch("watch/path, match of a list", since(alpha, "&resourceVersionMatch=Exact&limit=1"), changed...),
		watch("watch/path, protobuf", since(alpha, ""), changed...).accept(typeProto).typed(typeProtoWatch),
		watch("watch/path, table", since(alpha, ""), changed...).accept(typeTable),
		watch("watch/path, metadata", since(alpha, ""), changed...).accept(typeMeta),
		watch("watch/path, any version", widgetOf+"?resourceVersion=0", added, added),
		watch("watch/path, no version", widgetOf, added, added),
		watch("watch/path, no version: the end is not marked", widgetOf+"?allowWatchBookmarks=true&timeoutSeconds=1", added, added).toEOF().slow(),
		watch("watch/path, no version, watch=1: the end is marked", widgetOf+"?allowWatchBookmarks=true&watch=1", added, added, bookmark).contains(`"k8s.io/initial-events-end":"true"`),
		watch("watch/path of one custom object", widgetOf+"/red", added),
		watch("watch/path of a custom resource, table", widgetOf+"?resourceVersion=0", added, added).accept(typeTable),
		watch("watch/path of all custom objects", "/apis/conf.example.com/v1/watch/widgets?resourceVersion=0", repeat(added, 3)...),
		watch("watch/path of a custom object without namespace", "/apis/conf.example.com/v1/watch/widgets/red?resourceVersion=0", added),
		watch("watch/path, cluster-scoped", "/apis/conf.example.com/v1/watch/gadgets", added, added),
		watch("watch/path of one cluster-scoped object", "/apis/conf.example.com/v1/watch/gadgets/two", added),
		watch("watch/path of a node", "/api/v1/watch/nodes/node-1", added),
		watch("watch/path of a namespace", "/api/v1/watch/namespaces/alpha", added),
		watch("watch/path of namespaces, by name", "/api/v1/watch/namespaces?fieldSelector=metadata.name%3Dbeta", added),
		watch("watch/path of what is not there", alpha+"/none?timeoutSeconds=1").toEOF().slow(),
		watch("watch/path, ends in time", since(alpha, "&timeoutSeconds=2"), changed...).toEOF().slow(),
		watch("watch/path, too old", fmt.Sprintf("%s?resourceVersion=%d", alpha, v.Expired), failed).toEOF().contains(`"code":410`).mask(`too old resource version: \d+ \(\d+\)`),
		watch("watch/path, version zero spelt otherwise", widgetsPath+"?watch=1&resourceVersion=00&allowWatchBookmarks=true", added, added),
		bad("another name selected", alpha+"/web-02?fieldSelector=metadata.name%3Dweb-03", 400, "fieldSelector metadata.name doesn't match requested name"),
		bad("another field selected", alpha+"/web-02?fieldSelector=spec.nodeName%3Dnode-1", 400, "fieldSelector metadata.name doesn't match requested name"),
		bad("initial events", alpha+"?sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422, "sendInitialEvents is forbidden for list"),
		bad("a name without namespace", "/api/v1/watch/pods/web-02", 404),
		bad("without rights", alpha, 403, "cannot watch resource").from(alice),
		bad("without rights to all, by name", "/api/v1/watch/pods?fieldSelector=metadata.name%3Dweb-02", 403, `cannot watch resource \"pods\" in API group \"\" at the cluster scope`).from(bob),
		watch("watch/path, with rights in one namespace", since(alpha, ""), changed...).from(bob),
		watch("watch/path, with rights to one object", "/api/v1/watch/namespaces/alpha/configmaps/shared", added).from(jane),
		bad("without rights to another object", "/api/v1/watch/namespaces/alpha/configmaps/plain", 403).from(jane),
		bad("a subresource", alpha+"/web-02/status", 404),
		bad("YAML", alpha, 406).accept(typeYAML),
	}
}

// representationCases read events in all representations.
func representationCases(v Versions) []Case {
	since := func(path string, rv int64) string { return fmt.Sprintf("%s?watch=true&resourceVersion=%d", path, rv) }
	pods := func(name string) Case { return watch("watch/"+name, since(podsPath, v.Middle), changed...) }
	widgets := func(name string) Case {
		return watch("watch/"+name, widgetsPath+"?watch=1&resourceVersion=0", added, added)
	}
	return []Case{
		pods("20 protobuf").accept(typeProto).typed(typeProtoWatch),
		pods("20 protobuf, as client-go asks").accept(typeProtoWatch).typed(typeProtoWatch),
		pods("20 protobuf, preferred").accept(typeProto + ",application/json").typed(typeProtoWatch),
		pods("JSON stream").accept("application/json;stream=watch").typed(typeJSON),
		pods("JSON"),
		pods("23 table: columns come once").accept(typeTable).contains("columnDefinitions"),
		pods("23 table, as kubectl asks").accept(typeKubectl),
		pods("23 table, v1beta1").accept("application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
		watch("watch/23 table with objects", since(podsPath, v.Middle)+"&includeObject=Object", changed...).accept(typeTable),
		watch("watch/23 table without objects", since(podsPath, v.Middle)+"&includeObject=None", changed...).accept(typeTable),
		watch("watch/23 table of deletions", since(allPods, v.Middle)+"&labelSelector=app%3Ddb", gone...).accept(typeTable),
		pods("metadata").accept(typeMeta).contains(`"kind":"PartialObjectMetadata"`),
		watch("watch/metadata, as a list", since(podsPath, v.Middle)).accept(typeMetaList + ",application/json").toEOF(),
		pods("protobuf metadata").accept(typeProtoMeta).typed(typeProtoWatch),
		widgets("JSON, custom"),
		widgets("23 table, custom").accept(typeTable),
		widgets("23 table, custom, as kubectl asks").accept(typeKubectl),
		watch("watch/default columns", gadgets+"?watch=1&resourceVersion=0", added, added).accept(typeTable).contains(`"name":"Age"`),
		widgets("metadata, custom").accept(typeMeta),
		widgets("22 protobuf metadata, custom").accept(typeProtoMeta).typed(typeProtoWatch),
		widgets("22 as the garbage collector asks").accept(typeProtoMeta + "," + typeMeta + ",application/json").typed(typeProtoWatch),
		widgets("21 custom resource takes JSON").accept(typeProto + ",application/json").typed(typeJSON),
		watch("watch/deprecated version", "/apis/conf.example.com/v1beta1/namespaces/alpha/widgets?watch=1&resourceVersion=0", added, added),
		watch("watch/72 Audit-Id", widgetsPath+"?watch=1&resourceVersion=0", added, added).header("Audit-Id", "a-b-c"),
	}
}

// rejectedWatchCases are watches that are rejected.
func rejectedWatchCases(v Versions) []Case {
	bad := func(name, query string, status int, text ...string) Case {
		c := fails("watch/"+name, podsPath+"?watch=1&timeoutSeconds=2&"+query, status, text...)
		c.Watch, c.Count = true, 1
		return c
	}
	custom := func(name, query string, status int, text ...string) Case {
		c := bad(name, query, status, text...)
		c.Path = widgetsPath + "?watch=1&timeoutSeconds=2&" + query
		return c
	}
	return []Case{
		bad("initial events without match", "sendInitialEvents=true", 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
		bad("initial events with exact match", "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5", 422),
		bad("match without initial events", "resourceVersionMatch=NotOlderThan&resourceVersion=5", 422, "forbidden for watch unless sendInitialEvents is provided"),
		bad("initial events with continue", fmt.Sprintf("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=%s", makeToken(v.Middle, "/x\x00")), anyStatus),
		bad("version no number", "resourceVersion=abc", anyStatus),
		bad("initial events, version no number", "resourceVersion=abc&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", anyStatus),
		bad("timeoutSeconds no number", "timeoutSeconds=abc", anyStatus),
		bad("label selector", "resourceVersion=0&labelSelector=a%3Db%3Dc", 400),
		bad("field selector", "resourceVersion=0&fieldSelector=a", 400),
		bad("YAML", "resourceVersion=0", 406).accept(typeYAML),
		bad("unknown media type", "resourceVersion=0", 406).accept("image/png"),
		bad("table in protobuf", "resourceVersion=0", 406).accept("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"),
		bad("bad includeObject", "resourceVersion=0&includeObject=Everything", anyStatus).accept(typeTable),
		bad("POST", "resourceVersion=0", anyStatus).method("POST"),
		bad("63 without rights", "resourceVersion=0", 403, `pods is forbidden: User \"alice\" cannot watch resource \"pods\" in API group \"\" in the namespace \"alpha\"`).from(alice),
		bad("63 without rights, table", "resourceVersion=0", 403, `"kind":"Status"`).from(alice).accept(typeKubectl),
		bad("62 invalid token", "resourceVersion=0", 401).from(nobody),
		custom("custom resource in protobuf", "resourceVersion=0", 406).accept(typeProto),
		custom("custom resource, version no number", "resourceVersion=abc", anyStatus),
		custom("custom resource, initial events without match", "sendInitialEvents=true", 422),
		custom("custom resource, YAML", "resourceVersion=0", 406).accept(typeYAML),
		fails("watch/unknown resource", "/api/v1/things?watch=1", 404),
		fails("watch/unknown resource, custom group", "/apis/conf.example.com/v1/things?watch=1", 404),
	}
}
