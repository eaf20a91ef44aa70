package serve

import (
	"fmt"
	"strings"

	"github.com/kubeweir/kubeweir/reason"
)

// This file is what docs/metrics.md says of the metrics besides what their code says.

// section is a heading of docs/metrics.md; prefixes choose its metrics, of all sections the first that fits.
type section struct {
	title, intro string
	prefixes     []string
}

var sections = []section{
	{"Process", "", []string{"build_info", "panics"}},
	{"Requests", "", []string{"requests_", "request_", "forwarded_", "refusals", "response_bytes", "long_request", "transcoded_"}},
	{"Connections", "", []string{"connections", "malformed", "serving_", "response_buffer", "unread_streams", "waiting_stream"}},
	{"Reads from the cache", "", []string{"read_", "derived_", "stale_", "openapi_"}},
	{"Collections", "One is kept of each resource and encoding that is read.", []string{"cache_"}},
	{"What is kept over restarts", "With `--state-dir`; see [warm-start.md](warm-start.md).", []string{"state_"}},
	{"Watches", "", []string{"watches_", "slow_watches"}},
	{"Most-recent reads", "Reads without a resourceVersion.", []string{"collapsed_", "session_"}},
	{"Upstream", "Of a standalone this is the API server in the same process.", []string{"upstream_"}},
	{"Who asks, and what they may do", "", []string{"authentication_", "authorization_"}},
	{"Who costs what", "See [usage.md](usage.md).", []string{"usage_", "budget_", "blocked_"}},
	{"Clusters of a hub", "With `clusterProfiles`; see [clusters.md](clusters.md#clusterprofiles).", []string{"clusterprofiles_"}},
	{"Configuration file", "Of a gateway; see [config.md](config.md#reloading).", []string{"config_"}},
	{"Audit log", "With `--audit-log-path`.", []string{"audit_"}},
	{"Standalone's store", "Without `--etcd-servers`.", []string{"store_", "origin_"}},
	{"etcd", "With `--etcd-servers`.", []string{"etcd_"}},
}

// everywhere are the labels that mean the same wherever they are.
var everywhere = []struct{ label, values, bound string }{
	{"group", "", "the API group, \"\" for the core; as discovery names it"},
	{"resource", "", "the plural, as discovery names it; \"\" for requests that name none, or one that discovery does not know. The label sets of requests are 4,096 at most; what comes after them has verb, group and resource `other`"},
	{"verb", "get, list, watch, create, update, patch, delete, deletecollection, post, put, head, options, proxy, other", "of Kubernetes; for requests that are for no resource the method; \"\" where there is none"},
	{"source", "cached, revalidated, collapsed, forwarded, gateway", "where the answer came from"},
	{"code", "", "the HTTP status, if it is known: some 60"},
	{"encoding", "json, protobuf, cbor", ""},
	{"listener", "secure, sidecar", "`--listen`, `--insecure-listen`"},
	{"purpose", "client, impersonate, own, list, references, watch, version, discovery, review", "client, impersonate, own: forwarded with the client's token, by impersonation, as the gateway; list, watch: feeds; references: names and versions alone; version: how new the upstream is"},
	{"method", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, other", ""},
	{"server", "", "the host and port of an API server, 16 at most"},
	{"operation", "compact, delete, lease, put, range, revision, watch", ""},
}

// particular are the values of the other labels, by metric and label.
var particular = map[string]string{
	"budget_answers_total.rule":                 "",
	"budget_answers_total.answer":               "refused, cached",
	"build_info.version":                        "",
	"build_info.goversion":                      "",
	"build_info.mode":                           "gateway, standalone",
	"panics_total.place":                        "handler, body, stream, upgrade, done, connection, watch, feed, background",
	"forwarded_reads_total.reason":              labelsOf(reason.Forwards()),
	"refusals_total.reason":                     labelsOf(reason.Refusals()),
	"requests_in_flight.kind":                   "short, long, unidentified, resumed, all-short, all-long",
	"requests_in_flight_limit.kind":             "short, long, unidentified, resumed, all-short, all-long",
	"requests_refused_total.kind":               "short, long, bytes, unidentified",
	"requests_refused_total.reason":             "limit, share, all, cluster",
	"clusterprofiles_refused.reason":            "name-taken, access, cluster, max",
	"transcoded_total.kind":                     "request, answer, event",
	"transcoded_total.result":                   "ok, error, busy",
	"connections.protocol":                      "handshake, http/1.1, h2",
	"connections_rejected_total.reason":         "limit, handshake, accept",
	"serving_certificate_reloads_total.result":  "ok, error",
	"upstream_certificate_reloads_total.result": "ok, error",
	"read_body_bytes_total.transform":           "none, table, metadata",
	"read_body_bytes_total.coding":              "identity, gzip, zstd",
	"derived_lookups_total.form":                "row, metadata, rows, metadata_list, table_window, body, initial_events, transcoded, transcoded_list, redacted, redacted_list",
	"derived_lookups_total.result":              "hit, miss",
	"cache_feed_restarts_total.reason":          "ended, error, expired, silent, suspect, late, order, too_large, decode, rewound",
	"cache_feed_events_total.type":              "ADDED, MODIFIED, DELETED",
	"cache_fresh_rounds_total.way":              "held, fed, listed, probed, failed, immediate",
	"cache_checks_total.result":                 "same, differs, unfinished",
	"cache_differences_total.difference":        "missing, extra, version, bytes",
	"state_saves_total.result":                  "saved, failed",
	"state_loads_total.result":                  "confirmed, absent, damaged, old, redefined, rewound, unreadable",
	"watches_ended_total.reason":                labelsOf(reason.WatchEnds()),
	"authentication_requests_total.result":      "gateway, front-proxy, client-certificate, bearer-token, anonymous, unauthenticated, unavailable, error",
	"authentication_token_reviews_total.result": "valid, invalid, error, cached, offline, limited",
	"authorization_reviews_total.result":        "allowed, denied, error",
	"authorization_reviews_total.from":          "upstream, cache, offline",
	"authorization_visible_reviews.for":         "read, recheck",
	"authorization_watch_rechecks_total.result": "good, offline, lost, unknown",
	"authorization_watches_ended_total.reason":  "permission-revoked, namespaces-changed, credential-invalid, unconfirmed",
	"audit_events_total.result":                 "written, dropped, failed",
	"config_reloads_total.result":               "success, failure",
	"etcd_request_errors_total.reason":          "context, closed, compacted, too_large, unavailable, future, other",
}

// labelsOf are the labels of an enumeration.
func labelsOf[T fmt.Stringer](reasons []T) string {
	labels := make([]string, len(reasons))
	for i, r := range reasons {
		labels[i] = r.String()
	}
	return strings.Join(labels, ", ")
}

// healthy says what a good value looks like, where that is not plain.
var healthy = map[string]string{
	"panics_total":                       "0",
	"requests_total":                     "under session consistency nine reads in ten are cached; under strict, informers' are, and reads without a resourceVersion are revalidated, collapsed or forwarded",
	"request_duration_seconds":           "cached gets: well below 1 ms; lists: what their clients take to read them",
	"requests_in_flight":                 "below 80 % of the limit",
	"requests_refused_total":             "does not grow",
	"connections":                        "below 80 % of the limit",
	"malformed_requests_total":           "grows where scanners reach the listener",
	"response_buffer_bytes":              "some 32 KiB for each response under way",
	"waiting_stream_bytes":               "8 KiB for each answer that its client does not take at once",
	"derived_bytes":                      "at its limit after a while: it is a cache",
	"cache_feed_synced":                  "1",
	"cache_feed_lag_seconds":             "a few seconds of a gateway, whose connections are pinged; stale from 30 (`--feed-stale-after`)",
	"cache_feed_restarts_total":          "reason=ended, two or three an hour for each collection",
	"cache_fresh_rounds_total":           "failed does not grow",
	"cache_checks_total":                 "differs is 0, unfinished does not grow while the upstream answers",
	"cache_differences_total":            "no series",
	"cache_check_age_seconds":            "up to two periods (`--self-check-period`)",
	"cache_start_refused_total":          "grows after a restart under many clients only",
	"cache_history_seconds":              "up to 600 (`--history-age`); less where the budget is used up first, or nothing changes",
	"cache_watchers_lagging":             "0, for moments more",
	"cache_watchers_expired_total":       "hardly grows",
	"state_saves_total":                  "failed does not grow",
	"state_bytes":                        "below half of its limit: what is written anew is there twice for a moment",
	"watches_ended_total":                "timeout and client; expired and slow hardly grow",
	"slow_watches_ended_total":           "0",
	"unread_streams_reset_total":         "0",
	"upstream_requests_total":            "far fewer than kubeweir_requests_total; code 0 does not grow",
	"upstream_gone":                      "0",
	"upstream_server_up":                 "1",
	"upstream_server_ejections_total":    "grows when API servers are restarted",
	"upstream_server_retries_total":      "as ejections",
	"upstream_delay_seconds":             "the round trip to the upstream, well below 1 s",
	"stale_answers_total":                "grows in outages only",
	"upstream_missing_rights":            "no series",
	"upstream_broken_responses_total":    "does not grow",
	"authentication_token_reviews_total": "cached for the most part; error does not grow",
	"authorization_reviews_total":        "cache for the most part; error does not grow",
	"clusterprofiles_refused":            "0",
	"audit_events_total":                 "dropped and failed are 0",
	"config_reloads_total":               "failure does not grow",
	"config_last_reload_successful":      "1",
	"config_restart_settings":            "0",
	"store_commit_seconds":               "that of a disk's sync: 1 to 10 ms",
	"store_available":                    "1",
	"store_reserve_spent":                "0",
	"store_queued_changes":               "small, or the disk does not keep up",
	"etcd_available":                     "1",
	"etcd_watches_reopened_total":        "hardly grows",
}
