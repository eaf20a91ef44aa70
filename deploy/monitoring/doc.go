// Package monitoring holds the configuration of Prometheus and Grafana for kubeweir: alerts.yaml,
// written by hand, and dashboard.json, which the package's test generates from rows_test.go: `make
// docs` writes it, and `make check` compares it.
package monitoring
