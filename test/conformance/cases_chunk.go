package conformance

import (
	"encoding/base64"
	"fmt"
)

// chunkCases page through lists.
func chunkCases(env *Env) []Case {
	v := env.Versions
	token := makeToken(v.Middle, "/web-05\x00")
	expired := makeToken(v.Expired, "/web-05\x00")
	out := []Case{
		get("chunk/17 pages share one version", allPods+"?limit=20").walk(),
		get("chunk/17 one item a page", widgetsPath+"?limit=1").walk(),
		get("chunk/17 cluster-scoped", gadgets+"?limit=1").walk(),
		get("chunk/17 namespace", podsPath+"?limit=13").walk(),
		get("chunk/17 exact", fmt.Sprintf("%s?limit=13&resourceVersion=%d&resourceVersionMatch=Exact", podsPath, v.Middle)).walk(),
		get("chunk/17 exact by limit", fmt.Sprintf("%s?limit=30&resourceVersion=%d", allPods, v.Middle)).walk(),
		fresh("chunk/17 not older", fmt.Sprintf("%s?limit=30&resourceVersion=%d&resourceVersionMatch=NotOlderThan", allPods, v.Middle)).walk(),
		get("chunk/17 tables", allPods+"?limit=30").accept(typeTable).walk(),
		get("chunk/17 metadata", allPods+"?limit=30").accept(typeMetaList).walk(),
		get("chunk/17 tables, custom", widgetsPath+"?limit=1").accept(typeTable).walk(),
		get("chunk/17 with a label selector", allPods+"?limit=7&labelSelector=tier%3Dback").walk(),
		get("chunk/17 with a field selector", allPods+"?limit=7&fieldSelector=spec.nodeName%3Dnode-2").walk(),
		get("chunk/17 limit equal to what is left", podsPath+"?limit=40"),
		get("chunk/17 limit above what is left", podsPath+"?limit=41"),
		get("chunk/17 remainingItemCount", podsPath+"?limit=39").contains(`"remainingItemCount":1`),
		get("chunk/17 no remainingItemCount with a selector", podsPath+"?limit=3&labelSelector=app"),
		get("chunk/17 kubectl's chunks", allPods+"?limit=25").accept(typeKubectl).walk(),
		fails("chunk/18 token and version", podsPath+"?continue="+token+"&resourceVersion=5", 400, "specifying resource version is not allowed when using continue"),
		get("chunk/18 token and version 0", podsPath+"?continue="+token+"&resourceVersion=0").contains("web-06"),
		get("chunk/any version has no pages", podsPath+"?limit=3&resourceVersion=0").contains("web-39"),
		fresh("chunk/any version has pages without a watch cache", "/api/v1/events?limit=1&resourceVersion=0").contains(`"continue":"`),
		fresh("chunk/the same, walked", "/apis/events.k8s.io/v1/namespaces/alpha/events?limit=1&resourceVersion=0").walk(),
		get("chunk/18 token without limit", podsPath+"?continue="+token).contains("web-06"),
		get("chunk/start without a slash", podsPath+"?limit=5&continue="+makeToken(v.Middle, "web-05\x00")),
		either("chunk/start in another namespace", podsPath+"?limit=5&continue="+makeToken(v.Middle, "/../beta/db-05\x00")),
		either("chunk/start with the namespace", podsPath+"?limit=5&continue="+makeToken(v.Middle, "/alpha/web-05\x00")),
		either("chunk/any negative version", podsPath+"?limit=5&continue="+makeToken(-2, "/web-05\x00")),
		get("chunk/start in all namespaces", allPods+"?limit=5&continue="+makeToken(v.Middle, "/beta/db-05\x00")),
		get("chunk/start behind the end", podsPath+"?limit=5&continue="+makeToken(v.Middle, "/zzz\x00")),
		fails("chunk/4 expired token", podsPath+"?limit=5&continue="+expired, 410, `"reason":"Expired"`, "The provided continue parameter is too old", `"continue":"`),
		fails("chunk/4 expired token, custom", widgetsPath+"?limit=5&continue="+makeToken(v.Expired, "/blue\x00"), 410, `"reason":"Expired"`),
		get("chunk/73 inconsistent continuation", podsPath+"?limit=5&continue="+makeToken(-1, "/web-05\x00")).contains("web-06"),
		get("chunk/73 inconsistent continuation, then pages", podsPath+"?limit=15&continue="+makeToken(-1, "/web-05\x00")).walk(),
		get("chunk/73 inconsistent continuation without limit", podsPath+"?continue="+makeToken(-1, "/web-05\x00")),
		fails("chunk/73 the token of the refusal works", podsPath+"?limit=5&continue="+expired, 410).
			then(func(r Response) Request {
				return Request{Path: podsPath + "?limit=5&continue=" + continueToken(r.Body)}
			}),
		fails("chunk/future token", podsPath+"?limit=5&continue="+makeToken(v.Seeded+100000, "/web-05\x00"), 504, "Too large resource version").mask(`current: \d+`).slow(),
	}
	for name, bad := range map[string]string{
		"not base64":     "%21%21%21",
		"not JSON":       base64.RawURLEncoding.EncodeToString([]byte("nonsense")),
		"padded":         base64.URLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}`)),
		"unknown format": base64.RawURLEncoding.EncodeToString([]byte(`{"v":"v9","rv":5,"start":"a\u0000"}`)),
		"no format":      base64.RawURLEncoding.EncodeToString([]byte(`{"rv":5,"start":"a\u0000"}`)),
		"version zero":   makeToken(0, "a\x00"),
		"no start":       makeToken(5, ""),
		"climbing start": makeToken(5, "../secrets/x\x00"),
		"unclean start":  makeToken(5, "/alpha/../beta\x00"),
		"double slash":   makeToken(5, "//alpha\x00"),
		"empty JSON":     base64.RawURLEncoding.EncodeToString([]byte(`{}`)),
	} {
		out = append(out, fails("chunk/bad token "+name, podsPath+"?limit=5&continue="+bad, 400, "continue key is not valid"))
	}
	return out
}
