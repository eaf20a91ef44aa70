package conformance

import (
	"fmt"
	"net/url"
	"slices"
)

// shardOf returns the parameter that selects the hashes of a field in [first, end), in sixteenths
// of the range.
func shardOf(field string, first, end int) string {
	bound := func(n int) string { return fmt.Sprintf("0x%x000000000000000", n) }
	return "shardSelector=" + url.QueryEscape(fmt.Sprintf("shardRange(object.metadata.%s, '%s', '%s')", field, bound(first), bound(end)))
}

// shardCases list shards. The oracle needs the feature gate ShardedListAndWatch.
func shardCases(env *Env) []Case {
	v := env.Versions
	half, all, none := shardOf("uid", 0, 8), shardOf("uid", 0, 16), shardOf("uid", 3, 3)
	spaces := shardOf("namespace", 8, 16)
	some := "shardSelector=" + url.QueryEscape("shardRange(object.metadata.uid,'0x0000000000000000','0x4000000000000000')||shardRange( object.metadata.uid , '0x3000000000000000', '0x5000000000000000' ) || shardRange(object.metadata.uid, '0xa000000000000000', '0x10000000000000000')")
	out := []Case{
		get("shard/most recent", allPods+"?"+half).contains(`"shardInfo":{"selector":"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"}`),
		get("shard/most recent, the other", allPods+"?"+shardOf("uid", 8, 16)).contains(`"shardInfo"`),
		get("shard/most recent, in a namespace", podsPath+"?"+half),
		get("shard/most recent, custom", allWidgets+"?"+half),
		get("shard/most recent, cluster-scoped", gadgets+"?"+half),
		fresh("shard/any version", allPods+"?resourceVersion=0&"+half),
		fresh("shard/all", allPods+"?resourceVersion=0&"+all).contains("web-00", "db-05", "shardInfo"),
		fresh("shard/several ranges", allPods+"?resourceVersion=0&"+some).contains("|| shardRange"),
		fresh("shard/by namespace", allPods+"?resourceVersion=0&"+spaces),
		fresh("shard/by namespace, the other", allPods+"?resourceVersion=0&"+shardOf("namespace", 0, 8)),
		fresh("shard/by namespace, in a namespace", podsPath+"?resourceVersion=0&"+spaces),
		fresh("shard/by namespace, cluster-scoped", gadgets+"?resourceVersion=0&"+spaces),
		fresh("shard/not older", fmt.Sprintf("%s?resourceVersion=%d&%s", allPods, v.Middle, half)),
		get("shard/exact", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&%s", allPods, v.Middle, half)),
		fresh("shard/with a label selector", allPods+"?resourceVersion=0&labelSelector=tier%3Dback&"+half),
		fresh("shard/with a field selector", allPods+"?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-2&"+half),
		fresh("shard/of one", podsPath+"?resourceVersion=0&fieldSelector=metadata.name%3Dweb-02&"+half),
		fresh("shard/empty parameter", podsPath+"?resourceVersion=0&shardSelector=").contains("web-02"),
		fresh("shard/an object has none", podPath+"?resourceVersion=0&"+half),
		fresh("shard/protobuf", allPods+"?resourceVersion=0&"+half).accept(typeProto),
		fresh("shard/table", allPods+"?resourceVersion=0&"+half).accept(typeTable),
		fresh("shard/metadata", allPods+"?resourceVersion=0&"+half).accept(typeMetaList),
		fresh("shard/protobuf metadata", allPods+"?resourceVersion=0&"+half).accept(typeProtoMetaList),
		fresh("shard/pretty", allPods+"?resourceVersion=0&pretty=true&"+half),
		fresh("shard/gzip", allPods+"?resourceVersion=0&"+all).header("Accept-Encoding", "gzip"),
		fresh("shard/custom", allWidgets+"?resourceVersion=0&"+all).contains("red"),
		fresh("shard/custom table", allWidgets+"?resourceVersion=0&"+all).accept(typeTable),
		fresh("shard/nothing there", "/api/v1/namespaces/empty/pods?resourceVersion=0&"+half).contains(`"items":[]`),
		get("shard/pages", allPods+"?limit=7&"+half).walk(),
		get("shard/pages in a namespace", podsPath+"?limit=3&"+half).walk(),
		get("shard/pages of an exact version", fmt.Sprintf("%s?limit=5&resourceVersion=%d&%s", allPods, v.Middle, half)).walk(),
		get("shard/pages with a label selector", allPods+"?limit=3&labelSelector=tier%3Dback&"+half).walk(),
		get("shard/pages with a field selector", allPods+"?limit=3&fieldSelector=spec.nodeName%3Dnode-2&"+all).walk(),
		get("shard/pages by namespace", allPods+"?limit=9&"+shardOf("namespace", 0, 16)).walk(),
		get("shard/pages, tables", allPods+"?limit=7&"+half).accept(typeTable).walk(),
		fresh("shard/pages without a watch cache", "/api/v1/events?limit=1&"+all),
		get("shard/inconsistent continuation", podsPath+"?limit=5&continue="+makeToken(-1, "/web-05\x00")+"&"+half),
		fails("shard/expired token", podsPath+"?limit=5&continue="+makeToken(v.Expired, "/web-05\x00")+"&"+half, 410, `"continue":"`),
		fails("shard/exact version too old", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&%s", podsPath, v.Expired, half), 410, `"reason":"Expired"`),
		fails("shard/future version", fmt.Sprintf("%s?resourceVersion=%d&%s", podsPath, v.Seeded+100000, half), 504, "Too large resource version").mask(`current: \d+`).slow(),
		fails("shard/unknown resource", "/api/v1/things?"+half, 404),
		fails("shard/unknown parameter and no selector", podsPath+"?x=y&"+none, 500, "invalid shard selector: "),
		fails("shard/bad limit", podsPath+"?limit=abc&"+half, 400, "strconv.ParseInt"),
		fails("shard/bad field selector", podsPath+"?resourceVersion=0&fieldSelector=foo%3Dbar&"+none, 400, "field label not supported"),
		fails("shard/bad version", podsPath+"?resourceVersion=abc&"+none, 500, "invalid shard selector: "),
		fails("shard/without rights", podsPath+"?"+none, 403).from(alice),
		get("shard/yaml", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&%s", podsPath, v.Seeded, half)).accept(typeYAML),
	}
	for _, bad := range []string{
		"x", " ", "1 + 2", "shardRange()", "shardRange(object.metadata.uid, '0x0', '0x8')", "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x0000000000000000')", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') &&",
	} {
		q := "&shardSelector=" + url.QueryEscape(bad)
		out = append(out,
			fails("shard/no selector "+bad, allPods+"?resourceVersion=0"+q, 500, "invalid shard selector: "),
			fails("shard/no selector, custom "+bad, allWidgets+"?resourceVersion=0"+q, 500, "invalid shard selector: "),
			fails("shard/no selector of a watch "+bad, allPods+"?watch=1&resourceVersion=0"+q, 500, "invalid shard selector: "),
		)
	}
	return slices.Concat(out, shardWatchCases(v))
}

// shardWatchCases watch shards. The number of events is that of the oracle.
func shardWatchCases(v Versions) []Case {
	half, all := shardOf("uid", 0, 8), shardOf("uid", 0, 16)
	whatever := func(name, path string) Case {
		return watch("shard/"+name, path+"&timeoutSeconds=2").count(1).toEOF().slow()
	}
	since := fmt.Sprintf("%s?watch=1&resourceVersion=%d&", allPods, v.Middle)
	const initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	return []Case{
		whatever("watch", since+half),
		whatever("watch of the other", since+shardOf("uid", 8, 16)),
		watch("shard/watch of all", since+all, slices.Concat(repeat(modified, 5), gone, []string{modified})...),
		whatever("watch by namespace", since+shardOf("namespace", 0, 8)),
		whatever("watch by namespace, the other", since+shardOf("namespace", 8, 16)),
		whatever("watch with a label selector", since+half+"&labelSelector=tier%3Dfront"),
		whatever("watch, protobuf", since+half).accept(typeProto),
		whatever("watch, table", since+all).accept(typeTable),
		whatever("watch of any version", allPods+"?watch=1&resourceVersion=0&"+half),
		whatever("watch by its path", fmt.Sprintf("/api/v1/watch/pods?resourceVersion=%d&%s", v.Middle, half)),
		watch("shard/initial events and their end", widgetsPath+"?watch=1&"+all+initial, added, added, bookmark).contains(`"k8s.io/initial-events-end":"true"`),
		whatever("initial events", allPods+"?watch=1&"+half+initial),
	}
}
