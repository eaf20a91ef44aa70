package chartdocs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/config/rbac"
)

// Resources returns the chart's file with the resources that are built into Kubernetes and cached
// by default.
func Resources() ([]byte, error) {
	rules, err := rbac.Rules(config.Default(), rbac.Options{})
	if err != nil {
		return nil, err
	}
	byGroup := make(map[string][]string)
	for _, rule := range rbac.Policy(rules) {
		if !slices.Contains(rule.Verbs, "list") {
			continue // reviews
		}
		for _, group := range rule.APIGroups {
			byGroup[group] = append(byGroup[group], rule.Resources...)
		}
	}
	var out bytes.Buffer
	out.WriteString("# What is built into Kubernetes and cached by default, by API group. Made by `make docs` from package config/rbac.\n")
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		names := byGroup[group]
		slices.Sort(names)
		fmt.Fprintf(&out, "%q: [%s]\n", group, strings.Join(slices.Compact(names), ", "))
	}
	return out.Bytes(), nil
}
