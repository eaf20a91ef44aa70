// Package monitoring holds the tests of deploy/monitoring, docs/metrics.md and docs/runbooks
// against running processes and with promtool.
package monitoring
