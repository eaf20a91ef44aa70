package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertCase is what Prometheus has scraped, once a minute, and how many alerts fire then.
type alertCase struct {
	alert  string
	at     string
	fires  int
	series []string // NAME{LABELS} VALUES, in promtool's notation; see series
}

// histogram returns a histogram with a hundred observations a minute, slow of which exceed the
// alert's threshold.
func histogram(name, labels, below, above string, slow int) []string {
	bucket := func(le string, n int) string { return fmt.Sprintf(`%s_bucket{%s,le=%q} 0+%dx60`, name, labels, le, n) }
	return []string{bucket(below, 100-slow), bucket(above, 100), bucket("+Inf", 100)}
}

const collection = `{group="",resource="events",encoding="json"}`

var alertCases = []alertCase{
	{"KubeweirAbsent", "6m", 1, []string{"up 1x20"}},
	{"KubeweirAbsent", "6m", 0, []string{"kubeweir_build_info 1x20"}},
	{"KubeweirPanics", "10m", 1, []string{`kubeweir_panics_total{place="feed"} 0x5 1x10`, `kubeweir_panics_total{place="watch"} 2x20`}},
	{"KubeweirPanics", "30m", 0, []string{`kubeweir_panics_total{place="feed"} 0x5 1x30`}},
	{"KubeweirCertificateExpiring", "70m", 1, []string{"kubeweir_serving_certificate_expiry_timestamp_seconds 500000x80"}},
	{"KubeweirCertificateExpiring", "70m", 0, []string{"kubeweir_serving_certificate_expiry_timestamp_seconds 700000x80"}},
	{"KubeweirCertificateReloadFailed", "10m", 1, []string{`kubeweir_serving_certificate_reloads_total{result="error"} 0x5 1x10`, `kubeweir_upstream_certificate_reloads_total{result="ok"} 0x5 1x10`}},
	{"KubeweirCertificateReloadFailed", "10m", 1, []string{`kubeweir_upstream_certificate_reloads_total{result="error"} 0x5 1x10`}},
	{"KubeweirCertificateReloadFailed", "10m", 0, []string{`kubeweir_serving_certificate_reloads_total{result="error"} 1x20`}},
	{"KubeweirConfigRejected", "6m", 1, []string{`kubeweir_config_last_reload_successful 0x20`}},
	{"KubeweirConfigRejected", "4m", 0, []string{`kubeweir_config_last_reload_successful 0x20`}},
	{"KubeweirConfigRejected", "6m", 0, []string{`kubeweir_config_last_reload_successful 1x20`}},

	{"KubeweirErrors", "16m", 1, []string{`kubeweir_requests_total{code="503"} 0+6x30`, `kubeweir_requests_total{code="200"} 0+60x30`}},
	{"KubeweirErrors", "9m", 0, []string{`kubeweir_requests_total{code="503"} 0+6x30`, `kubeweir_requests_total{code="200"} 0+60x30`}},
	{"KubeweirErrors", "16m", 0, []string{`kubeweir_requests_total{code="503"} 0+1x30`, `kubeweir_requests_total{code="200"} 0+60x30`}},
	{"KubeweirCachedReadsSlow", "16m", 1, histogram("kubeweir_request_duration_seconds", `verb="get",source="cached"`, "0.5", "2.5", 5)},
	{"KubeweirCachedReadsSlow", "16m", 0, histogram("kubeweir_request_duration_seconds", `verb="get",source="cached"`, "0.5", "2.5", 0)},
	{"KubeweirCachedReadsSlow", "16m", 0, histogram("kubeweir_request_duration_seconds", `verb="list",source="cached"`, "0.5", "2.5", 5)},
	{"KubeweirRequestsRejected", "12m", 1, []string{`kubeweir_requests_rejected_total{kind="short",reason="limit"} 0+60x20`}},
	{"KubeweirRequestsRejected", "12m", 0, []string{`kubeweir_requests_rejected_total{kind="short",reason="limit"} 0+1x20`}},
	{"KubeweirInFlightNearLimit", "6m", 1, []string{`kubeweir_requests_in_flight{kind="long"} 90x20`, `kubeweir_requests_in_flight_limit{kind="long"} 100x20`}},
	{"KubeweirInFlightNearLimit", "6m", 0, []string{`kubeweir_requests_in_flight{kind="long"} 75x20`, `kubeweir_requests_in_flight_limit{kind="long"} 100x20`, `kubeweir_requests_in_flight{kind="short"} 90x20`, `kubeweir_requests_in_flight_limit{kind="short"} 0x20`}},
	{"KubeweirConnectionsNearLimit", "6m", 1, []string{`kubeweir_connections{protocol="h2"} 50x20`, `kubeweir_connections{protocol="http/1.1"} 40x20`, `kubeweir_connections_limit 100x20`}},
	{"KubeweirConnectionsNearLimit", "6m", 0, []string{`kubeweir_connections{protocol="h2"} 50x20`, `kubeweir_connections_limit 100x20`}},

	{"KubeweirFeedNotSynced", "6m", 1, []string{"kubeweir_cache_feed_synced" + collection + " 0x20", "kubeweir_cache_feed_lag_seconds" + collection + " 0x20"}},
	{"KubeweirFeedNotSynced", "6m", 0, []string{"kubeweir_cache_feed_synced" + collection + " 0x3 1x20", "kubeweir_cache_feed_lag_seconds" + collection + " 0x20"}},
	{"KubeweirFeedNotSynced", "6m", 0, []string{"kubeweir_cache_feed_synced" + collection + " 0x20", "kubeweir_cache_feed_lag_seconds" + collection + " 100x20"}},
	{"KubeweirFeedStale", "4m", 1, []string{"kubeweir_cache_feed_lag_seconds" + collection + " 0+60x20"}},
	{"KubeweirCacheDiffers", "10m", 1, []string{`kubeweir_cache_checks_total{group="",resource="pods",encoding="json",result="differs"} 0x5 1x20`}},
	{"KubeweirCacheDiffers", "20m", 0, []string{`kubeweir_cache_checks_total{group="",resource="pods",encoding="json",result="same"} 0+1x30`, `kubeweir_cache_checks_total{group="",resource="pods",encoding="json",result="unfinished"} 0+1x30`}},
	{"KubeweirCheckOverdue", "50m", 1, []string{"kubeweir_cache_check_age_seconds" + collection + " 0+60x60", "kubeweir_cache_check_period_seconds 300x60"}},
	{"KubeweirCheckOverdue", "50m", 0, []string{"kubeweir_cache_check_age_seconds" + collection + " 400x60", "kubeweir_cache_check_period_seconds 300x60"}},
	{"KubeweirCheckOverdue", "50m", 0, []string{"kubeweir_cache_check_age_seconds" + collection + " 0+60x60", "kubeweir_cache_check_period_seconds 0x60"}},
	{"KubeweirFeedStale", "4m", 0, []string{"kubeweir_cache_feed_lag_seconds" + collection + " 5x20"}},
	{"KubeweirFeedRestarts", "40m", 1, []string{`kubeweir_cache_feed_restarts_total{group="",resource="pods",reason="error"} 0+3x60`}},
	{"KubeweirFeedRestarts", "40m", 0, []string{`kubeweir_cache_feed_restarts_total{group="",resource="pods",reason="ended"} 0+1x60`}},
	{"KubeweirWatchesExpired", "15m", 1, []string{`kubeweir_watches_ended_total{reason="expired"} 0+2x20`}},
	{"KubeweirWatchesExpired", "15m", 0, []string{`kubeweir_watches_ended_total{reason="expired"} 0x5 3x20`, `kubeweir_watches_ended_total{reason="timeout"} 0+50x20`}},
	{"KubeweirSlowWatches", "10m", 1, []string{"kubeweir_slow_watches_ended_total 0x5 3x10"}},
	{"KubeweirSlowWatches", "10m", 0, []string{"kubeweir_slow_watches_ended_total 3x20"}},
	{"KubeweirHistoryShort", "20m", 1, []string{"kubeweir_cache_history_bytes" + collection + " 65000000x40", "kubeweir_cache_history_seconds" + collection + " 60x40", "kubeweir_cache_history_bytes_limit 67108864x40"}},
	{"KubeweirHistoryShort", "20m", 0, []string{"kubeweir_cache_history_bytes" + collection + " 65000000x40", "kubeweir_cache_history_seconds" + collection + " 500x40", "kubeweir_cache_history_bytes_limit 67108864x40"}},
	{"KubeweirHistoryShort", "20m", 0, []string{"kubeweir_cache_history_bytes" + collection + " 1000x40", "kubeweir_cache_history_seconds" + collection + " 60x40", "kubeweir_cache_history_bytes_limit 67108864x40"}},
	{"KubeweirSnapshotsNearLimit", "20m", 1, []string{"kubeweir_cache_snapshot_bytes" + collection + " 66000000x40", "kubeweir_cache_snapshot_bytes_limit 67108864x40"}},
	{"KubeweirSnapshotsNearLimit", "20m", 0, []string{"kubeweir_cache_snapshot_bytes" + collection + " 33000000x40", "kubeweir_cache_snapshot_bytes_limit 67108864x40"}},
	{"KubeweirStartsRejected", "10m", 1, []string{"kubeweir_cache_start_rejected_total 0x5 50x10"}},
	{"KubeweirStartsRejected", "10m", 0, []string{"kubeweir_cache_start_rejected_total 0x5 5x10"}},
	{"KubeweirMemoryNearBudget", "12m", 2, []string{"kubeweir_response_buffer_bytes 95x30", "kubeweir_response_buffer_bytes_limit 100x30", "kubeweir_collapsed_bytes 100x30", "kubeweir_collapsed_bytes_limit 100x30"}},
	{"KubeweirMemoryNearBudget", "12m", 1, []string{"kubeweir_waiting_stream_bytes 95x30", "kubeweir_waiting_stream_bytes_limit 100x30"}},
	{"KubeweirMemoryNearBudget", "12m", 1, []string{"kubeweir_long_request_bytes 95x30", "kubeweir_long_request_bytes_limit 100x30"}},
	{"KubeweirMemoryNearBudget", "12m", 0, []string{"kubeweir_response_buffer_bytes 50x30", "kubeweir_response_buffer_bytes_limit 100x30"}},

	{"KubeweirUpstreamUnreachable", "2m", 1, []string{"kubeweir_upstream_gone 1x10"}},
	{"KubeweirUpstreamUnreachable", "6m", 1, []string{"kubeweir_upstream_gone 0x10", `kubeweir_upstream_requests_total{code="0"} 0+9x10`, `kubeweir_upstream_requests_total{code="200"} 0+1x10`}},
	{"KubeweirUpstreamUnreachable", "6m", 0, []string{"kubeweir_upstream_gone 0x10", `kubeweir_upstream_requests_total{code="0"} 0+1x10`, `kubeweir_upstream_requests_total{code="200"} 0+9x10`}},
	{"KubeweirRightMissing", "6m", 1, []string{`kubeweir_upstream_missing_rights{verb="list",group="",resource="secrets"} 1x10`}},
	{"KubeweirRightMissing", "6m", 0, []string{`kubeweir_upstream_missing_rights{verb="list",group="",resource="secrets"} 1 1 stale`}},
	{"KubeweirUpstreamErrors", "16m", 1, []string{`kubeweir_upstream_requests_total{code="500"} 0+6x30`, `kubeweir_upstream_requests_total{code="200"} 0+60x30`}},
	{"KubeweirUpstreamErrors", "16m", 0, []string{`kubeweir_upstream_requests_total{code="404"} 0+6x30`, `kubeweir_upstream_requests_total{code="200"} 0+60x30`}},
	{"KubeweirUpstreamSlow", "16m", 1, histogram("kubeweir_upstream_response_seconds", `purpose="client"`, "2.5", "10", 5)},
	{"KubeweirUpstreamSlow", "16m", 0, histogram("kubeweir_upstream_response_seconds", `purpose="watch"`, "2.5", "10", 5)},
	{"KubeweirUpstreamSlow", "16m", 0, histogram("kubeweir_upstream_response_seconds", `purpose="client"`, "2.5", "10", 0)},
	{"KubeweirReviewsFailing", "12m", 1, []string{
		`kubeweir_authorization_reviews_total{result="error",from="upstream"} 0+10x20`, `kubeweir_authorization_reviews_total{result="allowed",from="upstream"} 0+10x20`,
		`kubeweir_authentication_token_reviews_total{result="error"} 0x20`, `kubeweir_authentication_token_reviews_total{result="valid"} 0+1x20`,
	}},
	{"KubeweirReviewsFailing", "12m", 0, []string{
		`kubeweir_authorization_reviews_total{result="error",from="upstream"} 0x20`, `kubeweir_authorization_reviews_total{result="denied",from="upstream"} 0+10x20`,
		`kubeweir_authentication_token_reviews_total{result="error"} 0x20`, `kubeweir_authentication_token_reviews_total{result="invalid"} 0+10x20`,
	}},
	{"KubeweirAuditEventsLost", "10m", 1, []string{`kubeweir_audit_events_total{result="dropped"} 0x5 4x10`, `kubeweir_audit_events_total{result="failed"} 0x20`}},
	{"KubeweirAuditEventsLost", "10m", 0, []string{`kubeweir_audit_events_total{result="written"} 0+100x20`, `kubeweir_audit_events_total{result="failed"} 0x20`}},

	{"KubeweirStoreUnavailable", "2m", 1, []string{"kubeweir_store_available 0x10"}},
	{"KubeweirStoreUnavailable", "2m", 0, []string{"kubeweir_store_available 1x10"}},
	{"KubeweirStoreUnavailable", "6m", 1, []string{"kubeweir_store_available 1x10", "kubeweir_store_queued_changes 0 3x10", "kubeweir_store_commit_seconds_count 7x10"}},
	{"KubeweirStoreUnavailable", "6m", 0, []string{"kubeweir_store_available 1x10", "kubeweir_store_queued_changes 0 3x10", "kubeweir_store_commit_seconds_count 0+1x10"}},
	{"KubeweirStoreUnavailable", "6m", 0, []string{"kubeweir_store_available 1x10", "kubeweir_store_queued_changes 0x10", "kubeweir_store_commit_seconds_count 7x10"}},
	{"KubeweirStoreReserveSpent", "1m", 1, []string{"kubeweir_store_reserve_spent 1x10"}},
	{"KubeweirStoreReserveSpent", "1m", 0, []string{"kubeweir_store_reserve_spent 0x10"}},
	{"KubeweirStoreDiskFilling", "6m", 1, []string{"kubeweir_store_disk_free_bytes 300000000x10", "kubeweir_store_disk_bytes 1000000000x10"}},
	{"KubeweirStoreDiskFilling", "6m", 0, []string{"kubeweir_store_disk_free_bytes 600000000x10", "kubeweir_store_disk_bytes 1000000000x10"}},
	{"KubeweirStoreSlow", "16m", 1, histogram("kubeweir_store_commit_seconds", `x=""`, "0.2048", "0.8192", 5)},
	{"KubeweirStoreSlow", "16m", 0, histogram("kubeweir_store_commit_seconds", `x=""`, "0.2048", "0.8192", 0)},
	{"KubeweirStoreCompactionStalled", "90m", 1, []string{"kubeweir_store_compactions_total 5x120", "kubeweir_store_revision 0+1000x120"}},
	{"KubeweirStoreCompactionStalled", "90m", 0, []string{"kubeweir_store_compactions_total 0+4x120", "kubeweir_store_revision 0+1000x120"}},
	{"KubeweirStoreCompactionStalled", "90m", 0, []string{"kubeweir_store_compactions_total 5x120", "kubeweir_store_revision 7x120"}},
	{"KubeweirEtcdUnavailable", "2m", 1, []string{"kubeweir_etcd_available 0x10"}},
	{"KubeweirEtcdUnavailable", "2m", 0, []string{"kubeweir_etcd_available 1x10"}},
	{"KubeweirEtcdUnavailable", "10m", 1, []string{
		"kubeweir_etcd_available 1 0 1 0 1x20", `kubeweir_etcd_request_seconds_count{operation="put"} 0+10x20`, `kubeweir_etcd_request_seconds_count{operation="range"} 0+90x20`,
		`kubeweir_etcd_request_errors_total{operation="put",reason="unavailable"} 0+9x20`,
	}},
	{"KubeweirEtcdUnavailable", "10m", 0, []string{
		"kubeweir_etcd_available 1x20", `kubeweir_etcd_request_seconds_count{operation="put"} 0+10x20`,
		`kubeweir_etcd_request_errors_total{operation="put",reason="unavailable"} 0+1x20`,
	}},
	{"KubeweirEtcdSlow", "16m", 1, histogram("kubeweir_etcd_request_seconds", `operation="put"`, "0.5", "2.5", 5)},
	{"KubeweirEtcdSlow", "16m", 0, histogram("kubeweir_etcd_request_seconds", `operation="put"`, "0.5", "2.5", 0)},
}

// TestAlerts runs the cases with promtool. Each alert has a case in which it fires and one in which
// it does not. All cases are in one promtool test, each as an instance of its own, because promtool
// creates a database per test. Only tests of absence need a promtool test of their own.
func TestAlerts(t *testing.T) {
	fires, silent := make(map[string]bool), make(map[string]bool)
	together := &promTest{Name: "together", Interval: "1m"}
	tests := []*promTest{together}
	for i, c := range alertCases {
		if c.fires > 0 {
			fires[c.alert] = true
		} else {
			silent[c.alert] = true
		}
		test, instance := together, fmt.Sprintf("case-%d", i)
		firing := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing",instance=%q})`, c.alert, instance)
		if c.alert == "KubeweirAbsent" {
			test = &promTest{Name: c.alert, Interval: "1m"}
			tests = append(tests, test)
			firing = fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"})`, c.alert)
		}
		for _, s := range c.series {
			test.Series = append(test.Series, input(s, instance))
		}
		expected := promExpression{Expr: firing, At: c.at, Samples: []promSample{}}
		if c.fires > 0 {
			expected.Samples = append(expected.Samples, promSample{"{}", c.fires})
		}
		test.Expressions = append(test.Expressions, expected)
	}
	for _, rule := range rules(t) {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s has no case in which it fires, or none in which it does not", rule.Alert)
		}
	}
	judge(t, "1m", tests)
}

// judge runs tests of the alerts with promtool, with the given evaluation interval.
func judge(t *testing.T, every string, tests []*promTest) {
	t.Helper()
	b, err := yaml.Marshal(map[string]any{"rule_files": []string{alertsFile(t)}, "evaluation_interval": every, "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "alerts_test.yaml")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// promTest and the types below are the parts of promtool's format that the tests need.
type promTest struct {
	Name        string           `json:"name"`
	Interval    string           `json:"interval"`
	Series      []promSeries     `json:"input_series"`
	Expressions []promExpression `json:"promql_expr_test"`
}

type promSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type promExpression struct {
	Expr    string       `json:"expr"`
	At      string       `json:"eval_time"`
	Samples []promSample `json:"exp_samples"`
}

type promSample struct {
	Labels string `json:"labels"`
	Value  int    `json:"value"`
}

// input returns a series with the labels of a target.
func input(series, instance string) promSeries {
	target := fmt.Sprintf(`job="kubeweir",namespace="kubeweir",instance=%q`, instance)
	name, rest, found := strings.Cut(series, "{")
	if !found {
		name, values, _ := strings.Cut(series, " ")
		return promSeries{name + "{" + target + "}", values}
	}
	labels, values, _ := strings.Cut(rest, "} ")
	return promSeries{name + "{" + target + "," + labels + "}", values}
}
