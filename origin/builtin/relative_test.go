package builtin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// In a synctest bubble it is 2000-01-01T00:00:00Z; all objects below are older.
const (
	podAged = `"creationTimestamp":"1999-12-31T23:00:00Z"`

	restartedPod = `{"metadata":{"name":"p",` + podAged + `},"spec":{"containers":[{"name":"a"},{"name":"b"}]},
"status":{"phase":"Running","containerStatuses":[
{"name":"a","ready":true,"restartCount":2,"state":{"running":{"startedAt":"1999-12-31T23:30:00Z"}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"1999-12-31T23:29:00Z"}}},
{"name":"b","ready":true,"restartCount":3,"state":{"running":{"startedAt":"1999-12-31T23:58:00Z"}},"lastState":{"terminated":{"exitCode":1,"finishedAt":"1999-12-31T23:57:00Z"}}}]}}`
)

// TestRelativeCells spells out what the cells that show times read at two
// moments.
func TestRelativeCells(t *testing.T) {
	for name, c := range map[string]struct {
		gvk        schema.GroupVersionKind
		raw        string
		then, hour string // parts of the row at the start, and an hour later
	}{
		"restarts take the latest": {
			gvk: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, raw: restartedPod,
			then: `"5 (3m ago)","60m"`, hour: `"5 (63m ago)","120m"`,
		},
		"name reads like an age": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			raw:  strings.Replace(restartedPod, `"name":"p"`, `"name":"2y1d2y3d"`, 1),
			then: `"2y1d2y3d","2/2","Running","5 (3m ago)","60m"`, hour: `"2y1d2y3d","2/2","Running","5 (63m ago)","120m"`,
		},
		"name reads like all ages there are": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			raw:  strings.Replace(restartedPod, `"name":"p"`, `"name":"`+allMarkTexts()+`"`, 1),
			then: `"5 (3m ago)","60m"`, hour: `"5 (63m ago)","120m"`,
		},
		"age is a mark's": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
			raw:  `{"metadata":{"name":"s","creationTimestamp":"1997-12-30T12:00:00Z"}}`,
			then: `"2y1d"`, hour: `"2y1d"`,
		},
		"in the future": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
			raw:  `{"metadata":{"name":"s","creationTimestamp":"2000-01-01T00:30:00Z"}}`,
			then: `"\u003cinvalid\u003e"`, hour: `"30m"`,
		},
		"without a time": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
			raw:  `{"metadata":{"name":"s","creationTimestamp":null}}`,
			then: `"\u003cunknown\u003e"`, hour: `"\u003cunknown\u003e"`,
		},
		"running job": {
			gvk:  schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
			raw:  `{"metadata":{"name":"j",` + podAged + `},"status":{"startTime":"1999-12-31T23:59:00Z"}}`,
			then: `"0/1","60s","60m"`, hour: `"0/1","61m","120m"`,
		},
		"finished job": {
			gvk: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
			raw: `{"metadata":{"name":"j",` + podAged + `},"status":{"startTime":"1999-12-31T23:00:00Z","completionTime":"1999-12-31T23:04:10Z",
"succeeded":1,"conditions":[{"type":"Complete","status":"True"}]}}`,
			then: `"Complete","1/1","4m10s","60m"`, hour: `"Complete","1/1","4m10s","120m"`,
		},
		"job finished before it started": {
			gvk:  schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
			raw:  `{"metadata":{"name":"j",` + podAged + `},"status":{"startTime":"1999-12-31T23:00:01Z","completionTime":"1999-12-31T23:00:00Z"}}`,
			then: `"0/1","0s","60m"`, hour: `"0/1","0s","120m"`,
		},
		"cron job": {
			gvk:  schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"},
			raw:  `{"metadata":{"name":"c",` + podAged + `},"spec":{"schedule":"* * * * *"},"status":{"lastScheduleTime":"1999-12-31T23:59:00Z"}}`,
			then: `0,"60s","60m"`, hour: `0,"61m","120m"`,
		},
		"event with times": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Event"},
			raw:  `{"metadata":{"name":"e",` + podAged + `},"firstTimestamp":"1999-12-31T23:50:00Z","lastTimestamp":"1999-12-31T23:59:50Z"}`,
			then: `"10s"`, hour: `"60m"`,
		},
		"event in a series": {
			gvk:  schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
			raw:  `{"metadata":{"name":"e",` + podAged + `},"eventTime":"1999-12-31T23:59:00.500000Z","series":{"count":7,"lastObservedTime":"1999-12-31T23:59:58.250000Z"}}`,
			then: `["1s",`, hour: `["60m",`,
		},
		"event with one time": {
			gvk:  schema.GroupVersionKind{Version: "v1", Kind: "Event"},
			raw:  `{"metadata":{"name":"e",` + podAged + `},"eventTime":"1999-12-31T23:59:30.000001Z","firstTimestamp":null,"lastTimestamp":null}`,
			then: `["29s",`, hour: `["60m",`,
		},
		"taint": {
			gvk:  schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1beta2", Kind: "DeviceTaintRule"},
			raw:  `{"metadata":{"name":"d",` + podAged + `},"spec":{"taint":{"key":"k","effect":"NoSchedule","timeAdded":"1999-12-31T23:59:50Z"}}}`,
			then: `"10s","60m"`, hour: `"60m","120m"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			printer, ok := NewPrinters().For(c.gvk)
			if !ok {
				t.Fatal("no printer")
			}
			bubble.Test(t, func(t *testing.T) {
				row, err := printer.Row([]byte(c.raw))
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range []string{c.then, c.hour} {
					if got := rowJSON(row, time.Now()); !strings.Contains(got, want) {
						t.Errorf("at %s: %s lacks %s", time.Now().UTC(), got, want)
					}
					time.Sleep(time.Hour)
				}
			})
		})
	}
}

func allMarkTexts() string {
	var s strings.Builder
	for _, m := range newMarks() {
		s.WriteString(m.text[0] + m.text[1])
	}
	return s.String()
}

func TestMarksAreTellable(t *testing.T) {
	marks := newMarks()
	if len(marks) < 1000 {
		t.Errorf("%d marks", len(marks))
	}
	seen := [2]map[string]bool{{}, {}}
	for i, m := range marks {
		for side, text := range m.text {
			if seen[side][text] || strings.Count(text, "y") != 1 || !strings.HasSuffix(text, "d") {
				t.Errorf("mark %d: %q", i, text)
			}
			seen[side][text] = true
		}
		if m.text[0] == m.text[1] {
			t.Errorf("mark %d: %q on both sides", i, m.text[0])
		}
		if i > 0 && m.age[1]-marks[i-1].age[1] <= m.age[0]-marks[i-1].age[0] {
			t.Errorf("mark %d: distances do not differ", i)
		}
	}
}

// templateOf makes a template of made-up cells of the given timestamps.
func templateOf(times []time.Time, cell func(times []time.Time) any) *template {
	tmpl := &template{marks: newMarks()}
	for i := range times {
		tmpl.times = append(tmpl.times, &times[i])
	}
	tmpl.print = func() (metav1.TableRow, error) {
		return metav1.TableRow{Cells: []any{cell(times)}}, nil
	}
	return tmpl
}

func TestTemplateRejectsWhatItCannotExplain(t *testing.T) {
	now := time.Now()
	for name, cell := range map[string]func([]time.Time) any{
		"seconds":       func(times []time.Time) any { return int64(time.Since(times[0]).Seconds()) },
		"other format":  func(times []time.Time) any { return time.Since(times[0]).Round(time.Hour).String() },
		"days":          func(times []time.Time) any { return fmt.Sprint(int(time.Since(times[0]).Hours() / 24)) },
		"past deadline": func(times []time.Time) any { return time.Since(times[0]) > 24*time.Hour },
	} {
		tmpl := templateOf([]time.Time{now.Add(-time.Hour), now.Add(-2 * time.Hour)}, cell)
		if _, _, err := tmpl.cells(); !errors.Is(err, errUnpredictable) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	many := make([]time.Time, len(newMarks())+1)
	for i := range many {
		many[i] = now.Add(time.Duration(i) * time.Second)
	}
	if _, _, err := templateOf(many, func([]time.Time) any { return "x" }).cells(); !errors.Is(err, errUnpredictable) {
		t.Errorf("too many timestamps: error %v", err)
	}
	if _, _, err := templateOf(many[1:], func([]time.Time) any { return "x" }).cells(); err != nil {
		t.Errorf("as many timestamps as marks: %v", err)
	}
}

func TestTemplateKeepsDistances(t *testing.T) {
	now := time.Now()
	distance := func(times []time.Time) any { return times[0].Sub(times[1]).String() }
	cells, _, err := templateOf([]time.Time{now, now.Add(-90 * time.Minute)}, distance).cells()
	if err != nil {
		t.Fatal(err)
	}
	if want := (table.Cell{Value: "1h30m0s"}); !equalCells(cells[0], want) {
		t.Errorf("got %v, want %v", cells[0], want)
	}
}
