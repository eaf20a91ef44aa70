package conformance

import (
	"fmt"
	"net/http"
	"strings"
)

const (
	selfAccessPath  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	selfRulesPath   = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	selfSubjectPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// selfCases are reviews that clients request about themselves. Each is sent twice: the second
// response may come from a cache.
func selfCases() []Case {
	var out []Case
	for _, who := range []string{admin, alice, bob, jane, carol, anonymous} {
		of := len(out)
		out = append(out,
			selfAccess("self/access of "+who, `{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"alpha"}}`).from(who),
			selfAccess("self/access of "+who+", cluster-wide", `{"resourceAttributes":{"verb":"watch","resource":"pods"}}`).from(who),
			selfAccess("self/access of "+who+", path", `{"nonResourceAttributes":{"verb":"get","path":"/metrics"}}`).from(who),
			selfCase("self/rules of "+who, selfRulesPath, question("authorization.k8s.io/v1", "SelfSubjectRulesReview", `{"namespace":"alpha"}`)).from(who).ignoreBody(),
			selfCase("self/subject of "+who, selfSubjectPath, question("authentication.k8s.io/v1", "SelfSubjectReview", `{}`)).from(who),
		)
		for i := range out[of:] {
			if who == anonymous {
				out[of+i] = out[of+i].status(http.StatusForbidden)
			}
		}
	}
	pods := question("authorization.k8s.io/v1", "SelfSubjectAccessReview", `{"resourceAttributes":{"verb":"list","resource":"pods"}}`)
	for _, accept := range []string{typeYAML, typeTable, typeMeta, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", "text/plain", "*/*"} {
		out = append(out, selfCase("self/accept "+accept, selfAccessPath, pods).accept(accept).status(anyStatus))
	}
	for _, accept := range []string{typeProto, typeCBOR} { // the bodies contain times
		out = append(out, selfCase("self/accept "+accept, selfAccessPath, pods).accept(accept).status(anyStatus).ignoreBody())
	}
	for _, query := range []string{
		"pretty=true", "dryRun=All", "dryRun=none", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore", "fieldValidation=x",
		"fieldManager=me", "fieldManager=" + strings.Repeat("x", 129), "timeout=10s", "timeout=x", "unknown=1",
	} {
		for _, body := range []string{pods, strings.Replace(pods, `"spec"`, `"more":1,"spec"`, 1), strings.Replace(pods, `"spec"`, `"kind":"SelfSubjectAccessReview","spec"`, 1)} {
			out = append(out, selfCase(fmt.Sprintf("self/query %.40s with %d bytes", query, len(body)), selfAccessPath+"?"+query, body).status(anyStatus))
		}
	}
	return append(out, oddSelfCases(pods)...)
}

// oddSelfCases are unusual or invalid reviews.
func oddSelfCases(pods string) []Case {
	odd := func(name, path, body string) Case { return selfCase("self/"+name, path, body).status(anyStatus) }
	access := func(name, spec string) Case { return selfAccess("self/"+name, spec).status(anyStatus) }
	typed := func(c Case, mediaType string) Case {
		c.Type = mediaType
		return c
	}
	return []Case{
		access("nothing asked", `{}`),
		access("two things asked", `{"resourceAttributes":{"verb":"get","resource":"pods"},"nonResourceAttributes":{"verb":"get","path":"/"}}`),
		access("selectors", `{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["a"]}]}}}`),
		access("a bad selector", `{"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"requirements":[{"key":"a","operator":"Near"}]}}}`),
		access("a selector, twice", `{"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"rawSelector":"a=b","requirements":[{"key":"a","operator":"Exists"}]}}}`),
		access("somebody else's", `{"user":"bob","resourceAttributes":{"verb":"list","resource":"pods"}}`),
		odd("no JSON", selfAccessPath, `{`),
		odd("nothing", selfAccessPath, ``),
		odd("null", selfAccessPath, `null`),
		odd("a list", selfAccessPath, `[]`),
		odd("without a kind", selfAccessPath, `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`),
		odd("another kind", selfAccessPath, strings.Replace(pods, "SelfSubject", "Subject", 1)),
		odd("another version", selfAccessPath, strings.Replace(pods, "k8s.io/v1", "k8s.io/v1beta1", 1)),
		odd("another version's path", strings.Replace(selfAccessPath, "v1", "v1beta1", 1), pods),
		odd("metadata", selfAccessPath, strings.Replace(pods, `"spec"`, `"metadata":{"name":"a","creationTimestamp":"2020-01-01T00:00:00Z"},"spec"`, 1)),
		odd("a namespace", selfAccessPath, strings.Replace(pods, `"spec"`, `"metadata":{"namespace":"alpha"},"spec"`, 1)),
		odd("a status", selfAccessPath, strings.Replace(pods, `"spec"`, `"status":{"allowed":true},"spec"`, 1)).from(alice),
		odd("a slash more", selfAccessPath+"/", pods),
		odd("by its name", selfAccessPath+"/a", pods),
		odd("in a namespace", "/apis/authorization.k8s.io/v1/namespaces/alpha/selfsubjectaccessreviews", pods),
		odd("rules of no namespace", selfRulesPath, question("authorization.k8s.io/v1", "SelfSubjectRulesReview", `{}`)),
		typed(odd("in YAML", selfAccessPath, "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nspec: {resourceAttributes: {verb: list, resource: pods}}\n"), typeYAML),
		typed(odd("in text", selfAccessPath, pods), "text/plain"),
		typed(odd("in JSON with a charset", selfAccessPath, pods), "application/json; charset=utf-8"),
		odd("a GET", selfAccessPath, "").method(http.MethodGet),
		odd("a PUT", selfAccessPath, pods).method(http.MethodPut),
		odd("from nobody", selfAccessPath, pods).from(nobody),
		odd("by k9s", selfAccessPath, pods).header("User-Agent", "k9s/v0.50"),
		odd("by a browser", selfAccessPath, pods).header("User-Agent", "Mozilla/5.0 (X11)").header("Origin", "https://example.com"),
		odd("impersonated", selfAccessPath, pods).header("Impersonate-User", alice),
		odd("impersonated in a group", selfSubjectPath, question("authentication.k8s.io/v1", "SelfSubjectReview", `{}`)).header("Impersonate-User", alice).header("Impersonate-Group", "dev"),
		odd("impersonated with extra fields", selfSubjectPath, question("authentication.k8s.io/v1", "SelfSubjectReview", `{}`)).header("Impersonate-User", "zoe").header("Impersonate-Extra-Scopes", "a"),
		odd("an impostor's as alice", selfAccessPath, pods).from(impostor).header("Impersonate-User", alice),
		odd("an impostor's as admin", selfAccessPath, pods).from(impostor).header("Impersonate-User", admin),
		odd("as nobody in a group", selfAccessPath, pods).header("Impersonate-Group", "dev"),
	}
}

func question(groupVersion, kind, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":%s}`, groupVersion, kind, spec)
}

func selfAccess(name, spec string) Case {
	return selfCase(name, selfAccessPath, question("authorization.k8s.io/v1", "SelfSubjectAccessReview", spec))
}

// selfCase sends a review.
func selfCase(name, path, body string) Case {
	c := get(name, path).status(201).mask(`"?(creationTimestamp|time)"?: ?"[^"]*"`)
	c.Method, c.Type, c.Body = http.MethodPost, typeJSON, body
	return c
}

// twice returns the cases, each sent a second time.
func twice(cases []Case) []Case {
	out := make([]Case, len(cases))
	for i, c := range cases {
		again := c.Request
		out[i] = c.then(func(Response) Request { return again })
	}
	return out
}
