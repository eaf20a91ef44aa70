package monitoring

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Rule is an alert of alerts.yaml.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Rules parses a rule file.
func Rules(file []byte) ([]Rule, error) {
	var parsed struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(file, &parsed); err != nil {
		return nil, fmt.Errorf("rule file: %w", err)
	}
	var all []Rule
	for _, g := range parsed.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// Queries returns the expressions of dashboard.json, with Grafana's variables in them.
func Queries(file []byte) ([]string, error) {
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(file, &d); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	var all []string
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, t.Expr)
		}
	}
	return all, nil
}

// Concrete replaces Grafana's variables by values.
func Concrete(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$namespace", ".*", "$instance", ".*").Replace(expr)
}
