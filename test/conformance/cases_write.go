package conformance

import (
	"fmt"
	"strings"
)

// Requests that write, for scenarios and live watches.

func post(path, body string) Step {
	return Step{Request: Request{Method: "POST", Path: path, Type: typeJSON, Body: body}, Want: 201}
}

func put(path, body string) Step {
	return Step{Request: Request{Method: "PUT", Path: path, Type: typeJSON, Body: body}}
}

func remove(path string) Step { return Step{Request: Request{Method: "DELETE", Path: path}} }

func read(path string) Step { return Step{Request: Request{Path: path}} }

func patch(kind, path, body string) Step {
	return Step{Request: Request{Method: "PATCH", Path: path, Type: kind, Body: body}}
}

const (
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

func merge(path, body string) Step { return patch(mergePatch, path, body) }

func apply(path, body string) Step { return patch(applyPatch, path, body) }

func (s Step) as(name string) Step {
	s.Name = name
	return s
}

func (s Step) rejected(status int, text ...string) Step {
	s.Want, s.WantText = status, text
	return s
}

func (s Step) status(code int) Step {
	s.Want = code
	return s
}

func (s Step) contains(text ...string) Step {
	s.WantText = text
	return s
}

func (s Step) accept(mediaType string) Step {
	s.Accept = mediaType
	return s
}

func (s Step) with(body string) Step {
	s.Type, s.Body = typeJSON, body
	return s
}

const (
	configMaps = "/api/v1/namespaces/{ns}/configmaps"
	pods       = "/api/v1/namespaces/{ns}/pods"
	widgets    = "/apis/conf.example.com/v1/namespaces/{ns}/widgets"
	leases     = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
	deploys    = "/apis/apps/v1/namespaces/{ns}/deployments"

	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","labels":{"app":"a"}},"data":{"k":"v"}}`
	onePod    = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"one","labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	widget    = `{"apiVersion":"conf.example.com/v1","kind":"Widget","metadata":{"name":"one","labels":{"app":"a"}},"spec":{"color":"red","size":1}}`
	deploy    = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"one"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	lease     = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"one"},"spec":{"holderIdentity":"a"}}`
)

func named(object, name string) string { return strings.Replace(object, `"one"`, `"`+name+`"`, 1) }

// Scenarios returns scenarios that write. Reads in them request the most recent state, so they
// reflect the writes. Numbers in comments only group steps, like those in the names of cases.
func Scenarios() []Scenario {
	return append(objectScenarios(), append(patchScenarios(), lifeScenarios()...)...)
}

func objectScenarios() []Scenario {
	return []Scenario{
		{"write/9 create, read, update, conflict", []Step{
			post(configMaps, configMap).as("created"),
			post(configMaps, configMap).rejected(409, `"reason":"AlreadyExists"`),
			read(configMaps + "/one").contains(`"k":"v"`),
			put(configMaps+"/one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","resourceVersion":"{rv:created}"},"data":{"k":"w"}}`).as("updated"),
			put(configMaps+"/one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","resourceVersion":"{rv:created}"},"data":{"k":"x"}}`).rejected(409, "the object has been modified"),
			put(configMaps+"/one", configMap),
			read(configMaps).contains(`"kind":"ConfigMapList"`),
		}},
		{"write/10 no-op writes keep the version", []Step{
			post(configMaps, configMap).as("created"),
			put(configMaps+"/one", configMap),
			merge(configMaps+"/one", `{"data":{"k":"v"}}`),
			read(configMaps + "/one"),
		}},
		{"write/12 generated names", []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"generated-"}}`),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"generated-"}}`),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`).rejected(422),
		}},
		{"write/creation that is refused", []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","resourceVersion":"5"}}`).rejected(500, "resourceVersion should not be set on objects to be created"),
			post(configMaps, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`).rejected(400),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"other"}}`).rejected(400, "does not match the namespace sent on the request"),
			post(configMaps, `not JSON`).rejected(400),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"Not A Name"}}`).rejected(422),
			post("/api/v1/namespaces/none-{ns}/configmaps", configMap).rejected(404, "not found"),
			post("/api/v1/configmaps", configMap).rejected(405),
			post("/apis/conf.example.com/v1/widgets", widget).rejected(404),
			{Request: Request{Method: "POST", Path: configMaps, Type: "text/plain", Body: "hello"}, Want: 415},
			{Request: Request{Method: "POST", Path: configMaps, Body: configMap}, Want: 201},
			{Request: Request{Method: "POST", Path: configMaps, Type: typeYAML, Body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\n"}, Want: 201},
		}},
		{"write/67 bodies over the limit", []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"`+strings.Repeat("x", 3145728)+`"}}`).rejected(413, "Request entity too large: limit is 3145728"),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"`+strings.Repeat("x", 2<<20)+`"}}`).rejected(422),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":"`+strings.Repeat("x", 900000)+`"}}`),
		}},
		{"write/47 unknown fields", []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"foo":1}`),
			post(configMaps+"?fieldValidation=Strict", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y"},"foo":1}`).rejected(400, "strict decoding error"),
			post(configMaps+"?fieldValidation=Ignore", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"z"},"foo":1}`),
			post(widgets, `{"apiVersion":"conf.example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"unknown":1}}`),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":{"a":"1","a":"2"}}`),
		}},
		{"write/44 dry run", []Step{
			post(configMaps+"?dryRun=All", configMap),
			read(configMaps + "/one").status(404),
			post(configMaps, configMap),
			merge(configMaps+"/one?dryRun=All", `{"data":{"k":"w"}}`),
			remove(configMaps + "/one?dryRun=All"),
			read(configMaps + "/one"),
			remove(configMaps + "/one?dryRun=Some").status(422),
			remove(configMaps + "/one?dryRun=All").with(`{"apiVersion":"v1","kind":"DeleteOptions"}`), // 31: the options in the body replace those in the query, so this deletes
			read(configMaps + "/one").status(404),
		}},
		{"write/39 custom resources", []Step{
			post(widgets, widget).as("created").contains(`"generation":1`),
			put(widgets+"/one", widget).rejected(422, "must be specified for an update"), // 40
			merge(widgets+"/one", `{"spec":{"size":2}}`).contains(`"generation":2`),
			merge(widgets+"/one/status", `{"status":{"size":2}}`).contains(`"generation":2`), // 38, 49
			patch(strategicPatch, widgets+"/one", `{"spec":{"size":3}}`).rejected(415),       // 36
			read(widgets + "/one/scale").contains(`"kind":"Scale"`),                          // 59
			merge(widgets+"/one/scale", `{"spec":{"replicas":5}}`),
			merge(widgets+"/one", `{"spec":{"size":-1}}`).rejected(422),
			post(widgets, `{"apiVersion":"conf.example.com/v1","kind":"Gizmo","metadata":{"name":"x"}}`).status(422),
			remove(widgets + "/one"),
			read(widgets).contains(`"items":[]`),
		}},
		{"write/representations of what was written", []Step{
			post(configMaps, configMap).accept(typeProto),
			post(configMaps, named(configMap, "two")).accept(typeMeta),
			post(widgets, widget).accept(typeTable),
			merge(widgets+"/one", `{"metadata":{"labels":{"x":"y"}}}`).accept(typeMeta),
			merge(configMaps+"/two", `{"data":{"k":"w"}}`).accept(typeYAML),
			read(configMaps).accept(typeMetaList),
		}},
		{"write/unusual creations", []Step{
			post(configMaps, configMap).accept(typeKubectl),
			post(configMaps+"?fieldManager=%ff", named(configMap, "two")),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"three"},"data":{"k":"`+strings.Repeat("v", 300<<10)+`"}}`),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"four","ownerReferences":[`+
				`{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"five","finalizers":["e.com/\u0026","e.com/a"],"annotations":{"k":"v"}}}`).whatever(),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"six","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1",`+
				`"time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]},"data":{"k":"v","l":"v"}}`),
			post(configMaps, `{"kind":"ConfigMap","metadata":{"name":"seven"},"immutable":false}`).whatever(),
			post(configMaps, `{"metadata":{"name":"eight"},"binaryData":{"k":"AAAA"}}`).whatever(),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nine"},"date":{}}`).accept(typeKubectl),
			post(configMaps+"?fieldValidation=Ignore", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ten"},"date":{}}`),
			post(configMaps, manyKeys("eleven", 30_000)), // too large for the store once it has managedFields
			read(configMaps).accept(typeMetaList),
		}},
		{"write/without rights", []Step{
			{Request: Request{Method: "POST", Path: configMaps, Type: typeJSON, Body: configMap}, As: alice, Want: 403},
			{Request: Request{Method: "DELETE", Path: configMaps + "/one"}, As: alice, Want: 403},
			{Request: Request{Method: "DELETE", Path: configMaps + "/one"}, As: nobody, Want: 401},
			{Request: Request{Method: "POST", Path: configMaps, Type: typeJSON, Body: configMap}, As: anonymous, Want: 403},
			{Request: Request{Method: "POST", Path: configMaps, Type: typeJSON, Body: configMap}, As: carol, Want: 403},
			{Request: Request{Method: "POST", Path: configMaps, Type: typeJSON, Body: configMap, Header: map[string]string{"Impersonate-User": "alice"}}, Want: 403},
			{Request: Request{Method: "POST", Path: configMaps, Type: typeJSON, Body: configMap, Header: map[string]string{"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"}}, Want: 201},
		}},
	}
}

// manyKeys returns a ConfigMap with n keys of 24 letters and empty values.
func manyKeys(name string, n int) string {
	var b strings.Builder
	b.WriteString(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"k":""`)
	for i := range n {
		fmt.Fprintf(&b, `,"key-%020d":""`, i)
	}
	b.WriteString("}}")
	return b.String()
}

func patchScenarios() []Scenario {
	return []Scenario{
		{"patch/25 every kind", []Step{
			post(pods, onePod).as("created"),
			merge(pods+"/one", `{"metadata":{"labels":{"a":"1"}}}`).as("merged"),
			merge(pods+"/one", `{"metadata":{"resourceVersion":"{rv:created}","finalizers":[]}}`).rejected(409),
			patch(jsonPatch, pods+"/one", `[{"op":"add","path":"/metadata/labels/b","value":"2"}]`),
			patch(jsonPatch, pods+"/one", `[{"op":"test","path":"/metadata/labels/b","value":"3"}]`).status(422),
			patch(strategicPatch, pods+"/one", `{"metadata":{"labels":{"c":"3"}},"spec":{"containers":[{"name":"c","image":"j"}]}}`),
			patch(strategicPatch, pods+"/one/status", `{"status":{"phase":"Running"}}`),
			patch("application/nonsense", pods+"/one", `{}`).status(415),
			merge(pods+"/none", `{}`).status(404),
			merge(pods+"/one", `nonsense`).status(400),
			merge(pods+"/one", `{"metadata":{"uid":"x"}}`).status(422),
			merge(pods+"/one", `{"metadata":{"name":"two"}}`).status(400),
		}},
		{"patch/42 server-side apply", []Step{
			apply(configMaps+"/one?fieldManager=a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: v, l: w}\n").status(201),
			apply(configMaps+"/one?fieldManager=a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: v, l: w}\n"),
			apply(configMaps+"/one?fieldManager=b", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: x}\n").rejected(409, "FieldManagerConflict"), // 43
			apply(configMaps+"/one?fieldManager=b&force=true", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: x}\n"),
			apply(configMaps+"/one?fieldManager=a", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {k: x}\n"),          // 46
			apply(configMaps+"/two?fieldManager=a&dryRun=All", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\n").status(201), // 44
			apply(configMaps+"/one", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n").rejected(422, "fieldManager"),
			apply(widgets+"/one?fieldManager=a", "apiVersion: conf.example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {color: green}\n").status(201),
			apply(widgets+"/one?fieldManager=a", "apiVersion: conf.example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {color: green}\n"),
			patch(jsonPatch, configMaps+"/one", `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`), // 48
		}},
		{"patch/37 deployment generations", []Step{
			post(deploys, deploy).contains(`"generation":1`),
			merge(deploys+"/one", `{"spec":{"replicas":2}}`).contains(`"generation":2`),
			merge(deploys+"/one", `{"metadata":{"labels":{"x":"y"}}}`).contains(`"generation":2`),
			merge(deploys+"/one/status", `{"status":{"replicas":2}}`).contains(`"generation":2`),
			read(deploys + "/one/scale").contains(`"replicas":2`),
			merge(deploys+"/one/scale", `{"spec":{"replicas":3}}`),
			merge(deploys+"/one", `{"spec":{"selector":{"matchLabels":{"a":"c"}}}}`).rejected(422, "field is immutable"), // 45
		}},
		{"patch/41 leases", []Step{
			post(leases, lease).as("created"),
			merge(leases+"/one", `{"spec":{"holderIdentity":"b"}}`),
			put(leases+"/one", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"one","resourceVersion":"{rv:created}"},"spec":{"holderIdentity":"c"}}`).rejected(409),
			put(leases+"/two", named(lease, "two")).status(201),
		}},
		{"patch/22 protobuf metadata of a custom resource", []Step{
			post(widgets, widget),
			merge(widgets+"/one", `{"metadata":{"labels":{"x":"y"}}}`).accept(typeProtoMeta + "," + typeMeta),
		}},
	}
}

func lifeScenarios() []Scenario {
	return []Scenario{
		{"life/26 finalizers", []Step{
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","finalizers":["example.com/x"]}}`),
			remove(configMaps + "/one").contains("deletionTimestamp"), // 27
			remove(configMaps + "/one").contains("deletionTimestamp"),
			post(configMaps, configMap).rejected(409, "object is being deleted"),
			merge(configMaps+"/one", `{"metadata":{"finalizers":["example.com/y"]}}`).rejected(422),
			merge(configMaps+"/one", `{"metadata":{"finalizers":null}}`),
			read(configMaps + "/one").status(404),
		}},
		{"life/28 preconditions and policies", []Step{
			post(configMaps, configMap).as("created"),
			remove(configMaps+"/one").with(`{"preconditions":{"uid":"11111111-1111-1111-1111-111111111111"}}`).rejected(409, "the UID in the precondition"),
			remove(configMaps + "/one").with(`{"preconditions":{"resourceVersion":"1"}}`).status(409),
			remove(configMaps + "/one").with(`{"preconditions":{"uid":"{uid:created}"}}`).contains(`"status":"Success"`), // 30
			remove(configMaps + "/one").status(404),
			post(configMaps, configMap),
			remove(configMaps + "/one").with(`{"propagationPolicy":"Foreground"}`).contains("foregroundDeletion"), // 29
			post(configMaps, named(configMap, "two")),
			remove(configMaps + "/two?propagationPolicy=Orphan").contains(`"orphan"`),
			remove(configMaps + "/two?propagationPolicy=Nonsense").status(422),
		}},
		{"life/32 collections", []Step{
			post(configMaps, configMap),
			post(configMaps, named(configMap, "two")),
			post(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"three"}}`),
			remove(configMaps + "?labelSelector=app%3Da").contains(`"kind":"ConfigMapList"`),
			read(configMaps).contains("three"),
			remove("/api/v1/configmaps").status(405), // 33
			remove("/api/v1/namespaces").status(405),
			remove(configMaps),
			read(configMaps).contains(`"items":[]`),
		}},
		{"life/79 pods", []Step{
			post(pods, onePod),
			post(pods+"/one/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"one"},"target":{"kind":"Node","name":"node-2"}}`).contains(`"status":"Success"`), // 58
			post(pods+"/one/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"one"},"target":{"kind":"Node","name":"node-2"}}`).rejected(409),
			remove(pods + "/one").contains("deletionTimestamp"),
			remove(pods + "/one?gracePeriodSeconds=5").contains(`"deletionGracePeriodSeconds":5`),
			remove(pods + "/one?gracePeriodSeconds=0"),
			read(pods + "/one").status(404),
			post(pods, named(onePod, "two")),
			post(pods+"/two/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"two"}}`),
			remove(pods + "/two").status(404),
		}},
		{"life/75 jobs orphan by default", []Step{
			post("/apis/batch/v1/namespaces/{ns}/jobs", `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"one"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`).as("job"),
			remove("/apis/batch/v1/namespaces/{ns}/jobs/one").contains(`"orphan"`),
		}},
		{"life/34 namespaces", []Step{
			remove("/api/v1/namespaces/{ns}").contains("Terminating"),
			post(configMaps, configMap).rejected(403, "NamespaceTerminating"),
			put("/api/v1/namespaces/{ns}/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{ns}"},"spec":{"finalizers":[]}}`), // 35
			read("/api/v1/namespaces/{ns}").status(404),
		}},
	}
}
