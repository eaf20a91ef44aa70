package conformance

import (
	"fmt"
	"net/url"
)

const (
	podsPath    = "/api/v1/namespaces/alpha/pods"
	allPods     = "/api/v1/pods"
	widgetsPath = "/apis/conf.example.com/v1/namespaces/alpha/widgets"
	allWidgets  = "/apis/conf.example.com/v1/widgets"
	gadgets     = "/apis/conf.example.com/v1/gadgets"
)

// listCases cover the matrix of version, match and limit.
func listCases(env *Env) []Case {
	v := env.Versions
	var out []Case
	for _, path := range []string{podsPath, allPods, widgetsPath, gadgets} {
		at := func(query string, args ...any) string { return path + "?" + fmt.Sprintf(query, args...) }
		out = append(out,
			get("list/unset "+path, path),
			get("list/empty parameters "+path, at("resourceVersion=&continue=&labelSelector=&fieldSelector=")),
			fresh("list/any "+path, at("resourceVersion=0")),
			fresh("list/any, not older "+path, at("resourceVersion=0&resourceVersionMatch=NotOlderThan")),
			fresh("list/16 any with limit is the full list "+path, at("resourceVersion=0&limit=1")),
			fresh("list/16 any, not older, with limit "+path, at("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1")),
			fresh("list/not older, by default "+path, at("resourceVersion=%d", v.Middle)),
			fresh("list/not older "+path, at("resourceVersion=%d&resourceVersionMatch=NotOlderThan", v.Middle)),
			get("list/not older than the newest "+path, at("resourceVersion=%d&resourceVersionMatch=NotOlderThan", v.Seeded)),
			fresh("list/not older than a lost version "+path, at("resourceVersion=%d", v.Expired)),
			get("list/exact "+path, at("resourceVersion=%d&resourceVersionMatch=Exact", v.Middle)).contains(fmt.Sprintf(`"resourceVersion":"%d"`, v.Middle)),
			get("list/exact, newest "+path, at("resourceVersion=%d&resourceVersionMatch=Exact", v.Seeded)),
			get("list/exact with limit "+path, at("resourceVersion=%d&resourceVersionMatch=Exact&limit=1", v.Middle)),
			get("list/exact by limit "+path, at("resourceVersion=%d&limit=1", v.Middle)),
			fails("list/4 exact version too old "+path, at("resourceVersion=%d&resourceVersionMatch=Exact", v.Expired), 410, `"reason":"Expired"`),
			fails("list/4 exact by limit too old "+path, at("resourceVersion=%d&limit=2", v.Expired), 410, `"reason":"Expired"`),
			fails("list/19 future version "+path, at("resourceVersion=%d", v.Seeded+100000), 504,
				"Too large resource version", "ResourceVersionTooLarge").mask(`current: \d+`).slow(),
			fails("list/19 future version, not older "+path, at("resourceVersion=%d&resourceVersionMatch=NotOlderThan&limit=5", v.Seeded+100000), 504,
				"Too large resource version").mask(`current: \d+`).slow(),
			fails("list/exact future version "+path, at("resourceVersion=%d&resourceVersionMatch=Exact", v.Seeded+100000), 504,
				"Too large resource version").mask(`current: \d+`).slow(),
			get("list/negative limit is none "+path, at("limit=-1&resourceVersion=%d&resourceVersionMatch=Exact", v.Seeded)),
			fresh("list/timeoutSeconds is ignored "+path, at("timeoutSeconds=1&resourceVersion=0")),
			either("list/80 HEAD "+path, path).method("HEAD"),
			fresh("list/pretty "+path, at("pretty=true&resourceVersion=0")),
			fresh("list/yaml, any "+path, at("resourceVersion=0")).accept(typeYAML).typed(typeYAML),
			fresh("list/yaml metadata "+path, at("resourceVersion=0")).accept("application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").typed(typeYAML),
			fresh("list/yaml, pretty means nothing "+path, at("resourceVersion=0&pretty=true")).accept(typeYAML),
			fresh("list/yaml, compressed "+path, at("resourceVersion=0")).accept(typeYAML).header("Accept-Encoding", "gzip"),
			get("list/yaml "+path, at("resourceVersion=%d&resourceVersionMatch=Exact", v.Seeded)).accept(typeYAML).typed(typeYAML),
		)
		out = append(out, invalidListCases(path, v)...)
	}
	return append(out,
		fresh("list/empty namespace", "/api/v1/namespaces/empty/pods?resourceVersion=0").contains(`"items":[]`),
		fresh("list/missing namespace", "/api/v1/namespaces/none/pods?resourceVersion=0").contains(`"items":[]`),
		fresh("list/empty namespace, custom", "/apis/conf.example.com/v1/namespaces/empty/widgets?resourceVersion=0").contains(`"items":[]`),
		fresh("list/empty namespace, table", "/api/v1/namespaces/empty/pods?resourceVersion=0").accept(typeTable).contains(`"rows":[]`),
		fresh("list/empty namespace, protobuf", "/api/v1/namespaces/empty/pods?resourceVersion=0").accept(typeProto),
		fresh("list/deprecated version", "/apis/conf.example.com/v1beta1/widgets?resourceVersion=0").contains("v1beta1"),
		fresh("list/68 gzip above 128 KiB", allPods+"?resourceVersion=0").header("Accept-Encoding", "gzip"),
		fresh("list/68 gzip among others", allPods+"?resourceVersion=0").header("Accept-Encoding", "br, gzip"),
		fresh("list/68 no gzip below 128 KiB", allWidgets+"?resourceVersion=0").header("Accept-Encoding", "gzip"),
		fresh("list/68 gzip with a q value is not heard", allPods+"?resourceVersion=0").header("Accept-Encoding", "gzip;q=1.0"),
		fresh("list/68 identity", allPods+"?resourceVersion=0").header("Accept-Encoding", "identity"),
		fresh("list/68 gzip of a table", allPods+"?resourceVersion=0").accept(typeTable).header("Accept-Encoding", "gzip"),
		fresh("list/68 gzip of protobuf", allPods+"?resourceVersion=0").accept(typeProto).header("Accept-Encoding", "gzip"),
		get("list/68 gzip, forwarded", allPods).header("Accept-Encoding", "gzip"),
		fails("list/timeout no duration", podsPath+"?resourceVersion=0&timeout=abc", 400, "invalid timeout specified in the request URL"),
		fresh("list/72 Audit-Id is echoed", podsPath+"?resourceVersion=0").header("Audit-Id", "11111111-2222-3333-4444-555555555555"),
		get("list/72 Audit-Id is echoed, forwarded", podsPath).header("Audit-Id", "11111111-2222-3333-4444-555555555555"),
	)
}

// invalidListCases are lists that validation rejects.
func invalidListCases(path string, v Versions) []Case {
	at := func(query string, args ...any) string { return path + "?" + fmt.Sprintf(query, args...) }
	bad := func(name, query string, status int, text ...string) Case {
		return fails("list/"+name+" "+path, path+"?"+query, status, text...)
	}
	return []Case{
		bad("version no number", "resourceVersion=abc", 400, "invalid resource version"),
		bad("version negative", "resourceVersion=-1", 400),
		bad("version too long", "resourceVersion=99999999999999999999", 400),
		bad("exact version no number", "resourceVersion=abc&resourceVersionMatch=Exact", 400),
		bad("match without version", "resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion is provided"),
		bad("match not older without version", "resourceVersionMatch=NotOlderThan", 422, "forbidden unless resourceVersion is provided"),
		bad("exact zero", "resourceVersion=0&resourceVersionMatch=Exact", 422, `is forbidden for resourceVersion \"0\"`),
		bad("unknown match", "resourceVersion=0&resourceVersionMatch=Foo", 422, "supported values"),
		bad("unknown match and no version", "resourceVersionMatch=Foo", 422),
		bad("match with continue", "resourceVersion=0&resourceVersionMatch=NotOlderThan&continue="+makeToken(v.Middle, "x\x00"), 422, "forbidden when continue is provided"),
		bad("initial events", "sendInitialEvents=true&resourceVersion=0", 422, "sendInitialEvents is forbidden for list"),
		bad("initial events false", "sendInitialEvents=false", 422, "sendInitialEvents is forbidden for list"),
		bad("limit empty", "limit=", 400, "strconv.ParseInt"),
		bad("limit no number", "limit=abc", 400, "strconv.ParseInt"),
		bad("limit too large a number", "limit=99999999999999999999", 400),
		bad("timeoutSeconds no number", "timeoutSeconds=abc", 400, "strconv.ParseInt"),
		bad("several faults", "limit=abc&timeoutSeconds=abc&labelSelector=a,,", 400),
		bad("label selector", "resourceVersion=0&labelSelector="+url.QueryEscape("a in (b"), 400),
		bad("label selector with a bad value", "resourceVersion=0&labelSelector="+url.QueryEscape("a=b c!"), 400),
		bad("field selector", "resourceVersion=0&fieldSelector=metadata.name", 400),
		bad("field selector with a bad operator", "resourceVersion=0&fieldSelector="+url.QueryEscape("metadata.name>a"), 400),
		fresh("list/bool parameters that are none "+path, at("resourceVersion=0&watch=false&allowWatchBookmarks=maybe")),
	}
}
