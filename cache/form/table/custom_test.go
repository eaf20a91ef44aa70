package table

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func column(name, kind, path string) apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: kind, JSONPath: path}
}

// allTypes combines every path with every type.
func allTypes() []apiextensionsv1.CustomResourceColumnDefinition {
	var columns []apiextensionsv1.CustomResourceColumnDefinition
	for _, path := range []string{
		".spec.string", ".spec.int", ".spec.float", ".spec.big", ".spec.true", ".spec.null", ".spec.list", ".spec.map",
		".spec.when", ".spec.later", ".spec.zero", ".spec.empty", ".spec.list[0]", ".spec.list[*]", ".spec.list[9]",
		`.spec.map.a\.b`, `.spec.items[?(@.type=="Ready")].status`, ".missing", ".missing.further", ".metadata.name",
		".metadata.creationTimestamp", ".kind", ".metadata.labels", ".spec.string.below", ".",
	} {
		for _, kind := range []string{"string", "integer", "number", "boolean", "date", "unheard-of"} {
			columns = append(columns, column(path+" as "+kind, kind, path))
		}
	}
	return columns
}

const customObject = `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"creationTimestamp":"1999-12-31T23:59:10Z",
"labels":{"a":"<b>"},"name":"w","namespace":"n","resourceVersion":"9"},"spec":{"string":"<text>","int":3,"float":2.75,
"big":12345678901234567890,"true":true,"null":null,"list":["x","y"],"map":{"a.b":"dotted","c":1},"when":"1999-06-01T00:00:00+02:00",
"later":"2000-01-01T00:10:00Z","zero":"0001-01-01T00:00:00Z","empty":"","items":[{"type":"A","status":"no"},{"type":"Ready","status":"yes"}]}}`

func TestCustomPrinterLikeUpstream(t *testing.T) {
	described := column("Described", "string", ".spec.string")
	described.Description, described.Format, described.Priority = "what <it> is", "name", 3
	for name, columns := range map[string][]apiextensionsv1.CustomResourceColumnDefinition{
		"all types": allTypes(),
		"described": {described},
		"bad path":  {column("A", "string", ".spec.string"), column("B", "string", ".spec["), column("C", "string", ".kind")},
		"pieces":    {column("P", "string", ".spec.string} and {.kind"), column("A", "date", ".spec.when")},
	} {
		t.Run(name, func(t *testing.T) {
			upstream, wantErr := tableconvertor.New(columns)
			printer, err := NewCustomPrinter(columns)
			if err != nil {
				t.Fatal(err)
			}
			if (wantErr != nil) != (name == "bad path") {
				t.Fatalf("upstream: %v", wantErr)
			}
			for _, raw := range []string{
				customObject,
				`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":"bare"}}`,
				`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"10"}}`,
			} {
				bubble.Test(t, func(t *testing.T) { compareWithConvertor(t, printer, upstream, raw) })
			}
		})
	}
}

func TestCustomPrinterRejectsKeywords(t *testing.T) {
	for _, path := range []string{
		".spec}{range .spec.items[*]}{.type}{end}{.kind", ".spec range .items", ".a[?(@.b==end)]",
	} {
		if _, err := NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{column("R", "string", path)}); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}

func TestCustomPrinterWithoutColumns(t *testing.T) {
	printer, err := NewCustomPrinter(nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := tableconvertor.New([]apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}})
	if err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) { compareWithConvertor(t, printer, upstream, customObject) })
}

func TestDefaultPrinterLikeUpstream(t *testing.T) {
	upstream := rest.NewDefaultTableConvertor(schema.GroupResource{Resource: "widgets"})
	compareWithConvertor(t, NewDefaultPrinter(), upstream, customObject)
	compareWithConvertor(t, NewDefaultPrinter(), upstream, `{"apiVersion":"v1","kind":"X","metadata":{}}`)
}

// compareWithConvertor compares columns, and rows at several times. In a synctest bubble the clock
// does not move in between.
func compareWithConvertor(t *testing.T, printer Printer, upstream rest.TableConvertor, raw string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	row, err := printer.Row([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	bookmark, err := PrintBookmark(printer, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		table, err := upstream.ConvertToTable(context.Background(), object, &metav1.TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(printer.Columns()), serverJSON(t, table.ColumnDefinitions); got != want {
			t.Fatalf("columns:\n got %s\nwant %s", got, want)
		}
		table.Rows[0].Object = runtime.RawExtension{}
		want := serverJSON(t, table.Rows[0])
		for _, r := range []*Row{row, bookmark} {
			if got := string(AppendRow(nil, r, time.Now(), Object{})); got != want {
				t.Fatalf("row:\n got %s\nwant %s", got, want)
			}
		}
		if printer.Traits().NullWhenEmpty {
			return // nothing relative, and no bubble
		}
		time.Sleep(7*time.Minute + 13*time.Second)
	}
}

func TestPrintersRejectNonObjects(t *testing.T) {
	custom, err := NewCustomPrinter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, printer := range []Printer{custom, NewDefaultPrinter()} {
		for _, raw := range []string{``, `{`, `[]`, `7`, `"x"`} {
			if _, err := printer.Row([]byte(raw)); err == nil {
				t.Errorf("%T printed %q", printer, raw)
			}
		}
	}
}

func BenchmarkCustomRow(b *testing.B) {
	printer, err := NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{
		column("A", "string", ".spec.string"), column("Age", "date", ".metadata.creationTimestamp"),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := printer.Row([]byte(customObject)); err != nil {
			b.Fatal(err)
		}
	}
}
