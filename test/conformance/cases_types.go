package conformance

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/seed"
)

// typesYAML holds an object of every type. Its placeholder is a word instead of {ns}, which would
// be valid YAML syntax.
//
//go:embed testdata/types.yaml
var typesYAML []byte

const namespaceWord = "NSNS"

// TypeScenarios returns a scenario for each object of testdata/types.yaml with the usual requests
// of clients. Each type must support create and get; the oracle decides which other requests it
// rejects.
func TypeScenarios(oracle *rest.Config) ([]Scenario, error) {
	s, err := seed.New(oracle)
	if err != nil {
		return nil, err
	}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(typesYAML), 4096)
	var out []Scenario
	for {
		var content map[string]any
		if err := d.Decode(&content); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("types: %w", err)
		}
		u := &unstructured.Unstructured{Object: content}
		m, err := s.Mapping(u.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		steps, err := typeSteps(u, m)
		if err != nil {
			return nil, err
		}
		out = append(out, Scenario{Name: fmt.Sprintf("types/%s %s", m.Resource.GroupVersion(), u.GetKind()+" "+strings.TrimPrefix(u.GetName(), namespaceWord+".")), Steps: steps})
	}
}

// collectionPath returns the path at which objects of a type are created.
func collectionPath(m *meta.RESTMapping) string {
	path := "/apis/" + m.Resource.Group + "/" + m.Resource.Version
	if m.Resource.Group == "" {
		path = "/api/" + m.Resource.Version
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		path += "/namespaces/{ns}"
	}
	return path + "/" + m.Resource.Resource
}

func typeSteps(u *unstructured.Unstructured, m *meta.RESTMapping) ([]Step, error) {
	status, hasStatus := u.Object["status"]
	delete(u.Object, "status")
	render := func(change func(o *unstructured.Unstructured)) (string, error) {
		o := u.DeepCopy()
		change(o)
		b, err := json.Marshal(o)
		return strings.ReplaceAll(string(b), namespaceWord, "{ns}"), err
	}
	var bodies [5]string
	for i, change := range []func(o *unstructured.Unstructured){
		func(*unstructured.Unstructured) {},
		func(o *unstructured.Unstructured) { o.SetResourceVersion("{rv:created}") },
		func(o *unstructured.Unstructured) { o.SetName("no/name") },
		func(o *unstructured.Unstructured) { o.Object["unknown"] = "x" },
		func(o *unstructured.Unstructured) {
			o.Object = map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": map[string]any{
				"name": o.GetName(), "annotations": map[string]any{"applied": "yes"}}}
		},
	} {
		var err error
		if bodies[i], err = render(change); err != nil {
			return nil, err
		}
	}
	whole, stale, misnamed, unknown, applied := bodies[0], bodies[1], bodies[2], bodies[3], bodies[4]
	all := collectionPath(m)
	one := all + "/" + strings.ReplaceAll(u.GetName(), namespaceWord, "{ns}")
	steps := []Step{
		post(all+"?dryRun=All", whole),
		post(all, misnamed).whatever(),
		post(all+"?fieldValidation=Strict", unknown).rejected(400, "strict decoding error"),
		post(all, whole).as("created"),
		post(all, whole).rejected(409, "already exists"),
		read(one),
		read(one).accept(typeKubectl),
		read(one).accept(typeMeta),
		read(one).accept(typeProtoMeta),
		read(one).accept(typeYAML),
		merge(one, `{"metadata":{"labels":{"changed":"yes"}}}`),
		merge(one, `{"metadata":{"labels":{"changed":"yes"}}}`),
		put(one, stale).rejected(409, "the object has been modified"),
		put(one, whole).whatever(),
		patch(strategicPatch, one, `{"metadata":{"annotations":{"merged":"yes"}}}`),
		patch(jsonPatch, one, `[{"op":"test","path":"/kind","value":"Nothing"}]`).status(422),
		apply(one+"?fieldManager=applier", applied),
		apply(one+"?fieldManager=applier", applied),
		apply(one+"?fieldManager=other&dryRun=All", whole).whatever(),
		read(one + "/status").whatever(),
		merge(one+"/status", `{"metadata":{"labels":{"by-status":"yes"}}}`).whatever(),
		read(one + "/scale").whatever(),
		read(one + "/none").whatever(),
	}
	if hasStatus {
		b, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return nil, err
		}
		steps = append(steps, merge(one+"/status", string(b)).whatever(), merge(one, string(b)).whatever(), read(one), read(one).accept(typeKubectl))
	}
	steps = append(steps,
		remove(one+"?dryRun=All"),
		remove(one).with(`{"preconditions":{"resourceVersion":"1"}}`).status(409),
		remove(one).with(`{"propagationPolicy":"Background"}`),
		read(one).whatever(),
	)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		steps = append(steps, post(all, whole).whatever(), remove(all), read(all))
	}
	return steps, nil
}

// whatever accepts any status that the oracle returns.
func (s Step) whatever() Step {
	s.Want = anyStatus
	return s
}
