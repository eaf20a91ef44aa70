package builtin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAPIServiceRows(t *testing.T) {
	printer, ok := NewPrinters().For(schema.GroupVersionKind{Group: apiServiceGroup, Version: "v1", Kind: "APIService"})
	if !ok || !printer.Traits().ColumnsInEveryEvent {
		t.Fatalf("printer %T", printer)
	}
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ rest, want string }{
		{`"spec":{},"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}`, `"Local","True"`},
		{`"spec":{"service":{"namespace":"n","name":"s"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"Gone"}]}`, `"n/s","False (Gone)"`},
		{`"spec":{"service":{"namespace":"n","name":"s"}},"status":{"conditions":[{"type":"Available","status":"Unknown"}]}`, `"n/s","Unknown"`},
		{`"spec":{},"status":{"conditions":[{"type":"Other","status":"True"}]}`, `"Local","Unknown"`},
	} {
		row, err := printer.Row([]byte(`{"metadata":{"name":"v1.x","creationTimestamp":"2026-01-01T00:00:00Z"},` + c.rest + `}`))
		if err != nil {
			t.Fatal(err)
		}
		want := `"cells":["v1.x",` + c.want + `,"7m"]`
		if got := string(row.Append(nil, created.Add(7*time.Minute))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := printer.Row([]byte(`{`)); err == nil || !strings.Contains(err.Error(), "APIService") {
		t.Errorf("error %v", err)
	}
}
