package conformance

import "fmt"

// objects has one object of every kind of storage: core, with a group, with field selectors of its
// own, custom, cluster-scoped.
var objects = []string{
	"/api/v1/namespaces/alpha/pods/web-02",
	"/api/v1/namespaces/alpha/pods/web-09",
	"/api/v1/namespaces/alpha/configmaps/shared",
	"/api/v1/namespaces/alpha/secrets/opaque",
	"/api/v1/namespaces/beta/services/balanced",
	"/api/v1/nodes/node-1",
	"/api/v1/namespaces/alpha",
	"/api/v1/namespaces/alpha/events/web-00.1",
	"/apis/events.k8s.io/v1/namespaces/alpha/events/web-01.1",
	"/apis/apps/v1/namespaces/alpha/deployments/web",
	"/apis/coordination.k8s.io/v1/namespaces/alpha/leases/leader",
	"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.conf.example.com",
	"/apis/conf.example.com/v1/namespaces/alpha/widgets/red",
	"/apis/conf.example.com/v1beta1/namespaces/alpha/widgets/red",
	"/apis/conf.example.com/v1/gadgets/one",
}

const (
	podPath    = "/api/v1/namespaces/alpha/pods/web-02"
	widgetPath = "/apis/conf.example.com/v1/namespaces/alpha/widgets/red"
)

func getCases(env *Env) []Case {
	var out []Case
	for _, path := range objects {
		out = append(out,
			get("get/unset "+path, path),
			get("get/any "+path, path+"?resourceVersion=0"),
			get("get/metadata "+path, path+"?resourceVersion=0").accept(typeMeta),
			get("get/protobuf metadata "+path, path+"?resourceVersion=0").accept(typeProtoMeta).typed(typeProto),
			get("get/table "+path, path+"?resourceVersion=0").accept(typeKubectl),
		)
	}
	for _, path := range []string{podPath, widgetPath} {
		out = append(out,
			get("get/not older "+path, fmt.Sprintf("%s?resourceVersion=%d", path, env.Versions.Middle)),
			get("get/not older than the newest "+path, fmt.Sprintf("%s?resourceVersion=%d", path, env.Versions.Seeded)),
			get("get/pretty "+path, path+"?resourceVersion=0&pretty=true"),
			get("get/pretty=1 "+path, path+"?resourceVersion=0&pretty=1"),
			get("get/pretty=false "+path, path+"?resourceVersion=0&pretty=false").header("User-Agent", "curl/8"),
			get("get/pretty for curl "+path, path+"?resourceVersion=0").header("User-Agent", "curl/8"),
			get("get/pretty for a browser "+path, path+"?resourceVersion=0").header("User-Agent", "Mozilla/5.0 (X11)"),
			fails("get/removed parameter "+path, path+"?resourceVersion=0&export=true", 400, "no longer supported"),
			get("get/yaml "+path, path+"?resourceVersion=0").accept(typeYAML).typed(typeYAML),
			get("get/unknown parameters "+path, path+"?resourceVersion=0&foo=bar"),
			get("get/78 watch on an object returns the object "+path, path+"?watch=1"),
			get("get/78 watch on an object from the cache "+path, path+"?watch=true&resourceVersion=0").contains(`"metadata":{`),
			fails("get/version no number "+path, path+"?resourceVersion=abc", 500, "strconv.ParseUint"),
			fails("get/negative version "+path, path+"?resourceVersion=-1", 500),
			fails("get/19 future version "+path, fmt.Sprintf("%s?resourceVersion=%d", path, env.Versions.Seeded+100000), 504,
				"Too large resource version", "ResourceVersionTooLarge").mask(`current: \d+`).slow(),
			either("get/80 HEAD "+path, path).method("HEAD"),
			either("get/80 OPTIONS "+path, path).method("OPTIONS"),
		)
	}
	return append(out, missingCases()...)
}

func missingCases() []Case {
	out := []Case{
		get("get/20 protobuf pod", podPath+"?resourceVersion=0").accept(typeProto).typed(typeProto).contains("k8s\x00"),
		get("get/20 protobuf preferred", podPath+"?resourceVersion=0").accept(typeProto + ",application/json").typed(typeProto),
		get("get/21 custom resource takes JSON", widgetPath+"?resourceVersion=0").accept(typeProto + ",application/json").typed(typeJSON),
		fails("get/custom resource has no protobuf", widgetPath+"?resourceVersion=0", 406, "only the following media types").accept(typeProto),
		get("get/deprecated version warns", "/apis/conf.example.com/v1beta1/namespaces/alpha/widgets/red?resourceVersion=0").contains("v1beta1"),
		get("get/59 scale of a deployment", "/apis/apps/v1/namespaces/alpha/deployments/web/scale").contains(`"kind":"Scale"`),
		get("get/59 scale of a custom resource", widgetPath+"/scale").contains(`"kind":"Scale"`),
		get("get/status of a pod", podPath+"/status"),
		get("get/status of a pod from the cache", podPath+"/status?resourceVersion=0"),
		get("get/status of a custom resource", widgetPath+"/status?resourceVersion=0"),
		fails("get/unknown subresource", podPath+"/nonsense", 404),
		fails("get/unknown subresource of a custom resource", widgetPath+"/nonsense?resourceVersion=0", 404),
		fails("get/no status subresource", "/apis/conf.example.com/v1/gadgets/one/status", 404),
	}
	for _, rv := range []string{"", "?resourceVersion=0"} {
		out = append(out,
			fails("get/11 missing pod"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, `"reason":"NotFound"`, `"kind":"pods"`, `pods \"none\" not found`),
			fails("get/11 missing deployment"+rv, "/apis/apps/v1/namespaces/alpha/deployments/none"+rv, 404, `deployments.apps \"none\" not found`),
			fails("get/11 missing widget"+rv, "/apis/conf.example.com/v1/namespaces/alpha/widgets/none"+rv, 404, `widgets.conf.example.com \"none\"`),
			fails("get/11 missing node"+rv, "/api/v1/nodes/none"+rv, 404, `"kind":"nodes"`),
			fails("get/11 in a missing namespace"+rv, "/api/v1/namespaces/none/configmaps/none"+rv, 404, `"kind":"configmaps"`),
			fails("get/24 an error is no table"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, `"kind":"Status"`).accept(typeKubectl),
			fails("get/24 an error is no table only"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, `"kind": "Status"`).accept(typeTable),
			fails("get/24 an error is no metadata"+rv, widgetPath+"none"+rv, 404, `"kind":"Status"`).accept(typeMeta+",application/json"),
			fails("get/an error in protobuf"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, "k8s\x00").accept(typeProto),
			fails("get/an error in protobuf, custom"+rv, widgetPath+"none"+rv, 406, "k8s\x00").accept(typeProto),
			fails("get/an error in YAML"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, "kind: Status").accept(typeYAML),
			fails("get/an error, pretty"+rv, "/api/v1/namespaces/alpha/pods/none"+rv, 404, `"kind": "Status"`).header("User-Agent", "curl/8"),
			fails("get/invalid name"+rv, "/api/v1/namespaces/alpha/pods/Not_A%20Name"+rv, 404),
		)
	}
	return out
}
