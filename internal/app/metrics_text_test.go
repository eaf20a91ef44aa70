package app

import (
	"fmt"
	"strings"

	"github.com/kubeweir/kubeweir/internal/reason"
)

// This file has the texts of docs/metrics.md that are not in the code of the metrics.

// section is a section of docs/metrics.md. A metric belongs to the first section with a matching prefix.
type section struct {
	title, intro string
	prefixes     []string
}

var sections = []section{
	{"Process", "", []string{"build_info", "panics"}},
	{"Requests", "", []string{"requests_", "request_", "forwarded_", "rejections", "response_bytes", "long_request"}},
	{"Connections", "", []string{"connections", "malformed", "serving_", "response_buffer", "unread_streams", "waiting_stream"}},
	{"Reads from the cache", "", []string{"read_", "derived_", "stale_", "openapi_"}},
	{"Collections", "The cache has one collection per resource and encoding that clients read.", []string{"cache_"}},
	{"Checkpoints", "With `--state-dir`; see [warm-start.md](warm-start.md).", []string{"state_"}},
	{"Watches", "", []string{"watches_", "slow_watches"}},
	{"Most-recent reads", "Reads without a resourceVersion.", []string{"collapsed_", "session_"}},
	{"Upstream", "For a standalone, the upstream is the API server in the same process.", []string{"upstream_"}},
	{"Authentication and authorization", "", []string{"authentication_", "authorization_"}},
	{"Usage by client", "See [usage.md](usage.md).", []string{"usage_", "budget_", "blocked_"}},
	{"ClusterProfiles", "With `clusterProfiles`; see [clusters.md](clusters.md#clusterprofiles).", []string{"clusterprofiles_"}},
	{"Configuration file", "Gateway only; see [config.md](config.md#reloading).", []string{"config_"}},
	{"Audit log", "With `--audit-log-path` or `--audit-webhook-config-file`.", []string{"audit_"}},
	{"Tracing", "With `--tracing-config-file`; see [tracing.md](tracing.md).", []string{"tracing_"}},
	{"Store of a standalone", "Without `--etcd-servers`.", []string{"store_", "origin_"}},
	{"etcd", "With `--etcd-servers`.", []string{"etcd_"}},
}

// everywhere are the labels that have the same meaning in all metrics.
var everywhere = []struct{ label, values, bound string }{
	{"group", "", "the API group as in discovery; \"\" is the core group"},
	{"resource", "", "the plural as in discovery; \"\" for requests without a resource or with an unknown one. Request metrics have at most 4,096 label sets; further requests have verb, group and resource `other`"},
	{"verb", "get, list, watch, create, update, patch, delete, deletecollection, post, put, head, options, proxy, other", "the Kubernetes verb; the method for non-resource requests; \"\" if there is none"},
	{"source", "cached, revalidated, collapsed, forwarded, gateway", "the source of the response, see kubeweir_requests_total"},
	{"code", "", "the HTTP status; about 60 known ones"},
	{"encoding", "json, protobuf, cbor", ""},
	{"listener", "secure, sidecar", "`--listen`, `--insecure-listen`"},
	{"purpose", "client, impersonate, own, list, version-list, watch, version, discovery, review", "client, impersonate, own: forwarded with the client's token, by impersonation, as the gateway; list, watch: feeds; version-list: lists of names and versions; version: the upstream's current version"},
	{"method", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, other", ""},
	{"server", "", "the host and port of an API server; at most 16"},
	{"operation", "compact, delete, lease, put, range, revision, watch", ""},
}

// particular are the values of the other labels, by metric and label name.
var particular = map[string]string{
	"budget_exceeded_total.rule":                "",
	"budget_exceeded_total.outcome":             "rejected, cached",
	"build_info.version":                        "",
	"build_info.goversion":                      "",
	"build_info.mode":                           "gateway, standalone",
	"panics_total.place":                        "handler, body, stream, upgrade, done, connection, watch, feed, background",
	"forwarded_reads_total.reason":              labelsOf(reason.Forwards()),
	"rejections_total.reason":                   labelsOf(reason.Rejections()),
	"requests_in_flight.kind":                   "short, long, unidentified, resumed, all-short, all-long",
	"requests_in_flight_limit.kind":             "short, long, unidentified, resumed, all-short, all-long",
	"requests_rejected_total.kind":              "short, long, bytes, unidentified",
	"requests_rejected_total.reason":            "limit, share, all, cluster",
	"clusterprofiles_rejected.reason":           "name-taken, access, cluster, max",
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
	"cache_backfills_total.result":              "done, expired, full, failed, abandoned",
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
	"audit_events_total.backend":                "log, webhook",
	"audit_queue_events.backend":                "log, webhook",
	"audit_events_total.result":                 "written, dropped, failed",
	"tracing_spans_total.result":                "exported, failed, dropped",
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

// healthy describes the values of a healthy system, unless they are obvious.
var healthy = map[string]string{
	"panics_total":                       "0",
	"requests_total":                     "session consistency: 90 % of the reads are cached; strict consistency: reads of informers are cached, reads without a resourceVersion are revalidated, collapsed or forwarded",
	"request_duration_seconds":           "well below 1 ms for cached gets; the client's reading time for lists",
	"requests_in_flight":                 "below 80 % of the limit",
	"requests_rejected_total":            "does not grow",
	"connections":                        "below 80 % of the limit",
	"malformed_requests_total":           "grows where scanners reach the listener",
	"response_buffer_bytes":              "about 32 KiB per response in flight",
	"waiting_stream_bytes":               "8 KiB per response that its client does not read at once",
	"derived_bytes":                      "at the limit after a while, because it is a cache",
	"cache_feed_synced":                  "1",
	"cache_feed_lag_seconds":             "a few seconds for a gateway, which pings its connections; stale from 30 (`--feed-stale-after`)",
	"cache_feed_restarts_total":          "reason=ended, two or three times an hour per collection",
	"cache_fresh_rounds_total":           "failed does not grow",
	"cache_backfills_total":              "failed does not grow",
	"cache_checks_total":                 "differs is 0; unfinished does not grow while the upstream is reachable",
	"cache_differences_total":            "no series",
	"cache_check_age_seconds":            "up to two periods (`--self-check-period`)",
	"cache_start_rejected_total":         "grows only after a restart with many clients",
	"cache_history_seconds":              "up to 600 (`--history-age`); less if the byte limit is reached first, or nothing changes",
	"cache_watchers_lagging":             "0, briefly more",
	"cache_watchers_expired_total":       "hardly grows",
	"state_saves_total":                  "failed does not grow",
	"state_bytes":                        "below half of the limit, because a rewritten checkpoint briefly exists twice",
	"watches_ended_total":                "timeout and client; expired and slow hardly grow",
	"slow_watches_ended_total":           "0",
	"unread_streams_reset_total":         "0",
	"upstream_requests_total":            "far fewer than kubeweir_requests_total; code 0 does not grow",
	"upstream_gone":                      "0",
	"upstream_server_up":                 "1",
	"upstream_server_ejections_total":    "grows when API servers are restarted",
	"upstream_server_retries_total":      "grows together with ejections",
	"upstream_delay_seconds":             "the round trip to the upstream, well below 1 s",
	"stale_responses_total":              "grows only in outages",
	"upstream_missing_rights":            "no series",
	"upstream_broken_responses_total":    "does not grow",
	"authentication_token_reviews_total": "mostly cached; error does not grow",
	"authorization_reviews_total":        "mostly cache; error does not grow",
	"clusterprofiles_rejected":           "0",
	"audit_events_total":                 "dropped and failed are 0",
	"tracing_spans_total":                "dropped and failed are 0",
	"tracing_queued_spans":               "below 2048",
	"config_reloads_total":               "failure does not grow",
	"config_last_reload_successful":      "1",
	"config_restart_settings":            "0",
	"store_commit_seconds":               "1 to 10 ms, the time of an fsync",
	"store_available":                    "1",
	"store_reserve_spent":                "0",
	"store_queued_changes":               "small; otherwise the disk is too slow",
	"etcd_available":                     "1",
	"etcd_watches_reopened_total":        "hardly grows",
}
