package builtin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/tableconvertor"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form/table"
)

// TestDefinitionRows compares columns and rows with the upstream printer's.
func TestDefinitionRows(t *testing.T) {
	printer, ok := NewPrinters().For(schema.GroupVersionKind{Group: definitionGroup, Version: "v1", Kind: "CustomResourceDefinition"})
	if !ok {
		t.Fatal("no printer")
	}
	for _, raw := range []string{
		`{}`,
		`{"metadata":{"resourceVersion":"7"}}`,
		`{"metadata":{"name":"as.g","creationTimestamp":"2026-01-01T01:02:03Z"},"spec":{"group":"g","scope":"Cluster","names":{"kind":"A","plural":"as"},
			"versions":[{"name":"v2","served":true},{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v0","storage":true}]}}`,
		`{"metadata":{"name":"bs.g"},"spec":{"group":"g","scope":"Namespaced","names":{"kind":"B","plural":"bs","shortNames":["b","bb"]}},
			"status":{"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`,
		`{"metadata":{"name":"cs.g"},"status":{"conditions":[{"type":"Established","status":"False"}]}}`,
	} {
		row, err := printer.Row([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		columns, cells := upstreamDefinition(t, raw)
		if got := string(row.Append(nil, time.Now())); got != cells {
			t.Errorf("%s: got %s, want %s", raw, got, cells)
		}
		if got := string(printer.Columns()); got != columns {
			t.Errorf("columns %s, want %s", got, columns)
		}
	}
	if _, err := printer.Row([]byte(`{`)); err == nil || !strings.Contains(err.Error(), "CustomResourceDefinition") {
		t.Errorf("error %v", err)
	}
}

func upstreamDefinition(t *testing.T, raw string) (columns, cells string) {
	t.Helper()
	var versioned apiextensionsv1.CustomResourceDefinition
	var internal apiextensions.CustomResourceDefinition
	scheme := runtime.NewScheme()
	for _, err := range []error{
		json.Unmarshal([]byte(raw), &versioned),
		apiextensions.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme),
		scheme.Convert(&versioned, &internal, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	printed, err := tableconvertor.New().ConvertToTable(t.Context(), &internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(printed.Rows[0].Cells)
	if err != nil {
		t.Fatal(err)
	}
	return string(table.EncodeColumns(printed.ColumnDefinitions)), `"cells":` + string(encoded)
}
