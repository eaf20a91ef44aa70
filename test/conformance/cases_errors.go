package conformance

import "strings"

// errorCases are requests for nonexistent or unsupported resources, paths and methods.
func errorCases(*Env) []Case {
	out := []Case{
		fails("error/66 unknown group", "/apis/none.example.com", 404, "404 page not found"),
		fails("error/66 unknown group and version", "/apis/none.example.com/v1", 404, "404 page not found"),
		fails("error/66 resource of an unknown group", "/apis/none.example.com/v1/things?resourceVersion=0", 404, "404 page not found"),
		fails("error/66 unknown version", "/apis/apps/v9/deployments?resourceVersion=0", 404),
		fails("error/66 unknown version of a custom group", "/apis/conf.example.com/v9/widgets?resourceVersion=0", 404),
		fails("error/66 unknown resource", "/api/v1/things?resourceVersion=0", 404, `"reason":"NotFound"`, "the server could not find the requested resource"),
		fails("error/66 unknown resource of a group", "/apis/apps/v1/things?resourceVersion=0", 404, "the server could not find the requested resource"),
		fails("error/66 unknown resource in a namespace", "/apis/apps/v1/namespaces/alpha/things?resourceVersion=0", 404),
		fails("error/66 unknown resource of a custom group", "/apis/conf.example.com/v1/things?resourceVersion=0", 404),
		fails("error/66 unknown path", "/nonsense", 404),
		fails("error/66 unknown path below a resource", podPath+"/a/b/c", 404),
		fails("error/66 resource in the singular", "/api/v1/namespaces/alpha/pod?resourceVersion=0", 404),
		fails("error/66 resource by short name", "/api/v1/po?resourceVersion=0", 404),
		fails("error/66 resource in capitals", "/api/v1/Pods?resourceVersion=0", 404),
		fails("error/66 unknown core version", "/api/v2/pods?resourceVersion=0", 404),
		either("error/cluster-scoped resource in a namespace", "/api/v1/namespaces/alpha/nodes?resourceVersion=0"),
		either("error/cluster-scoped custom resource in a namespace", "/apis/conf.example.com/v1/namespaces/alpha/gadgets?resourceVersion=0"),
		either("error/namespaced object without namespace", "/api/v1/pods/web-02?resourceVersion=0"),
		either("error/namespaced custom object without namespace", "/apis/conf.example.com/v1/widgets/red?resourceVersion=0"),
		either("error/group that exists in the wrong place", "/api/apps/v1/deployments?resourceVersion=0"),
		either("error/trailing slash", podsPath+"/?resourceVersion=0"),
		either("error/double slash", "/api/v1//pods?resourceVersion=0"),
		either("error/dot segments", "/api/v1/namespaces/alpha/../beta/pods?resourceVersion=0"),
		either("error/escaped slash in a name", "/api/v1/namespaces/alpha/pods/a%2Fb?resourceVersion=0"),
		either("error/escaped name", "/api/v1/namespaces/alpha/pods/web%2D02?resourceVersion=0"),
		either("error/empty namespace", "/api/v1/namespaces//pods?resourceVersion=0"),
		fails("error/namespaces in a namespace", "/api/v1/namespaces/alpha/namespaces?resourceVersion=0", 404),
		fails("error/a namespace in a namespace", "/api/v1/namespaces/alpha/namespaces/alpha?resourceVersion=0", 404),
		fails("error/watch namespaces in a namespace", "/api/v1/namespaces/alpha/namespaces?watch=1&resourceVersion=0&timeoutSeconds=1", 404),
		fails("error/path behind a name", podPath+"//log?resourceVersion=0", 404),
		either("error/slash behind a name", podPath+"/?resourceVersion=0"),
		either("error/dots as a name", "/api/v1/namespaces/alpha/pods/%2e%2e?resourceVersion=0"),
		either("error/unknown parameter", podsPath+"?resourceVersion=0&unknown=1"),
		either("error/many parameters", podsPath+"?limit=2"+strings.Repeat("&a", 100)),
		either("error/selector of many terms", podsPath+"?resourceVersion=0&labelSelector=app+in+%28"+strings.Repeat("x%2C", 200)+"web%29"),
		either("error/bad escape in the query", podsPath+"?resourceVersion=0&labelSelector=%zz"),
		either("error/semicolon in the query", podsPath+"?resourceVersion=0;limit=1"),
		either("error/parameter given twice", podsPath+"?resourceVersion=0&resourceVersion=abc"),
		either("error/limit given twice", podsPath+"?limit=2&limit=3"),
		either("error/body of a GET", podsPath+"?resourceVersion=0"),
		either("error/root", "/"),
		either("error/api with a trailing slash", "/api/"),
		fails("error/create-only resource", "/api/v1/namespaces/alpha/pods/web-02/binding", 405, "MethodNotAllowed"),
		fails("error/review is not read", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
		fails("error/77 token review is not read", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
		either("error/component statuses", "/api/v1/componentstatuses").ignoreBody(),
		either("error/empty object name", "/apis/apps/v1/namespaces/alpha/deployments/?resourceVersion=0"),
		either("error/timeout", podsPath+"?resourceVersion=0&timeout=10s"),
		either("error/timeout zero", podsPath+"?resourceVersion=0&timeout=0"),
		either("error/timeout negative", podsPath+"?resourceVersion=0&timeout=-1s"),
	}
	// Not TRACE: a server that forwards it would disclose to the client which headers it adds.
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO"} {
		out = append(out,
			either("error/80 method "+m+" on a list of all namespaces", allPods).method(m),
			either("error/80 method "+m+" on a custom list of all namespaces", allWidgets).method(m),
			either("error/80 method "+m+" on discovery", "/api/v1").method(m),
		)
	}
	for _, m := range []string{"HEAD", "OPTIONS", "POST", "FOO"} {
		out = append(out,
			either("error/80 method "+m+" on an object", podPath).method(m),
			either("error/80 method "+m+" on a custom object", widgetPath).method(m),
		)
	}
	return out
}
