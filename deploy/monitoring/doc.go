// Package monitoring holds what Prometheus and Grafana are given for kubeweir: alerts.yaml, written by hand, and
// dashboard.json, which is made of rows.go. `make docs` writes the latter; the package's test compares.
package monitoring
