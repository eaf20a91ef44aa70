package monitoring

import (
	"encoding/json"
	"strings"
)

// row is a heading of the dashboard with its panels.
type row struct {
	title  string
	panels []panel
}

// panel is one panel of the dashboard. Its width is in 24ths of the page's width.
type panel struct {
	kind        string // Grafana's panel type: timeseries or stat
	title       string
	description string
	unit        string // Grafana's name of the unit
	width       int
	stack       bool
	max         float64 // maximum of the axis; 0 for none
	steps       []step  // colors by value; none: the palette
	queries     []query
}

// query is one expression. $sel in it stands for the matchers of the dashboard's variables.
type query struct{ expr, legend string }

// step sets the color of values from value on.
type step struct {
	from  float64
	color string
}

// selector replaces $sel.
const selector = `job=~"$job",namespace=~"$namespace",instance=~"$instance"`

// Heights of panels, and the width of the page, in Grafana's units.
const (
	pageWidth   = 24
	rowHeight   = 1
	statHeight  = 4
	graphHeight = 8
)

// Dashboard returns the dashboard as JSON.
func Dashboard() ([]byte, error) {
	b, err := json.MarshalIndent(dashboardModel{
		Title: "kubeweir", UID: "kubeweir", Tags: []string{"kubeweir", "kubernetes"},
		Description:   "kubeweir, the caching gateway for the Kubernetes API. Made from deploy/monitoring/rows.go.",
		SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1, Refresh: "30s", Timezone: "browser",
		Time:       timeRange{From: "now-3h", To: "now"},
		Templating: list[variable]{variables()}, Annotations: list[struct{}]{[]struct{}{}}, Links: []struct{}{},
		Panels: place(rows()),
	}, "", "  ")
	return append(b, '\n'), err
}

// place numbers the panels and positions them from left to right.
func place(rows []row) []panelModel {
	var out []panelModel
	y := 0
	add := func(p panelModel, x, width, height int) {
		p.ID = len(out) + 1
		p.GridPos = gridPos{X: x, Y: y, W: width, H: height}
		out = append(out, p)
	}
	for _, r := range rows {
		add(panelModel{Type: "row", Title: r.title, Collapsed: new(bool), Panels: &[]struct{}{}}, 0, pageWidth, rowHeight)
		y += rowHeight
		x, height := 0, 0
		for _, p := range r.panels {
			if x+p.width > pageWidth {
				x, y, height = 0, y+height, 0
			}
			h := graphHeight
			if p.kind == "stat" {
				h = statHeight
			}
			add(p.model(), x, p.width, h)
			x, height = x+p.width, max(height, h)
		}
		y += height
	}
	return out
}

func (p *panel) model() panelModel {
	m := panelModel{
		Type: p.kind, Title: p.title, Description: p.description, Datasource: &prometheusSource,
		FieldConfig: &fieldConfig{Defaults: fieldDefaults{Unit: p.unit, Min: new(float64)}, Overrides: []struct{}{}},
	}
	defaults := &m.FieldConfig.Defaults
	if p.max != 0 {
		defaults.Max = &p.max
	}
	if p.kind == "stat" {
		m.Options = statOptions
	} else {
		m.Options = graphOptions
		defaults.Custom = &graphStyle{DrawStyle: "line", LineWidth: 1, FillOpacity: 10, ShowPoints: "never", Stacking: stacking{Mode: "none", Group: "A"}}
		if p.stack {
			defaults.Custom.Stacking.Mode, defaults.Custom.FillOpacity = "normal", 40
		}
	}
	if len(p.steps) > 0 {
		defaults.Color = &mode{"thresholds"}
		t := &thresholds{Mode: "absolute"}
		for i, s := range p.steps {
			model := stepModel{Color: s.color}
			if i > 0 { // the first step has no lower bound
				model.Value = &s.from
			}
			t.Steps = append(t.Steps, model)
		}
		defaults.Thresholds = t
	}
	for i, q := range p.queries {
		m.Targets = append(m.Targets, target{
			RefID: string(rune('A' + i)), Datasource: prometheusSource,
			Expr: strings.ReplaceAll(q.expr, "$sel", selector), LegendFormat: q.legend, Instant: p.kind == "stat", Range: p.kind != "stat",
		})
	}
	return m
}

// variables returns the variables that choose the data source and the processes. Outside of
// Kubernetes there is no label namespace, which .* matches too.
func variables() []variable {
	choice := func(name, of string) variable {
		v := variable{
			Name: name, Label: name, Type: "query", Datasource: &prometheusSource, Definition: "label_values(" + of + ", " + name + ")",
			IncludeAll: true, AllValue: ".*", Multi: true, Refresh: 2, Sort: 1, Current: &current{Text: "All", Value: "$__all"},
		}
		v.Query = variableQuery{Query: v.Definition, RefID: "StandardVariableQuery"}
		return v
	}
	return []variable{
		{Name: "datasource", Label: "data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		choice("job", `kubeweir_build_info`),
		choice("namespace", `kubeweir_build_info{job=~"$job"}`),
		choice("instance", `kubeweir_build_info{job=~"$job",namespace=~"$namespace"}`),
	}
}
