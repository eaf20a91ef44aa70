package table

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// serverJSON encodes v as kube-apiserver does.
func serverJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var tableType = metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}

func TestRowsLikeEncodedTable(t *testing.T) {
	printer := NewDefaultPrinter()
	var columns []metav1.TableColumnDefinition
	if err := json.Unmarshal(printer.Columns(), &columns); err != nil {
		t.Fatal(err)
	}
	remaining := int64(12)
	partial := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "<y>"}},
	}
	full := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}`
	rows := []metav1.TableRow{
		{Cells: []any{"a"}, Object: runtime.RawExtension{Object: &partial}},
		{Cells: []any{"b"}, Object: runtime.RawExtension{Raw: []byte(full)}},
		{Cells: []any{"c"}},
	}
	objects := []Object{MetadataObject([]byte(serverJSON(t, &partial.ObjectMeta)), nil), FullObject([]byte(full), nil), {}}
	for name, c := range map[string]struct {
		meta metav1.ListMeta
		rows int
	}{
		"full":     {metav1.ListMeta{ResourceVersion: "5", Continue: "abc<", RemainingItemCount: &remaining}, 3},
		"one row":  {metav1.ListMeta{ResourceVersion: "5"}, 1},
		"no meta":  {metav1.ListMeta{}, 2},
		"continue": {metav1.ListMeta{Continue: "abc"}, 2},
	} {
		want := serverJSON(t, &metav1.Table{TypeMeta: tableType, ListMeta: c.meta, ColumnDefinitions: columns, Rows: rows[:c.rows]}) + "\n"
		got, tail := Frame(printer, &c.meta, c.rows)
		for i := range c.rows {
			if i > 0 {
				got = append(got, ',')
			}
			got = AppendRow(got, mustRow(t, []Cell{{Value: rows[i].Cells[0]}}), epoch, objects[i])
		}
		if got = append(got, tail...); string(got) != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestFrameOfEmptyTable(t *testing.T) {
	custom, err := NewCustomPrinter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		printer Printer
		rows    []metav1.TableRow
	}{{NewDefaultPrinter(), nil}, {custom, []metav1.TableRow{}}} {
		var columns []metav1.TableColumnDefinition
		if err := json.Unmarshal(c.printer.Columns(), &columns); err != nil {
			t.Fatal(err)
		}
		head, tail := Frame(c.printer, &metav1.ListMeta{ResourceVersion: "1"}, 0)
		got := string(head) + string(tail)
		want := serverJSON(t, &metav1.Table{TypeMeta: tableType, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, ColumnDefinitions: columns, Rows: c.rows}) + "\n"
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSingleLikeEncodedTable(t *testing.T) {
	printer := NewDefaultPrinter()
	var columns []metav1.TableColumnDefinition
	if err := json.Unmarshal(printer.Columns(), &columns); err != nil {
		t.Fatal(err)
	}
	row := mustRow(t, []Cell{{Value: "a"}, Age(epoch)})
	table := metav1.Table{
		TypeMeta: tableType, ListMeta: metav1.ListMeta{ResourceVersion: "77"}, ColumnDefinitions: columns,
		Rows: []metav1.TableRow{{Cells: []any{"a", "5m"}}},
	}
	now := epoch.Add(5*time.Minute + time.Millisecond)
	first := Single{ResourceVersion: "77", Columns: printer.Columns(), Row: row}
	if got, want := string(first.Append(nil, now)), serverJSON(t, &table); got != want {
		t.Errorf("first event:\n got %s\nwant %s", got, want)
	}
	table.ColumnDefinitions = nil
	later := Single{ResourceVersion: "77", Row: row}
	if got, want := string(later.Append(nil, now)), serverJSON(t, &table); got != want {
		t.Errorf("later event:\n got %s\nwant %s", got, want)
	}
}
