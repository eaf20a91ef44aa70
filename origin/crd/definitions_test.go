package crd_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.replicas}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    selectableFields:
    - jsonPath: .spec.color
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string, default: red}
              replicas: {type: integer, minimum: 0}
              limit:
                type: integer
                x-kubernetes-validations:
                - {rule: self <= 10, message: at most ten}
              fixed:
                type: string
                x-kubernetes-validations:
                - {rule: self == oldSelf, message: fixed is fixed}
              free:
                type: object
                x-kubernetes-preserve-unknown-fields: true
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
              phase: {type: string}
`

// start runs a chain that holds the widgets, established for so long that creating one
// does not wait for other servers any more.
func start(t *testing.T) *chaintest.Chain {
	t.Helper()
	c := chaintest.Start(t, chaintest.Options{})
	define(t, c, widgets)
	return c
}

func widget(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return chaintest.Object(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: `+name+`}, spec: `+spec+`}`)
}

func TestPruningAndDefaults(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	made, err := client.Create(t.Context(), widget(t, "w", `{replicas: 2, unknown: 1, free: {kept: 1}, limit: null}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := made.Object["spec"].(map[string]any)
	if got, want := fmt.Sprint(spec), "map[color:red free:map[kept:1] replicas:2]"; got != want {
		t.Errorf("spec is %s, want %s", got, want)
	}
	if made.GetGeneration() != 1 {
		t.Errorf("generation %d", made.GetGeneration())
	}

	response, body := c.Do(t, http.MethodPost, "/apis/example.com/v1/namespaces/ns/widgets?fieldValidation=Strict",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"strict"},"spec":{"unknown":1}}`)
	if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, `unknown field \"spec.unknown\"`) {
		t.Errorf("strict: %d %s", response.StatusCode, body)
	}
	response, _ = c.Do(t, http.MethodPost, "/apis/example.com/v1/namespaces/ns/widgets?dryRun=All",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"warned"},"spec":{"unknown":1}}`)
	if got := response.Header.Get("Warning"); response.StatusCode != http.StatusCreated || got != `299 - "unknown field \"spec.unknown\""` {
		t.Errorf("warn: %d %q", response.StatusCode, got)
	}

	// A default that is added later appears in what was stored before.
	patchDefinition(t, c, "widgets.example.com", `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape","value":{"type":"string","default":"round"}}]`)
	chaintest.Within(t, 2*time.Second, func() error {
		read, err := client.Get(t.Context(), "w", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := chaintest.Field(read.Object, "spec", "shape"); got != "round" {
			return fmt.Errorf("shape is %v", got)
		}
		return nil
	})
}

func TestValidation(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	_, err := client.Create(t.Context(), widget(t, "bad", `{limit: 11}`), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.limit: Invalid value: 11: at most ten") {
		t.Errorf("CEL: %v", err)
	}
	_, err = client.Create(t.Context(), widget(t, "bad", `{replicas: -1}`), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.replicas in body should be greater than or equal to 0") {
		t.Errorf("schema: %v", err)
	}
	if _, err = client.Create(t.Context(), widget(t, "w", `{fixed: a, limit: 10}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"fixed":"b"}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "fixed is fixed") {
		t.Errorf("transition rule: %v", err)
	}

	// A value that was valid may stay when the rule becomes narrower, but may not become worse.
	patchDefinition(t, c, "widgets.example.com", `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/limit/x-kubernetes-validations/0","value":{"rule":"self <= 5","message":"at most five"}}]`)
	chaintest.Within(t, 2*time.Second, func() error {
		_, err := client.Create(t.Context(), widget(t, "narrow", `{limit: 6}`), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) {
			return nil
		}
		return fmt.Errorf("the narrower rule is not checked: %w", err)
	})
	if _, err = client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("ratcheting: %v", err)
	}
	_, err = client.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"limit":9}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "at most five") {
		t.Errorf("changed value: %v", err)
	}
}

func TestStatusAndScale(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	object := widget(t, "w", `{replicas: 2}`)
	object.Object["status"] = map[string]any{"phase": "dropped"}
	made, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Object["status"] != nil {
		t.Errorf("status is kept by create: %v", made.Object["status"])
	}
	made.Object["status"] = map[string]any{"phase": "ok", "replicas": int64(1), "selector": "app=w"}
	made.Object["spec"] = map[string]any{"replicas": int64(7)}
	updated, err := client.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chaintest.Expect(t, updated.Object, "ok", "status", "phase")
	chaintest.Expect(t, updated.Object, 2, "spec", "replicas")
	chaintest.Expect(t, updated.Object, 1, "metadata", "generation")

	scale := c.Get(t, "/apis/example.com/v1/namespaces/ns/widgets/w/scale")
	chaintest.Expect(t, scale, "Scale", "kind")
	chaintest.Expect(t, scale, "autoscaling/v1", "apiVersion")
	chaintest.Expect(t, scale, 2, "spec", "replicas")
	chaintest.Expect(t, scale, 1, "status", "replicas")
	chaintest.Expect(t, scale, "app=w", "status", "selector")
	response, body := c.Do(t, http.MethodPatch, "/apis/example.com/v1/namespaces/ns/widgets/w/scale",
		`{"spec":{"replicas":5}}`, "Content-Type: application/merge-patch+json")
	if response.StatusCode != http.StatusOK {
		t.Fatalf("scale: %d %s", response.StatusCode, body)
	}
	read, err := client.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chaintest.Expect(t, read.Object, 5, "spec", "replicas")
	chaintest.Expect(t, read.Object, 2, "metadata", "generation")
	chaintest.Expect(t, read.Object, "ok", "status", "phase")
}

func TestTable(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	if _, err := client.Create(t.Context(), widget(t, "w", `{replicas: 2}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	table := c.Get(t, "/apis/example.com/v1/namespaces/ns/widgets", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	chaintest.Expect(t, table, "Table", "kind")
	columns, _ := table["columnDefinitions"].([]any)
	var names []string
	for _, column := range columns {
		names = append(names, fmt.Sprint(chaintest.Field(column.(map[string]any), "name")))
	}
	if got := strings.Join(names, ","); got != "Name,Size,Color,Age" {
		t.Errorf("columns %s", got)
	}
	rows, _ := table["rows"].([]any)
	if len(rows) != 1 {
		t.Fatalf("rows: %v", rows)
	}
	cells, _ := rows[0].(map[string]any)["cells"].([]any)
	if len(cells) != 4 || cells[0] != "w" || fmt.Sprint(cells[1]) != "2" || cells[2] != "red" || !strings.HasSuffix(fmt.Sprint(cells[3]), "s") {
		t.Errorf("cells %v", cells)
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	c := start(t)
	client := c.Dynamic(t, "widgets.v1.example.com").Namespace("ns")
	for name, color := range map[string]string{"a": "red", "b": "blue"} {
		if _, err := client.Create(t.Context(), widget(t, name, `{color: `+color+`}`), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=blue"})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "b" {
		t.Fatalf("list: %v %v", list, err)
	}
	watch, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=blue", ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := client.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watch.ResultChan(); event.Type != "ADDED" {
		t.Errorf("entering the selector: %v", event)
	}
	response, body := c.Do(t, http.MethodGet, "/apis/example.com/v1/widgets?fieldSelector=spec.replicas%3D2", "")
	if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, "field label not supported: spec.replicas") {
		t.Errorf("another field: %d %s", response.StatusCode, body)
	}
}
