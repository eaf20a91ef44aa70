package monitoring

// This file contains the part of Grafana's dashboard model (schema version 39) that is needed.

type dashboardModel struct {
	UID           string         `json:"uid"`
	Title         string         `json:"title"`
	Description   string         `json:"description"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Version       int            `json:"version"`
	Editable      bool           `json:"editable"`
	GraphTooltip  int            `json:"graphTooltip"`
	Refresh       string         `json:"refresh"`
	Timezone      string         `json:"timezone"`
	Time          timeRange      `json:"time"`
	Annotations   list[struct{}] `json:"annotations"`
	Links         []struct{}     `json:"links"`
	Templating    list[variable] `json:"templating"`
	Panels        []panelModel   `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type list[T any] struct {
	List []T `json:"list"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// prometheusSource is the data source that the user of the dashboard selects.
var prometheusSource = source{Type: "prometheus", UID: "${datasource}"}

type variable struct {
	Name       string   `json:"name"`
	Label      string   `json:"label"`
	Type       string   `json:"type"`
	Datasource *source  `json:"datasource,omitempty"`
	Query      any      `json:"query"`
	Definition string   `json:"definition,omitempty"`
	IncludeAll bool     `json:"includeAll"`
	AllValue   string   `json:"allValue,omitempty"`
	Multi      bool     `json:"multi"`
	Refresh    int      `json:"refresh"`
	Sort       int      `json:"sort,omitempty"`
	Current    *current `json:"current,omitempty"`
}

type variableQuery struct {
	Query string `json:"query"`
	RefID string `json:"refId"`
}

type current struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type panelModel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Collapsed   *bool        `json:"collapsed,omitempty"` // of rows
	Panels      *[]struct{}  `json:"panels,omitempty"`    // of collapsed rows
	Datasource  *source      `json:"datasource,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Options     any          `json:"options,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
}

type gridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []struct{}    `json:"overrides"`
}

type fieldDefaults struct {
	Unit       string      `json:"unit"`
	Min        *float64    `json:"min,omitempty"`
	Max        *float64    `json:"max,omitempty"`
	Color      *mode       `json:"color,omitempty"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
	Custom     *graphStyle `json:"custom,omitempty"`
}

type mode struct {
	Mode string `json:"mode"`
}

type thresholds struct {
	Mode  string      `json:"mode"`
	Steps []stepModel `json:"steps"`
}

type stepModel struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type graphStyle struct {
	DrawStyle   string   `json:"drawStyle"`
	LineWidth   int      `json:"lineWidth"`
	FillOpacity int      `json:"fillOpacity"`
	ShowPoints  string   `json:"showPoints"`
	Stacking    stacking `json:"stacking"`
}

type stacking struct {
	Mode  string `json:"mode"`
	Group string `json:"group"`
}

// statOptions and graphOptions are the options of the panel types.
var (
	statOptions = map[string]any{
		"colorMode": "value", "graphMode": "none", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	graphOptions = map[string]any{
		"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
)

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
	Range        bool   `json:"range"`
}
