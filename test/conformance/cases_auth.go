package conformance

import "fmt"

// authCases are requests of users with different permissions.
func authCases(env *Env) []Case {
	var out []Case
	for _, rv := range []string{"", "?resourceVersion=0"} {
		for _, accept := range []string{"", typeKubectl, typeTable, typeProto, typeMetaList + ",application/json", typeYAML} {
			out = append(out, fails(fmt.Sprintf("auth/63 list refused %s%s", accept, rv), podsPath+rv, 403).from(alice).accept(accept))
		}
		out = append(out,
			fails("auth/63 list of all refused"+rv, allPods+rv, 403, `pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope`).from(alice),
			fails("auth/63 get refused"+rv, podPath+rv, 403, `pods \"web-02\" is forbidden: User \"alice\" cannot get resource \"pods\" in API group \"\" in the namespace \"alpha\"`).from(alice),
			fails("auth/63 get of nothing refused"+rv, podPath+"none"+rv, 403).from(alice),
			fails("auth/63 custom list refused"+rv, widgetsPath+rv, 403, `widgets.conf.example.com is forbidden`).from(alice),
			fails("auth/63 grouped list refused"+rv, "/apis/apps/v1/deployments"+rv, 403, `in API group \"apps\"`).from(alice),
			fails("auth/63 cluster-scoped refused"+rv, "/api/v1/nodes"+rv, 403, "at the cluster scope").from(alice),
			fails("auth/63 namespace refused"+rv, "/api/v1/namespaces/alpha"+rv, 403).from(alice),
			fails("auth/63 subresource refused"+rv, podPath+"/status"+rv, 403, `pods/status`).from(alice),
			fails("auth/63 log refused"+rv, podPath+"/log"+rv, 403, `pods/log`).from(bob),
			fails("auth/63 unknown resource refused"+rv, "/api/v1/namespaces/alpha/things"+rv, 403).from(alice),
			fails("auth/63 unknown group refused"+rv, "/apis/none.example.com/v1/things"+rv, 403).from(alice),
			fails("auth/63 other namespace refused"+rv, "/api/v1/namespaces/beta/pods"+rv, 403, "RBAC: ").from(bob),
			fails("auth/63 secrets refused"+rv, "/api/v1/namespaces/alpha/secrets"+rv, 403).from(bob),
			fails("auth/63 unnamed list refused"+rv, "/api/v1/namespaces/alpha/configmaps"+rv, 403).from(jane),
			fails("auth/63 other name refused"+rv, "/api/v1/namespaces/alpha/configmaps/plain"+rv, 403).from(jane),
			fails("auth/63 with a body of HTML letters"+rv, "/api/v1/namespaces/%3Ca%26b%3E/pods"+rv, 403).from(alice),
			either("auth/allowed in a namespace"+rv, podsPath+rv).from(bob).status(200),
			get("auth/allowed get"+rv, podPath+rv).from(bob),
			get("auth/allowed by name, get"+rv, "/api/v1/namespaces/alpha/configmaps/shared"+rv).from(jane),
			either("auth/allowed by certificate's group"+rv, "/api/v1/namespaces/alpha/configmaps/shared"+rv).from(carol).status(200),
			fails("auth/63 refused by certificate"+rv, podsPath+rv, 403, `User \"carol\"`).from(carol),
			fails("auth/62 invalid token"+rv, podsPath+rv, 401, `"reason":"Unauthorized"`).from(nobody),
			fails("auth/62 invalid token, table"+rv, podsPath+rv, 401, `"kind":"Status"`).from(nobody).accept(typeKubectl),
			fails("auth/62 invalid token, protobuf"+rv, podsPath+rv, 401).from(nobody).accept(typeProto),
			fails("auth/62 invalid token of an object"+rv, podPath+rv, 401).from(nobody),
			fails("auth/anonymous"+rv, podsPath+rv, 403, `User \"system:anonymous\"`).from(anonymous),
			fails("auth/anonymous, custom"+rv, widgetsPath+rv, 403, `User \"system:anonymous\"`).from(anonymous),
		)
		out = append(out, impersonationCases(rv)...)
	}
	byName := "?fieldSelector=metadata.name%3Dshared&resourceVersion=0"
	return append(out,
		fresh("auth/55 list by name is allowed by name", "/api/v1/namespaces/alpha/configmaps"+byName).from(jane).contains("shared"),
		watch("auth/55 watch by name is allowed by name", "/api/v1/namespaces/alpha/configmaps"+byName+"&watch=1", added).from(jane),
		fails("auth/55 list by another name", "/api/v1/namespaces/alpha/configmaps?fieldSelector=metadata.name%3Dplain&resourceVersion=0", 403).from(jane),
		fails("auth/55 list by name and more", "/api/v1/configmaps"+byName, 403).from(jane),
		watch("auth/watch is allowed", fmt.Sprintf("%s?watch=1&resourceVersion=%d", podsPath, env.Versions.Middle), changed...).from(bob),
		either("auth/62 no bearer", podsPath+"?resourceVersion=0").from(anonymous).header("Authorization", "Basic YTpi"),
		either("auth/62 empty bearer", podsPath+"?resourceVersion=0").from(anonymous).header("Authorization", "Bearer "),
		either("auth/62 bearer in small letters", podsPath+"?resourceVersion=0").from(anonymous).header("Authorization", "bearer "+env.Users[admin].Token),
		either("auth/62 bearer with two words", podsPath+"?resourceVersion=0").from(anonymous).header("Authorization", "Bearer a b"),
		fails("auth/front-proxy headers without its certificate", podsPath+"?resourceVersion=0", 403, `User \"alice\"`).from(alice).
			header("X-Remote-User", "admin").header("X-Remote-Group", "system:masters"),
		fails("auth/front-proxy headers and nothing else", podsPath+"?resourceVersion=0", 403, `User \"system:anonymous\"`).from(anonymous).
			header("X-Remote-User", "admin").header("X-Remote-Group", "system:masters"),
		fails("auth/front-proxy headers, forwarded", podsPath, 403, `User \"alice\"`).from(alice).
			header("X-Remote-User", "admin").header("X-Remote-Group", "system:masters"),
		reviewCase("auth/61 SelfSubjectAccessReview", "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
			`{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"alpha"}}`).from(bob).contains(`"allowed":true`),
		reviewCase("auth/61 SelfSubjectAccessReview, refused", "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
			`{"resourceAttributes":{"verb":"list","resource":"secrets"}}`).from(alice).contains(`"allowed":false`),
		reviewCase("auth/61 SelfSubjectRulesReview", "authorization.k8s.io/v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", `{"namespace":"alpha"}`).from(alice).ignoreBody(),
		reviewCase("auth/61 SelfSubjectReview", "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", `{}`).from(jane).contains(`"username":"jane"`, `"dev"`),
		reviewCase("auth/61 SelfSubjectReview by certificate", "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", `{}`).from(carol).contains(`"username":"carol"`),
		reviewCase("auth/77 TokenReview of a bad token", "authentication.k8s.io/v1", "tokenreviews", "TokenReview", `{"token":"nonsense"}`).contains(`"error":`),
		reviewCase("auth/77 TokenReview of a good token", "authentication.k8s.io/v1", "tokenreviews", "TokenReview",
			fmt.Sprintf(`{"token":%q}`, env.Users[alice].Token)).contains(`"authenticated":true`),
		reviewCase("auth/61 SelfSubjectReview, impersonated", "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", `{}`).
			header("Impersonate-User", "system:serviceaccount:alpha:builder").contains("system:serviceaccounts:alpha"),
		reviewCase("auth/61 SelfSubjectReview, impersonated with extras", "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", `{}`).
			header("Impersonate-User", "zoe").header("Impersonate-Group", "g1").header("Impersonate-Uid", "u1").header("Impersonate-Extra-Scopes", "a").contains(`"zoe"`),
	)
}

// impersonationCases are requests that impersonate a user.
func impersonationCases(rv string) []Case {
	as := func(c Case, user string) Case { return c.header("Impersonate-User", user) }
	return []Case{
		as(fails("auth/65 admin as alice"+rv, podsPath+rv, 403, `User \"alice\"`), alice),
		as(either("auth/65 admin as bob"+rv, podsPath+rv).status(200), bob),
		as(fails("auth/65 admin as bob elsewhere"+rv, "/api/v1/namespaces/beta/pods"+rv, 403, `User \"bob\"`), bob),
		as(get("auth/65 admin as group"+rv, "/api/v1/namespaces/alpha/configmaps/shared"+rv), "someone").header("Impersonate-Group", "dev"),
		as(fails("auth/65 admin as a service account"+rv, podsPath+rv, 403, "system:serviceaccount:alpha:builder"), "system:serviceaccount:alpha:builder"),
		as(fails("auth/65 admin as anonymous"+rv, podsPath+rv, 403, "system:anonymous"), "system:anonymous"),
		as(fails("auth/65 impostor as alice"+rv, podsPath+rv, 403, `User \"alice\"`).from(impostor), alice),
		as(either("auth/65 impostor as bob"+rv, podsPath+rv).from(impostor).status(200), bob),
		as(fails("auth/65 impostor as admin"+rv, podsPath+rv, 403, "impersonate").from(impostor), "admin"),
		as(fails("auth/65 impostor as bob in a group"+rv, podsPath+rv, 403, "impersonate").from(impostor).header("Impersonate-Group", "system:masters"), bob),
		as(fails("auth/65 alice as bob"+rv, podsPath+rv, 403, "impersonate").from(alice), bob),
		as(fails("auth/65 certificate as bob"+rv, podsPath+rv, 403, "impersonate").from(carol), bob),
		as(fails("auth/65 nobody as bob"+rv, podsPath+rv, 401).from(nobody), bob),
		as(fails("auth/65 anonymous as bob"+rv, podsPath+rv, 403, "impersonate").from(anonymous), bob),
		fails("auth/65 group without user"+rv, podsPath+rv, 400).header("Impersonate-Group", "dev"),
		fails("auth/65 uid without user"+rv, podsPath+rv, 400).header("Impersonate-Uid", "u"),
		fails("auth/65 extra without user"+rv, podsPath+rv, 400).header("Impersonate-Extra-Scopes", "a"),
		as(fails("auth/65 alice as bob, table"+rv, podsPath+rv, 403, `"kind":"Status"`).from(alice).accept(typeKubectl), bob),
	}
}

// reviewCase sends a review by POST, which changes nothing.
func reviewCase(name, groupVersion, resource, kind, spec string) Case {
	c := get(name, "/apis/"+groupVersion+"/"+resource)
	c.Method, c.Type, c.Want = "POST", typeJSON, 201
	c.Body = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"spec":%s}`, groupVersion, kind, spec)
	return c.mask(`"creationTimestamp":"[^"]*"`).mask(`"time":"[^"]*"`)
}
