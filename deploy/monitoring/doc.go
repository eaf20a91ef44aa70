// Package monitoring holds the configuration of Prometheus and Grafana for kubeweir: alerts.yaml,
// written by hand, and dashboard.json, which is generated from rows.go. `make docs` writes the
// latter; the package's test compares it.
package monitoring
