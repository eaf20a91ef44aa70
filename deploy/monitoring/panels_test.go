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

// object is a part of Grafana's model of a dashboard (schema version 39).
type object = map[string]any

// prometheusSource is the data source that the dashboard's user has chosen.
var prometheusSource = object{"type": "prometheus", "uid": "${datasource}"}

// dashboard returns the dashboard as JSON.
func dashboard() ([]byte, error) {
	b, err := json.MarshalIndent(object{
		"title": "kubeweir", "uid": "kubeweir", "tags": []string{"kubeweir", "kubernetes"},
		"description":   "kubeweir, the caching gateway for the Kubernetes API. Made from deploy/monitoring/rows_test.go.",
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
		"time":       object{"from": "now-3h", "to": "now"},
		"templating": object{"list": variables()}, "annotations": object{"list": []object{}}, "links": []object{},
		"panels": place(rows()),
	}, "", "  ")
	return append(b, '\n'), err
}

// place numbers and positions panels, from left to right.
func place(rows []row) []object {
	var out []object
	y := 0
	add := func(p object, x, width, height int) {
		p["id"] = len(out) + 1
		p["gridPos"] = object{"x": x, "y": y, "w": width, "h": height}
		out = append(out, p)
	}
	for _, r := range rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 0, pageWidth, rowHeight)
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

func (p *panel) model() object {
	defaults := object{"unit": p.unit, "min": 0}
	m := object{
		"type": p.kind, "title": p.title, "datasource": prometheusSource,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	if p.description != "" {
		m["description"] = p.description
	}
	if p.max != 0 {
		defaults["max"] = p.max
	}
	if p.kind == "stat" {
		m["options"] = object{
			"colorMode": "value", "graphMode": "none", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	} else {
		m["options"] = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
		stacking, opacity := "none", 10
		if p.stack {
			stacking, opacity = "normal", 40
		}
		defaults["custom"] = object{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": opacity, "showPoints": "never",
			"stacking": object{"mode": stacking, "group": "A"},
		}
	}
	if len(p.steps) > 0 {
		steps := []object{{"color": p.steps[0].color, "value": nil}} // the first has no lower end
		for _, s := range p.steps[1:] {
			steps = append(steps, object{"color": s.color, "value": s.from})
		}
		defaults["color"] = object{"mode": "thresholds"}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	}
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": prometheusSource, "legendFormat": q.legend,
			"expr": strings.ReplaceAll(q.expr, "$sel", selector), "instant": p.kind == "stat", "range": p.kind != "stat",
		})
	}
	m["targets"] = targets
	return m
}

// variables choose the data source and the processes that are shown. Outside of Kubernetes there is no
// label namespace, which .* matches as well.
func variables() []object {
	choice := func(name, of string) object {
		definition := "label_values(" + of + ", " + name + ")"
		return object{
			"name": name, "label": name, "type": "query", "datasource": prometheusSource, "definition": definition,
			"query":      object{"query": definition, "refId": "StandardVariableQuery"},
			"includeAll": true, "allValue": ".*", "multi": true, "refresh": 2, "sort": 1, "current": object{"text": "All", "value": "$__all"},
		}
	}
	return []object{
		{"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "refresh": 1, "includeAll": false, "multi": false},
		choice("job", `kubeweir_build_info`),
		choice("namespace", `kubeweir_build_info{job=~"$job"}`),
		choice("instance", `kubeweir_build_info{job=~"$job",namespace=~"$namespace"}`),
	}
}
