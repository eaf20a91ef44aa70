package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

func TestMain(m *testing.M) {
	ServeFloor()
	os.Exit(m.Run())
}

// slowKinds take 8 to 16 s each even when short: they start servers of their own, or measure for a
// fixed time.
var slowKinds = []Kind{Visible, Tabs, Start, UplinkStart, Restart}

// smokeRows returns the first row of each kind that is not slow, or all rows in a soak.
func smokeRows() (rows []Row) {
	if soak.Enabled() {
		return Rows()
	}
	seen := make(map[Kind]bool)
	for _, kind := range slowKinds {
		seen[kind] = true
	}
	for _, row := range Rows() {
		if !seen[row.Kind] {
			rows = append(rows, row)
		}
		seen[row.Kind] = true
	}
	return rows
}

// TestSmoke runs the driver with few repetitions. It shows that the driver works, not how fast the
// servers are.
func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	nginx, err := installedNginx(ctx)
	if errors.Is(err, realkube.ErrCannotInstall) {
		t.Logf("rows are without nginx: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	rows := smokeRows()
	report, err := Run(ctx, Options{Short: true, Rows: rowNames(rows), Nginx: nginx, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != len(rows) {
		t.Fatalf("%d results of %d rows", len(report.Results), len(rows))
	}
	for i, r := range report.Results {
		row := rows[i]
		if r.Row != row.Name || r.Kubeweir == nil || r.KubeAPIServer == nil && !row.Plaintext && row.Objects == 0 {
			t.Errorf("%s: %+v", row.Name, r)
			continue
		}
		if r.Quantity == CPU && (r.Kubeweir.Count == 0 || row.Objects == 0 && (r.KubeAPIServer.Count == 0 || r.Kubeweir.P50 == 0 && !strings.HasPrefix(row.Name, "watch-fast") && row.Kind != Tabs)) {
			t.Errorf("%s measured nothing: %+v, %+v", row.Name, r.KubeAPIServer, r.Kubeweir)
		}
		if (row.nginxServes() && nginx != "") != (r.Nginx != nil) || (row.hasFloor() || row.Kind == FanOut && row.Stalled == 0) && r.Floor == nil {
			t.Errorf("%s: nginx %+v, floor %+v", row.Name, r.Nginx, r.Floor)
		}
		for _, note := range r.Notes {
			// The Age header and writes between two responses change the size by less than the
			// note's threshold.
			if strings.HasPrefix(note, "bytes differ") || strings.HasPrefix(note, "kubeweir ended") {
				t.Errorf("%s: %s", row.Name, note)
			}
		}
	}
	checkOutputs(t, report)
}

// checkOutputs checks that the report can be read back and contains every row.
func checkOutputs(t *testing.T, r *Report) {
	t.Helper()
	var table, asJSON, svg, page bytes.Buffer
	if err := errors.Join(r.WriteTable(&table), r.WriteJSON(&asJSON), r.WriteSVG(&svg), r.WriteMarkdown(&page)); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	var back Report
	if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil || len(back.Results) != len(r.Results) {
		t.Errorf("JSON: %d results, %v", len(back.Results), err)
	}
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("SVG: %v", err)
		}
	}
	for _, res := range r.Results {
		if !strings.Contains(table.String(), res.Row) || !strings.Contains(page.String(), "| "+res.Title+" |") {
			t.Errorf("%s is not in the tables", res.Row)
		}
	}
}

// TestJoinReplacesRows checks that rows of a later run replace those of the same name and say so.
func TestJoinReplacesRows(t *testing.T) {
	result := func(row string, v float64) Result { return Result{Row: row, Kubeweir: &Side{Value: v}} }
	r := &Report{Results: []Result{result("list-json", 1), result("get", 2), result("of no use any more", 3)}}
	r.Join(&Report{Date: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Machine: "another", Results: []Result{result("get", 20), result("list-table", 4)}})
	got := ""
	for _, res := range r.Results {
		got += fmt.Sprintf("%s %v %v; ", res.Row, res.Kubeweir.Value, res.Notes)
	}
	const note = "[measured in a later run than most, 2026-05-04 03:02:01 UTC, on another]"
	if want := "of no use any more 3 []; list-json 1 []; list-table 4 " + note + "; get 20 " + note + "; "; got != want {
		t.Errorf("%s", got)
	}
}

// TestEventsInCBORAreCounted checks that events in CBOR are counted wherever reads split the
// stream.
func TestEventsInCBORAreCounted(t *testing.T) {
	const stream = "\xd9" + cborMark + "a\xd9\xd9\xf7\xa5b" + cborMark + cborMark + "\xd9\xd9"
	for size := 1; size <= len(stream); size++ {
		w := &watchers{options: watchOptions{mark: cborMark}}
		one := &watcher{}
		for chunk := range slices.Chunk([]byte(stream), size) {
			w.events(one, chunk)
		}
		if one.received != 3 || w.bytes.Load() != int64(len(stream)) {
			t.Errorf("%d events by %d bytes", one.received, size)
		}
	}
}

func TestChoose(t *testing.T) {
	rows, err := Choose(Rows(), []string{"get", "list-json"})
	if err != nil || !slices.Equal(rowNames(rows), []string{"list-json", "get"}) {
		t.Errorf("%v, %v", rowNames(rows), err)
	}
	if _, err := Choose(Rows(), []string{"nothing"}); err == nil || !strings.Contains(err.Error(), "list-json") {
		t.Errorf("Choose of an unknown row: %v", err)
	}
	names := rowNames(Rows())
	slices.Sort(names)
	if len(slices.Compact(names)) != len(Rows()) {
		t.Error("two rows have one name")
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := percentile(all, p); got != want {
			t.Errorf("%v: %d, want %d", p, got, want)
		}
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("percentile of no latencies is not 0")
	}
}

func TestJudge(t *testing.T) {
	side := func(v float64) *Side { return &Side{Value: v, P99: 10, Bytes: 1000} }
	earlier := []Result{{Row: "few", Kubeweir: side(100)}}
	for _, test := range []struct {
		name   string
		result Result
		target Target
		met    string
	}{
		{"ratio", Result{Ratio: 16, Kubeweir: side(1)}, Target{Ratio: 16}, "met"},
		{"ratio missed", Result{Ratio: 15.9, Kubeweir: side(1)}, Target{Ratio: 16}, "missed"},
		{"no target", Result{Ratio: 1, Kubeweir: side(1)}, Target{}, ""},
		{"most", Result{Quantity: Memory, Kubeweir: side(160)}, Target{Max: 10, PerRaw: 1.5}, "met"},
		{"most missed", Result{Quantity: Memory, Kubeweir: side(161)}, Target{Max: 10, PerRaw: 1.5}, "missed"},
		{"both", Result{Ratio: 9, Kubeweir: side(140)}, Target{Ratio: 8, Above: "few", MostAbove: 1.5}, "met"},
		{"one of both", Result{Ratio: 9, Kubeweir: side(160)}, Target{Ratio: 8, Above: "few", MostAbove: 1.5}, "missed"},
		{"own", Result{KubeAPIServer: side(300), Kubeweir: &Side{Value: 20, OwnCPU: 10}}, Target{OwnRatio: 30}, "met"},
		{"own missed", Result{KubeAPIServer: side(299), Kubeweir: &Side{Value: 1, OwnCPU: 10}}, Target{OwnRatio: 30}, "missed"},
		{"nginx", Result{Kubeweir: side(2), Nginx: side(2)}, Target{Nginx: true}, "met"},
		{"nginx missed", Result{Kubeweir: side(3), Nginx: side(2)}, Target{Nginx: true}, "missed"},
		{"without nginx", Result{Kubeweir: side(3)}, Target{Nginx: true}, ""},
		{"p99", Result{Kubeweir: &Side{Value: 1, P99: 20}}, Target{Above: "few", MostP99: 2}, "met"},
		{"p99 missed", Result{Kubeweir: &Side{Value: 1, P99: 21}}, Target{Above: "few", MostP99: 2}, "missed"},
		{"bytes", Result{Kubeweir: &Side{Bytes: 1020}}, Target{BytesOf: "few", MostBytes: 1.02}, "met"},
		{"bytes missed", Result{Kubeweir: &Side{Bytes: 1021}}, Target{BytesOf: "few", MostBytes: 1.02}, "missed"},
		{"the other was not measured", Result{Ratio: 9, Kubeweir: side(160)}, Target{Ratio: 8, Above: "many", MostAbove: 1.5}, "met"},
	} {
		test.result.judge(test.target, 100, earlier)
		got := ""
		if test.result.Met != nil {
			got = map[bool]string{true: "met", false: "missed"}[*test.result.Met]
		}
		if got != test.met {
			t.Errorf("%s: %q (%s), want %q", test.name, got, test.result.Target, test.met)
		}
	}
}
