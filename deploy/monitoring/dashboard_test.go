package monitoring

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"testing"
)

// dashboardModel is what the tests read of the dashboard.
type dashboardModel struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []panelModel
}

type panelModel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Collapsed   *bool
	Datasource  map[string]any
	FieldConfig *struct {
		Defaults struct{ Unit string }
	}
	Options any
	Targets []struct {
		RefID, Expr    string
		Datasource     map[string]any
		Instant, Range bool
	}
}

var update = flag.Bool("update", false, "write dashboard.json")

func TestDashboardIsGenerated(t *testing.T) {
	want, err := dashboard()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("dashboard.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("dashboard.json is not what rows_test.go says; run make docs")
	}
}

// TestDashboardStructure checks what Grafana requires but does not check.
func TestDashboardStructure(t *testing.T) {
	b, err := dashboard()
	if err != nil {
		t.Fatal(err)
	}
	var d dashboardModel
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	variables := make(map[string]bool)
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	if !variables["datasource"] || !variables["job"] || !variables["namespace"] || !variables["instance"] {
		t.Errorf("variables %v", variables)
	}
	ids, titles := make(map[int]bool), make(map[string]bool)
	taken := make(map[[2]int]int)
	row := ""
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: the number is taken, or there is no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			row = p.Title
			if len(p.Targets) > 0 || p.GridPos.W != pageWidth || p.Collapsed == nil || *p.Collapsed {
				t.Errorf("panel %q is not a row", p.Title)
			}
		} else {
			panelIsWhole(t, &p)
		}
		if titles[row+p.Title] && p.Type != "row" {
			t.Errorf("%s: two panels are called %s", row, p.Title)
		}
		titles[row+p.Title] = true
		g := p.GridPos
		if g.X < 0 || g.Y < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > pageWidth {
			t.Errorf("panel %q is off the page: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %d and %d overlap", other, p.ID)
				}
				taken[[2]int{x, y}] = p.ID
			}
		}
	}
}

func panelIsWhole(t *testing.T, p *panelModel) {
	t.Helper()
	if p.Type != "timeseries" && p.Type != "stat" {
		t.Errorf("panel %q has type %s", p.Title, p.Type)
	}
	if !maps.Equal(p.Datasource, prometheusSource) || p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == "" || p.Options == nil || len(p.Targets) == 0 {
		t.Errorf("panel %q lacks a data source, a unit, options or queries", p.Title)
	}
	refs := make(map[string]bool)
	for _, q := range p.Targets {
		if refs[q.RefID] || !maps.Equal(q.Datasource, prometheusSource) || q.Expr == "" || q.Instant == q.Range {
			t.Errorf("panel %q: query %+v", p.Title, q)
		}
		refs[q.RefID] = true
	}
}
