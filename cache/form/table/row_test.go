package table

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func mustRow(t testing.TB, cells []Cell, conditions ...metav1.TableRowCondition) *Row {
	t.Helper()
	row, err := NewRow(cells, conditions, "")
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func TestRowFillsSlots(t *testing.T) {
	row := mustRow(t, []Cell{
		{Value: `<"é\>`},
		{Value: int64(7)},
		{Value: 1.5},
		{Value: true},
		{Value: nil},
		Age(time.Time{}),
		Age(epoch),
		{Text: []Piece{{Static: "3 ("}, {Since: epoch.Add(90 * time.Second)}, {Static: " ago) & "}, {Since: epoch.Add(500 * time.Millisecond)}}},
	}, metav1.TableRowCondition{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: "a<b"})
	for _, c := range []struct {
		after               time.Duration
		age, restart, other string
	}{
		{-time.Hour, `\u003cinvalid\u003e`, `\u003cinvalid\u003e`, `\u003cinvalid\u003e`},
		{0, "0s", `\u003cinvalid\u003e`, "0s"},
		{1400 * time.Millisecond, "1s", `\u003cinvalid\u003e`, "0s"},
		{1500 * time.Millisecond, "1s", `\u003cinvalid\u003e`, "1s"},
		{3 * time.Minute, "3m", "90s", "2m59s"},
		{1000 * day, "2y270d", "2y269d", "2y269d"},
	} {
		want := `"cells":["\u003c\"é\\\u003e",7,1.5,true,null,"\u003cunknown\u003e","` + c.age + `","3 (` + c.restart +
			` ago) \u0026 ` + c.other + `"],"conditions":[{"type":"Completed","status":"True","reason":"a\u003cb"}]`
		if got := string(row.Append(nil, epoch.Add(c.after))); got != want {
			t.Errorf("after %s\n got %s\nwant %s", c.after, got, want)
		}
		if got := row.Append([]byte("{"), epoch.Add(c.after)); !json.Valid(append(got, '}')) {
			t.Errorf("after %s: not JSON: %s", c.after, got)
		}
	}
}

// TestRowKeepsExtremeTimes checks the remotest times that JSON can hold.
func TestRowKeepsExtremeTimes(t *testing.T) {
	ancient, future := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	row := mustRow(t, []Cell{Age(ancient), Age(future)})
	if got, want := string(row.Append(nil, epoch)), `"cells":["292y","\u003cinvalid\u003e"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, ok := mustRow(t, []Cell{Age(future)}).NextChange(epoch); ok {
		t.Error("a row with a time beyond the representable range changes")
	}
}

func TestRowNextChange(t *testing.T) {
	row := mustRow(t, []Cell{Age(epoch), Age(epoch.Add(-10 * day))})
	now := epoch.Add(4 * time.Hour)
	next, ok := row.NextChange(now)
	if want := now.Add(time.Minute); !ok || !next.Equal(want) {
		t.Errorf("got %s %v, want %s", next, ok, want)
	}
	if _, ok := mustRow(t, []Cell{{Value: "x"}}).NextChange(now); ok {
		t.Error("a row without times changes")
	}
}

func TestNewRowReportsBadValues(t *testing.T) {
	if _, err := NewRow([]Cell{{Value: func() {}}}, nil, ""); err == nil {
		t.Error("no error for a function as a cell")
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	row := benchmarkRow(t)
	buf := make([]byte, 0, 4096)
	single := Single{ResourceVersion: "123", Row: row}
	if n := testing.AllocsPerRun(100, func() {
		buf = row.Append(buf[:0], epoch)
		buf = single.Append(buf[:0], epoch)
		row.NextChange(epoch)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// benchmarkRow returns a row like that of a restarted pod.
func benchmarkRow(t testing.TB) *Row {
	return mustRow(t, []Cell{
		{Value: "frontend-7d4b9c5f6d-x2x7k"}, {Value: "2/2"}, {Value: "Running"},
		{Text: []Piece{{Static: "3 ("}, {Since: epoch.Add(-5 * time.Hour)}, {Static: " ago)"}}},
		Age(epoch.Add(-3*day - 3*time.Hour)),
		{Value: "10.244.3.17"}, {Value: "worker-03.example.com"}, {Value: "<none>"}, {Value: "<none>"},
	})
}

func BenchmarkRowAppend(b *testing.B) {
	row := benchmarkRow(b)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = row.Append(buf[:0], epoch)
	}
}
