package conformance

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// OriginScenarios returns scenarios for servers that implement the whole API. A gateway only
// forwards these requests.
func OriginScenarios() []Scenario {
	return append(append(append(definitionScenarios(), accessScenarios()...), serviceScenarios()...), validationScenarios()...)
}

// DiscoveryScenarios returns scenarios that read every discovery and schema document of every group
// and version.
func DiscoveryScenarios(oracle *rest.Config) ([]Scenario, error) {
	client, err := discovery.NewDiscoveryClientForConfig(oracle)
	if err != nil {
		return nil, err
	}
	groups, err := client.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	documents := Scenario{Name: "discovery/documents", Steps: []Step{
		read("/api"), read("/apis"), read("/api/v1"), read("/").ignoringBody(), // the health checks differ
		read("/api").accept(aggregatedV2), read("/apis").accept(aggregatedV2),
	}}
	schemas := Scenario{Name: "discovery/schemas", Steps: []Step{
		read("/openapi/v3"), read("/openapi/v3/version"), read("/openapi/v3/api/v1"), read("/openapi/v2"), read("/openapi/v2").accept(openAPIProto),
	}}
	for _, g := range groups.Groups {
		if g.Name == "" {
			continue
		}
		documents.Steps = append(documents.Steps, read("/apis/"+g.Name))
		for _, v := range g.Versions {
			documents.Steps = append(documents.Steps, read("/apis/"+v.GroupVersion))
			schemas.Steps = append(schemas.Steps, read("/openapi/v3/apis/"+v.GroupVersion))
		}
	}
	return []Scenario{documents, schemas}, nil
}

const (
	crds      = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	ownGroup  = "{ns}.example.com"
	ownThings = "/apis/{ns}.example.com/v1/namespaces/{ns}/things"
)

// definition returns a CustomResourceDefinition of things.{ns}.example.com.
func definition(versions string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.` + ownGroup + `"},"spec":{"group":"` + ownGroup +
		`","scope":"Namespaced","names":{"plural":"things","kind":"Thing","shortNames":["th"]},"versions":[` + versions + `]}}`
}

func version(name, schema, more string) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":%s}%s}`, name, name == "v1", schema, more)
}

const thingSchema = `{"type":"object","properties":{"spec":{"type":"object","required":["a"],"x-kubernetes-validations":[{"rule":"self.n <= 10","message":"n is too large"},{"rule":"self.fixed == oldSelf.fixed","message":"fixed is fixed"}],` +
	`"properties":{"a":{"type":"string","enum":["x","y"]},"n":{"type":"integer","default":3,"minimum":0},"fixed":{"type":"string","default":"f"},` +
	`"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"v":{"type":"string"}}}},` +
	`"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"port":{"x-kubernetes-int-or-string":true},"nullable":{"type":"string","nullable":true},` +
	`"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"embedded":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},` +
	`"status":{"type":"object","properties":{"ready":{"type":"boolean"},"replicas":{"type":"integer"}}}}}`

const thingMore = `,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.replicas"}},` +
	`"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".spec.a"}],"selectableFields":[{"jsonPath":".spec.a"}]`

func thing(name, spec string) string {
	return `{"apiVersion":"` + ownGroup + `/v1","kind":"Thing","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

// patiently retries the step, for changes that take effect asynchronously: a new definition is
// served, a new permission is effective.
func (s Step) patiently() Step {
	s.Timeout = 10 * time.Second
	return s
}

func definitionScenarios() []Scenario {
	v1beta1 := version("v1beta1", thingSchema, thingMore+`,"deprecated":true,"deprecationWarning":"use v1"`)
	return []Scenario{
		{"definitions/52 a life", []Step{
			post(crds, definition(version("v1", thingSchema, thingMore)+","+v1beta1)),
			read(ownThings).patiently(),
			read(ownThings + "/none").status(404),
			post(ownThings, thing("one", `{"a":"x"}`)).as("one").contains(`"n":3`),
			post(ownThings, thing("one", `{"a":"x"}`)).rejected(409),
			post(ownThings, thing("two", `{"a":"z"}`)).rejected(422, "Unsupported value"),
			post(ownThings, thing("two", `{}`)).rejected(422, "Required value"),
			post(ownThings, thing("two", `{"a":"x","n":11}`)).rejected(422, "n is too large"),
			post(ownThings, thing("two", `{"a":"x","n":"no"}`)).rejected(422, "must be of type integer"),
			post(ownThings, thing("two", `{"a":"x","set":["a","a"]}`)).rejected(422, "Duplicate value"),
			post(ownThings, thing("two", `{"a":"x","list":[{"name":"a"},{"name":"a"}]}`)).rejected(422, "Duplicate value"),
			post(ownThings, thing("two", `{"a":"x","embedded":{"a":1}}`)).status(422),
			post(ownThings+"?fieldValidation=Strict", thing("two", `{"a":"x","other":1}`)).rejected(400, "unknown field"),
			post(ownThings, thing("two", `{"a":"y","other":1,"free":{"kept":{"deep":[1]}},"port":"http","nullable":null}`)).as("two"),
			post(ownThings, `{"kind":"Thing","metadata":{"name":"three"}}`).status(400),
			read(ownThings).contains(`"kind":"ThingList"`),
			read(ownThings).accept(typeKubectl),
			read(ownThings + "?fieldSelector=spec.a%3Dy").contains("two"),
			read(ownThings + "?fieldSelector=spec.n%3D3").status(400),
			read(ownThings).accept(typeProto).status(406),
			read("/apis/" + ownGroup + "/v1beta1/namespaces/{ns}/things/one"),
			merge(ownThings+"/one", `{"spec":{"n":4}}`).contains(`"generation":2`),
			merge(ownThings+"/one", `{"spec":{"fixed":"g"}}`).rejected(422, "fixed is fixed"),
			merge(ownThings+"/one/status", `{"status":{"ready":true,"replicas":2},"spec":{"n":5}}`).contains(`"n":4`),
			read(ownThings + "/one/scale").contains(`"replicas":4`),
			put(ownThings+"/one/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"one","namespace":"{ns}"},"spec":{"replicas":6}}`),
			apply(ownThings+"/three?fieldManager=a", "apiVersion: {ns}.example.com/v1\nkind: Thing\nmetadata: {name: three}\nspec: {a: x, list: [{name: p, v: '1'}]}\n").status(201),
			apply(ownThings+"/three?fieldManager=b", "apiVersion: {ns}.example.com/v1\nkind: Thing\nmetadata: {name: three}\nspec: {list: [{name: q, v: '1'}]}\n"),
			apply(ownThings+"/three?fieldManager=b", "apiVersion: {ns}.example.com/v1\nkind: Thing\nmetadata: {name: three}\nspec: {list: [{name: p, v: '2'}]}\n").rejected(409, "FieldManagerConflict"),
			apply(ownThings+"/three?fieldManager=b", "apiVersion: {ns}.example.com/v1\nkind: Thing\nmetadata: {name: three}\nspec: {undeclared: 1}\n").whatever(),
			read("/apis/" + ownGroup), read("/apis/" + ownGroup + "/v1"), read("/apis/" + ownGroup + "/v1beta1"),
			read(crds + "/things." + ownGroup).contains("Established"),
			read(crds + "/things." + ownGroup).accept(typeKubectl),
			remove(ownThings + "?fieldSelector=spec.a%3Dy"),
			read(ownThings),
			patch(mergePatch, crds+"/things."+ownGroup, `{"spec":{"names":{"shortNames":["thg"]}}}`),
			remove(crds + "/things." + ownGroup + "?includeObject=None").accept(typeTable), // the order of managedFields depends on the second in which they are written
		}},
		{"definitions/refused", []Step{
			post(crds, definition(version("v1", `{"type":"object","properties":{"a":{"properties":{"b":{"type":"string"}}}}}`, ""))).rejected(422, "must not be empty"),
			post(crds, definition(version("v2", thingSchema, ""))).status(422),
			post(crds, definition(version("v1", thingSchema, "")+","+version("v1", thingSchema, ""))).status(422),
			post(crds, strings.Replace(definition(version("v1", thingSchema, "")), `"name":"things.`, `"name":"thing.`, 1)).status(422),
			post(crds, definition(version("v1", `{"type":"object","x-kubernetes-validations":[{"rule":"self.nothing > 1"}]}`, ""))).rejected(422, "undefined field"),
			post(crds, definition(version("v1", `{"type":"object","properties":{"a":{"type":"string","default":1}}}`, ""))).rejected(422, "must be of type string"),
			post(crds, definition(version("v1", `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`, ""))).status(422),
			post(crds, strings.ReplaceAll(definition(version("v1", thingSchema, "")), ownGroup, "things.k8s.io")).rejected(422, "api-approved.kubernetes.io"),
			post(crds, definition(`{"name":"v1","served":true,"storage":true}`)).rejected(422, "Required value"),
			post(crds, definition(version("v1", thingSchema, `,"selectableFields":[{"jsonPath":".spec.none"}]`))).status(422),
			post(crds, definition(version("v1", thingSchema, `,"additionalPrinterColumns":[{"name":"A","type":"nothing","jsonPath":".x"}]`))).status(422),
			read(crds + "/none").status(404),
			read("/apis/" + ownGroup + "/v1").status(404),
		}},
	}
}

const (
	rbac     = "/apis/rbac.authorization.k8s.io/v1"
	roles    = rbac + "/namespaces/{ns}/roles"
	bindings = rbac + "/namespaces/{ns}/rolebindings"
	reviews  = "/apis/authorization.k8s.io/v1"
)

func role(name, rules string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"` + name + `"},"rules":` + rules + `}`
}

func binding(name, roleName, user string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"` +
		roleName + `"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + user + `"}]}`
}

func (s Step) ignoringBody() Step {
	s.IgnoreBody = true
	return s
}

func (s Step) by(user string) Step {
	s.As = user
	return s
}

func (s Step) impersonating(headers map[string]string) Step {
	s.Header = headers
	return s
}

func accessScenarios() []Scenario {
	sar := func(user, attributes string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"` + user + `",` + attributes + `}}`
	}
	self := `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"{ns}"}}}`
	return []Scenario{
		{"access/61 reviews", []Step{
			post(reviews+"/subjectaccessreviews", sar("alice", `"resourceAttributes":{"verb":"get","resource":"pods","namespace":"{ns}"}`)).contains(`"allowed":false`),
			post(reviews+"/subjectaccessreviews", sar("bob", `"resourceAttributes":{"verb":"list","resource":"pods","namespace":"alpha"}`)).contains(`"allowed":true`),
			post(reviews+"/subjectaccessreviews", sar("x", `"groups":["system:authenticated"],"nonResourceAttributes":{"verb":"get","path":"/openapi/v2"}`)).contains(`"allowed":true`),
			post(reviews+"/subjectaccessreviews", sar("x", `"nonResourceAttributes":{"verb":"get","path":"/healthz"}`)),
			post(reviews+"/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{}}`).status(422),
			post(reviews+"/selfsubjectaccessreviews", self),
			post(reviews+"/selfsubjectaccessreviews", self).by(alice),
			post(reviews+"/selfsubjectaccessreviews", self).by(anonymous).status(403),
			post(reviews+"/selfsubjectaccessreviews", self).by(alice).accept(typeProto),
			post(reviews+"/namespaces/{ns}/localsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"{ns}"},"spec":{"user":"alice","resourceAttributes":{"verb":"get","resource":"pods","namespace":"{ns}"}}}`),
			post("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`).by(jane),
			post("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`).by(carol),
			post("/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"wrong"}}`).contains(`"error"`), // 77
			post("/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{}}`).whatever(),
			read(reviews + "/subjectaccessreviews").status(405),
		}},
		{"access/63 refusals", []Step{
			read(pods).by(alice).rejected(403, `cannot list resource \"pods\"`),
			read(pods + "/one").by(alice).status(403), read(pods + "/one/log").by(alice).status(403),
			read("/api/v1/nodes").by(alice).rejected(403, "at the cluster scope"),
			read(deploys).by(jane).status(403), read(ownThings).by(jane).status(403),
			read("/metrics").by(alice).status(403), read("/nothing/here").by(alice).status(403), read("/nothing/here").status(404),
			read(pods).by(nobody).rejected(401, "Unauthorized"), read(pods).by(anonymous).status(403),
			read("/api").by(alice), read("/version").by(anonymous).ignoringBody(), // the build differs
			read("/healthz").by(anonymous),
			remove(pods).by(alice).status(403),
			patch(mergePatch, pods+"/x", `{}`).by(alice).status(403),
			apply(configMaps+"/x?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n").by(alice).status(403),
		}},
		{"access/60 health checks", []Step{
			read("/livez").by(anonymous).contains("ok"), read("/readyz").by(anonymous).contains("ok"), read("/healthz").by(alice).contains("ok"),
			read("/livez").by(nobody).status(401), post("/livez", `{}`).by(alice).status(403), post("/livez", `{}`).status(200),
			read("/livez/ping").by(anonymous).rejected(403, `cannot get path \"/livez/ping\"`), read("/readyz/etcd").by(alice).status(403),
			read("/livez/ping").contains("ok"), read("/livez/log").contains("ok"), read("/readyz/etcd").contains("ok"), read("/readyz/etcd-readiness"),
			read("/readyz/informer-sync").contains("ok"), read("/readyz/shutdown").contains("ok"), read("/healthz/autoregister-completion").contains("ok"),
			read("/livez/poststarthook/rbac/bootstrap-roles").contains("ok"), read("/readyz/poststarthook/bootstrap-controller").contains("ok"),
			read("/livez/none").status(404), read("/livez/shutdown").status(404), read("/livez?exclude=etcd").contains("ok"),
			read("/readyz?exclude=none").contains("ok"), read("/readyz?verbose").ignoringBody(), // the parts differ
			read("/metrics/slis").ignoringBody(), read("/metrics/slis").by(alice).status(403),
		}},
		{"access/60 pages", []Step{
			read("/flagz").contains("apiserver flagz").ignoringBody(), read("/statusz").contains("/flagz /healthz").ignoringBody(), // the flags and times differ
			read("/flagz").by(alice).rejected(403, `cannot get path \"/flagz\"`), read("/statusz").by(anonymous).status(403),
			read("/flagz").accept(typeJSON).status(406), read("/flagz/x").status(404),
		}},
		{"access/64 roles and escalation", []Step{
			post(roles, role("reader", `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list"]}]`)),
			post(roles, role("author", `[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"verbs":["create","get","list","update"]},{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`)),
			post(bindings, binding("authors", "author", "alice")),
			post(roles, role("own", `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]`)).by(alice).patiently().status(201),
			post(roles, role("more", `[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]`)).by(alice).rejected(403, "attempting to grant RBAC permissions not currently held"),
			post(bindings, binding("mine", "reader", "alice")).by(alice).rejected(403, "attempting to grant RBAC permissions"),
			post(bindings, binding("own", "own", "bob")).by(alice),
			read(configMaps + "/none").by(alice).status(404),
			read(configMaps).by(alice).status(403),
			merge(bindings+"/own", `{"roleRef":{"name":"reader"}}`).rejected(422, "field is immutable"),
			post(roles, role("bad", `[{"apiGroups":[""],"resources":["pods"],"verbs":[]}]`)).status(422),
			post(roles, role("bad", `[{"nonResourceURLs":["/x"],"verbs":["get"]}]`)).status(422),
			put(roles+"/created-by-put", role("created-by-put", `[]`)).status(201),
			read(roles), read(roles).accept(typeKubectl), read(bindings).accept(typeKubectl),
		}},
		{"access/65 impersonation", []Step{
			read(pods).impersonating(map[string]string{"Impersonate-User": "alice"}).rejected(403, `User \"alice\" cannot list`),
			read("/api/v1/namespaces/alpha/pods/none").impersonating(map[string]string{"Impersonate-User": "bob"}).whatever(),
			read(pods).impersonating(map[string]string{"Impersonate-Group": "dev"}).whatever(),
			read(pods).by(alice).impersonating(map[string]string{"Impersonate-User": "bob"}).status(403),
			post("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`).
				impersonating(map[string]string{"Impersonate-User": "u", "Impersonate-Group": "g", "Impersonate-Uid": "1", "Impersonate-Extra-Scopes": "s"}),
			post("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`).
				impersonating(map[string]string{"Impersonate-User": "system:serviceaccount:{ns}:default"}),
		}},
		{"access/service accounts and tokens", []Step{
			post("/api/v1/namespaces/{ns}/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"one"}}`),
			post("/api/v1/namespaces/{ns}/serviceaccounts/none/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`).status(404),
			post("/api/v1/namespaces/{ns}/serviceaccounts/one/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":5}}`).status(422),
			post("/api/v1/namespaces/{ns}/serviceaccounts/one/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"none"}}}`).status(404),
			post("/api/v1/namespaces/{ns}/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad"},"type":"kubernetes.io/dockerconfigjson","data":{}}`).status(422),
			post("/api/v1/namespaces/{ns}/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"fixed"},"immutable":true,"data":{"a":"eA=="}}`),
			merge("/api/v1/namespaces/{ns}/secrets/fixed", `{"data":{"a":"eQ=="}}`).rejected(422, "field is immutable"),
		}},
	}
}

const (
	services   = "/api/v1/namespaces/{ns}/services"
	namespaces = "/api/v1/namespaces"
)

func service(name, spec string) string {
	return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

func podNamed(name, spec string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

func serviceScenarios() []Scenario {
	return []Scenario{
		{"services/allocation", []Step{
			post(services, service("plain", `{"ports":[{"port":80}],"selector":{"a":"b"}}`)).as("plain").contains("clusterIP"),
			post(services, service("node", `{"type":"NodePort","ports":[{"port":80}]}`)).contains("nodePort"),
			post(services, service("balanced", `{"type":"LoadBalancer","ports":[{"port":80,"name":"a"},{"port":81,"name":"b"}],"externalTrafficPolicy":"Local"}`)),
			post(services, service("outside", `{"clusterIP":"10.9.9.9","ports":[{"port":80}]}`)).rejected(422, "Invalid value"),
			post(services, service("nonsense", `{"clusterIP":"nonsense","ports":[{"port":80}]}`)).status(422),
			post(services, service("far-port", `{"type":"NodePort","ports":[{"port":80,"nodePort":80}]}`)).rejected(422, "not in the valid range"),
			post(services, service("no-ports", `{}`)).status(422),
			post(services, service("two-names", `{"ports":[{"port":80},{"port":81}]}`)).status(422),
			post(services, service("headless", `{"clusterIP":"None","ports":[{"port":80}]}`)),
			post(services, service("external", `{"type":"ExternalName","externalName":"x.example.com"}`)),
			// The address of the service "kubernetes", which is never allocated to "plain".
			merge(services+"/plain", `{"spec":{"clusterIP":"10.0.0.1"}}`).rejected(422, "may not change once set"),
			merge(services+"/plain", `{"spec":{"type":"NodePort"}}`).contains("nodePort"),
			merge(services+"/plain", `{"spec":{"type":"ClusterIP","ports":[{"port":80}]}}`).whatever(),
			merge(services+"/balanced/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`),
			put(services+"/put", service("put", `{"ports":[{"port":80}]}`)).status(201),
			read(services).accept(typeKubectl),
			read(services + "?fieldSelector=spec.type%3DExternalName"),
			remove(services + "/plain"), remove(services + "/node"), remove(services), read(services),
		}},
		{"namespaces/life", []Step{
			post(namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}-more"}}`).contains("kubernetes.io/metadata.name"),
			post(namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"UPPER"}}`).status(422),
			read(namespaces + "/{ns}-more"), read(namespaces + "/{ns}-more/status"),
			merge(namespaces+"/{ns}-more", `{"spec":{"finalizers":[]}}`),
			merge(namespaces+"/{ns}-more", `{"metadata":{"labels":{"a":"b"}}}`),
			remove(namespaces+"/default").rejected(403, "this namespace may not be deleted"),
			remove(namespaces + "/kube-system").status(403),
			remove(namespaces + "/{ns}-more").contains("Terminating"),
			remove(namespaces + "/{ns}-more").whatever(),
			post(namespaces+"/{ns}-more/configmaps", configMap).rejected(403, "NamespaceTerminating"),
			apply(namespaces+"/{ns}-more/configmaps/x?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n").status(403),
			put(namespaces+"/{ns}-more/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}-more"},"spec":{"finalizers":[]}}`),
			read(namespaces + "/{ns}-more").status(404),
		}},
		{"pods/subresources", []Step{
			post(pods, podNamed("one", `{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}`)).as("one"),
			read(pods + "/one").accept(typeKubectl), read(pods + "/one/status"), read(pods + "/one/log").whatever(),
			read(pods + "/one/ephemeralcontainers"), read(pods + "/one/resize"),
			patch(strategicPatch, pods+"/one/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"debug","image":"d"}]}}`),
			patch(strategicPatch, pods+"/one/resize", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`).whatever(),
			patch(strategicPatch, pods+"/one", `{"spec":{"containers":[{"name":"c","image":"j"}]}}`),
			merge(pods+"/one", `{"spec":{"nodeName":"n"}}`).rejected(422, "pod updates may not change fields"),
			merge(pods+"/one/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]},"metadata":{"labels":{"s":"1"}}}`),
			post(pods+"/one/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"one"},"target":{"kind":"Nothing","name":"n"}}`).whatever(),
			post("/api/v1/namespaces/{ns}/bindings", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"one"},"target":{"kind":"Node","name":"n"}}`).whatever(),
			read(pods + "?fieldSelector=spec.nodeName%3Dn").contains("one"),
			read(pods+"?fieldSelector=spec.nothing%3Dn").rejected(400, "field label not supported"),
			post("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"pdb"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"s":"1"}}}}`),
			post(pods+"/one/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"one"}}`).status(429),
			post(pods+"/one/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"two"}}`).whatever(),
			remove(pods + "/one?gracePeriodSeconds=-1").whatever(),
			remove(pods + "/one").with(`{"gracePeriodSeconds":0}`),
			post(pods+"/none/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"none"},"target":{"kind":"Node","name":"n"}}`).status(404),
			post(pods+"/none/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"none"}}`).status(404),
		}},
		{"watch/what was written", []Step{
			post(configMaps, configMap).as("one"),
			merge(configMaps+"/one", `{"data":{"k":"w"}}`),
			merge(configMaps+"/one", `{"metadata":{"labels":{"app":"b"}}}`),
			post(configMaps, named(configMap, "two")),
			remove(configMaps + "/two"),
			read(configMaps + "?watch=1&timeoutSeconds=1&resourceVersion={rv:one}").contains("DELETED"),
			read(configMaps + "?watch=1&timeoutSeconds=1&resourceVersion={rv:one}&labelSelector=app%3Da"),
			read(configMaps + "?watch=1&timeoutSeconds=1&resourceVersion={rv:one}").accept(typeKubectl),
			read(configMaps + "?watch=1&timeoutSeconds=1").contains("ADDED"),
			read(configMaps + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").contains("initial-events-end"),
			read("/api/v1/watch/namespaces/{ns}/configmaps/one?timeoutSeconds=1"),
			read(configMaps + "?resourceVersion={rv:one}&resourceVersionMatch=Exact").contains(`"k":"v"`),
			read(configMaps + "?limit=1").whatever(),
		}},
		{"quota and limits", []Step{
			post("/api/v1/namespaces/{ns}/limitranges", `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"max":{"cpu":"2"}}]}}`),
			post(pods, podNamed("defaulted", `{"containers":[{"name":"c","image":"i"}]}`)).patiently().status(201),
			post(pods, podNamed("large", `{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"3"}}}]}`)).rejected(403, "maximum cpu usage per Container is 2"),
			post(pods, podNamed("priority", `{"priorityClassName":"none","containers":[{"name":"c","image":"i"}]}`)).rejected(403, "no PriorityClass"),
			post(pods, podNamed("critical", `{"priorityClassName":"system-node-critical","containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}`)).contains("2000001000"),
		}},
	}
}

// validationScenarios create objects that validation rejects, one request each.
func validationScenarios() []Scenario {
	reject := func(path string, objects ...string) []Step {
		var out []Step
		for _, o := range objects {
			out = append(out, post(path, o).whatever())
		}
		return out
	}
	container := `"containers":[{"name":"c","image":"i"}]`
	template := `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + container + `}}`
	ap := func(group, kind, rest string) string {
		return `{"apiVersion":"` + group + `","kind":"` + kind + `","metadata":{"name":"one"},` + rest + `}`
	}
	return []Scenario{
		{"validation/pods", reject(pods,
			podNamed("a", `{}`), podNamed("a", `{"containers":[]}`), podNamed("a", `{"containers":[{"name":"c"}]}`), podNamed("a", `{"containers":[{"name":"C!","image":"i"}]}`),
			podNamed("a", `{"restartPolicy":"Sometimes",`+container+`}`), podNamed("a", `{"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]}`),
			podNamed("a", `{"containers":[{"name":"c","image":"i","ports":[{"containerPort":70000}]}]}`), podNamed("a", `{"containers":[{"name":"c","image":"i","env":[{"name":"","value":"x"}]}]}`),
			podNamed("a", `{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/x"}]}]}`), podNamed("a", `{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}`),
			podNamed("a", `{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"x"}}}]}`), podNamed("a", `{"volumes":[{"name":"v"}],`+container+`}`),
			podNamed("a", `{"dnsPolicy":"None",`+container+`}`), podNamed("a", `{"terminationGracePeriodSeconds":-1,`+container+`}`),
			podNamed("a", `{"tolerations":[{"key":"a","operator":"Nothing"}],`+container+`}`), podNamed("a", `{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}},`+container+`}`),
			podNamed("a", `{"containers":"none"}`), podNamed("a", `{"containers":[{"name":"c","image":"i","livenessProbe":{}}]}`),
			podNamed("a", `{"topologySpreadConstraints":[{"maxSkew":0,"topologyKey":"","whenUnsatisfiable":"x"}],`+container+`}`),
		)},
		{"validation/apps", append(reject(deploys,
			ap("apps/v1", "Deployment", `"spec":{}`), ap("apps/v1", "Deployment", `"spec":{"replicas":-1,`+template+`}`),
			ap("apps/v1", "Deployment", `"spec":{"strategy":{"type":"Never"},`+template+`}`), ap("apps/v1", "Deployment", `"spec":{"selector":{"matchLabels":{"a":"c"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{`+container+`}}}`),
			ap("apps/v1", "Deployment", `"spec":{"strategy":{"type":"Recreate","rollingUpdate":{}},`+template+`}`), ap("apps/v1beta1", "Deployment", `"spec":{}`), ap("apps/v1", "StatefulSet", `"spec":{}`),
		), reject("/apis/apps/v1/namespaces/{ns}/statefulsets", ap("apps/v1", "StatefulSet", `"spec":{"podManagementPolicy":"x",`+template+`}`), ap("apps/v1", "StatefulSet", `"spec":{"serviceName":"s","ordinals":{"start":-1},`+template+`}`))...)},
		{"validation/batch", append(reject("/apis/batch/v1/namespaces/{ns}/jobs",
			ap("batch/v1", "Job", `"spec":{"template":{"spec":{`+container+`}}}`), ap("batch/v1", "Job", `"spec":{"parallelism":-1,"template":{"spec":{"restartPolicy":"Never",`+container+`}}}`),
			ap("batch/v1", "Job", `"spec":{"completionMode":"Indexed","template":{"spec":{"restartPolicy":"Never",`+container+`}}}`), ap("batch/v1", "Job", `"spec":{"manualSelector":true,"template":{"spec":{"restartPolicy":"Never",`+container+`}}}`),
		), reject("/apis/batch/v1/namespaces/{ns}/cronjobs", ap("batch/v1", "CronJob", `"spec":{"schedule":"never","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",`+container+`}}}}}`),
			ap("batch/v1", "CronJob", `"spec":{"schedule":"* * * * *","timeZone":"Nowhere","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",`+container+`}}}}}`))...)},
		{"validation/policy and scaling", append(append(reject("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
			ap("policy/v1", "PodDisruptionBudget", `"spec":{"minAvailable":1,"maxUnavailable":1}`), ap("policy/v1", "PodDisruptionBudget", `"spec":{"minAvailable":"200%"}`)),
			reject("/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", ap("autoscaling/v2", "HorizontalPodAutoscaler", `"spec":{}`),
				ap("autoscaling/v2", "HorizontalPodAutoscaler", `"spec":{"scaleTargetRef":{"kind":"D","name":"d"},"minReplicas":5,"maxReplicas":1}`))...),
			reject("/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses", ap("networking.k8s.io/v1", "Ingress", `"spec":{}`), ap("networking.k8s.io/v1", "Ingress", `"spec":{"rules":[{"http":{"paths":[{"path":"x","pathType":"Prefix","backend":{}}]}}]}`),
				ap("networking.k8s.io/v1", "Ingress", `"spec":{"ingressClassName":"A B","defaultBackend":{"service":{"name":"s","port":{"number":80}}}}`))...)},
		{"validation/metadata", reject(configMaps,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a b":"c"}}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b c"}}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"a b":"c"}}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["nodomain"]}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"kind":"Pod"}]}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}]}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"e","uid":"u","controller":true},{"apiVersion":"v1","kind":"Pod","name":"f","uid":"v","controller":true}]}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":".."}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/b"}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a%b"}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a/b":"c"}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":1}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Nothing"}]}}`, `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"a"}}`, `{}`, `[]`, `"a"`, `null`, ``,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","generateName":"b","creationTimestamp":"not a time"}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","uid":"11111111-1111-1111-1111-111111111111","creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","generation":7,"selfLink":"/x"}}`,
		)},
		{"validation/parameters", []Step{
			post(configMaps+"?dryRun=Some", configMap).status(422), post(configMaps+"?fieldManager="+strings.Repeat("m", 129), configMap).status(422),
			post(configMaps+"?fieldValidation=Nothing", configMap).whatever(), post(configMaps+"?timeout=nonsense", configMap).status(400), post(configMaps+"?timeout=5s", configMap),
			post(configMaps+"/one", configMap).status(405), put(configMaps, configMap).status(405), patch(mergePatch, configMaps, `{}`).status(405),
			put(configMaps+"/none", named(configMap, "none")).status(404), put(configMaps+"/other", configMap).status(400),
			put(configMaps+"/one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","resourceVersion":"x"}}`).whatever(),
			put(configMaps+"/one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","uid":"22222222-2222-2222-2222-222222222222"}}`).whatever(),
			patch(mergePatch, configMaps+"/one?force=true", `{}`).status(422), patch(jsonPatch, configMaps+"/one", `{}`).status(400), patch(jsonPatch, configMaps+"/one", `[{"op":"fly"}]`).whatever(),
			patch(jsonPatch, configMaps+"/one", `[{"op":"remove","path":"/data/none"}]`).whatever(), patch(strategicPatch, configMaps+"/one", `{"$patch":"nothing"}`).whatever(),
			patch(strategicPatch, configMaps+"/one", `{"data":{"$patch":"replace","z":"1"}}`), merge(configMaps+"/one", `{"data":null}`), merge(configMaps+"/one", `{"kind":"Secret"}`).whatever(),
			apply(configMaps+"/one?fieldManager=m", "nonsense").whatever(), apply(configMaps+"/one?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, managedFields: [{manager: x}]}\n").status(400),
			apply(configMaps+"/one?fieldManager=m", "apiVersion: v1\nkind: Secret\nmetadata: {name: one}\n").status(400), apply(configMaps+"/one?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\nfoo: 1\n").whatever(),
			apply(configMaps+"/gone?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gone, uid: 33333333-3333-3333-3333-333333333333}\n").status(409),
			remove(configMaps + "/one").with(`{"kind":"DeleteOptions","apiVersion":"v2"}`).whatever(), remove(configMaps + "/one").with(`{"orphanDependents":true,"propagationPolicy":"Orphan"}`).status(422),
			remove(configMaps + "?limit=1"), remove(configMaps + "?labelSelector=%3D%3D").status(400), remove(configMaps + "?fieldSelector=data%3Dx").status(400), remove(configMaps + "/one?gracePeriodSeconds=x").whatever(),
			{Request: Request{Method: "HEAD", Path: configMaps}, Want: 405}, {Request: Request{Method: "OPTIONS", Path: configMaps}, Want: 405},
			read("/apis/none.example.com/v1/things").status(404), read("/api/v1/namespaces/{ns}/things").status(404), read("/apis/apps/v1/namespaces/{ns}/configmaps").status(404), read("/api/v2").status(404), read("/nothing").status(404),
		}},
	}
}
