package monitoring

import "strings"

// This file contains the rows and panels of the dashboard.

func rows() []row {
	return []row{
		overview(), feeds(), clients(), saved(), watches(), permissions(), memory(), store(),
	}
}

// graph returns a panel with a third of the page's width.
func graph(title, unit, description string, queries ...query) panel {
	return panel{kind: "timeseries", title: title, unit: unit, description: description, width: 8, queries: queries}
}

// number returns a panel with the last value and a sixth of the page's width.
func number(title, unit, description, expr string, steps ...step) panel {
	return panel{kind: "stat", title: title, unit: unit, description: description, width: 4, steps: steps, queries: []query{{expr, ""}}}
}

func (p panel) stacked() panel { p.stack = true; return p }

// ofOne sets the maximum of the axis to 1.
func (p panel) ofOne() panel { p.max = 1; return p }

// from colors values red from bad on, and green below.
func from(bad float64) []step { return []step{{0, "green"}, {bad, "red"}} }

// share returns the share of requests that match.
func share(matchers string) string {
	return `sum(rate(kubeweir_requests_total{$sel,` + matchers + `}[$__rate_interval])) / sum(rate(kubeweir_requests_total{$sel}[$__rate_interval]))`
}

// quantile returns the 99th percentile of a histogram by labels.
func quantile(bucket, matchers string, by ...string) string {
	return `histogram_quantile(0.99, sum by (` + strings.Join(append(by, "le"), ", ") + `) (rate(` + bucket + `{$sel` + matchers + `}[$__rate_interval])))`
}

// sumRate returns the rate of a counter by labels.
func sumRate(counter, matchers string, by ...string) string {
	return `sum by (` + strings.Join(by, ", ") + `) (rate(` + counter + `{$sel` + matchers + `}[$__rate_interval]))`
}

func overview() row {
	return row{"Overview", []panel{
		number("Instances", "none", "Running processes with metrics.", `count(kubeweir_build_info{$sel})`),
		number("Requests", "reqps", "Requests of clients.", `sum(rate(kubeweir_requests_total{$sel}[$__rate_interval]))`),
		number("Cache hit ratio", "percentunit", "Share of the reads that were served without the upstream. With strict consistency, reads without a resourceVersion are revalidated or coalesced instead, see the row on upstream load.",
			`sum(rate(kubeweir_requests_total{$sel,source="cached"}[$__rate_interval])) / sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`),
		number("Server errors", "percentunit", "Share of the requests that ended in 5xx.", share(`code=~"5.."`), from(0.05)...),
		number("Feeds not synced", "none", "Collections that are starting or stale.", `count(kubeweir_cache_feed_synced{$sel} == 0) or vector(0)`, from(1)...),
		number("Open watches", "none", "Watches served from the cache.", `sum(kubeweir_watches_open{$sel})`),
		graph("Requests by source", "reqps", "Source of the response. cached: without the upstream; revalidated: from the cache, after the upstream listed the current versions; collapsed: one upstream request shared by identical requests; forwarded: sent to the upstream as the client; gateway: kubeweir itself.",
			query{sumRate("kubeweir_requests_total", "", "source"), "{{source}}"}).stacked(),
		graph("Errors by code", "reqps", "Requests that ended in 4xx or 5xx, by source of the response.",
			query{sumRate("kubeweir_requests_total", `,code=~"[45].."`, "code", "source"), "{{code}} {{source}}"}),
		graph("Request duration, 99th percentile", "s", "From a request's header to the end of its response, without watches. The duration of a list includes the time in which its client reads it.",
			query{quantile("kubeweir_request_duration_seconds_bucket", "", "verb", "source"), "{{verb}} {{source}}"}),
	}}
}

func feeds() row {
	return row{"Feeds", []panel{
		graph("Lag", "s", "Time since the upstream watch last received data or a heartbeat, or since it broke. Above 30 s a feed is stale.",
			query{`max by (instance, group, resource, encoding) (kubeweir_cache_feed_lag_seconds{$sel}) > 1`, "{{resource}}.{{group}} {{encoding}} {{instance}}"}),
		graph("Not synced", "none", "Collections that are starting or stale.",
			query{`1 - kubeweir_cache_feed_synced{$sel} > 0`, "{{resource}}.{{group}} {{encoding}} {{instance}}"}),
		graph("Feed restarts", "ops", "Upstream watches that ended, by reason.",
			query{sumRate("kubeweir_cache_feed_restarts_total", "", "reason"), "{{reason}}"}),
		graph("Events", "ops", "Events received from the upstream.",
			query{`topk(10, ` + sumRate("kubeweir_cache_feed_events_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Objects", "none", "Objects in the cache; the ten largest collections.",
			query{`topk(10, sum by (group, resource) (kubeweir_cache_objects{$sel}))`, "{{resource}}.{{group}}"}),
		graph("Self-checks", "ops", "Comparisons of collections with the upstream, by result. differs is never expected; unfinished: the upstream did not respond.",
			query{sumRate("kubeweir_cache_checks_total", "", "result"), "{{result}}"}),
		graph("Age of the last self-check", "s", "Time since a collection was last found equal to the upstream.",
			query{`topk(10, max by (group, resource, encoding) (kubeweir_cache_check_age_seconds{$sel}))`, "{{resource}}.{{group}} {{encoding}}"}),
		graph("Time to start a collection", "s", "99th percentile of the time from the first use of a resource until it was synced.",
			query{quantile("kubeweir_cache_start_seconds_bucket", "", "resource"), "{{resource}}"}),
	}}
}

func clients() row {
	return row{"Clients", []panel{
		graph("Requests by verb", "reqps", "", query{sumRate("kubeweir_requests_total", "", "verb"), "{{verb}}"}).stacked(),
		graph("Requests by resource", "reqps", "The ten most requested resources.",
			query{`topk(10, ` + sumRate("kubeweir_requests_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Response bytes", "Bps", "Bytes of bodies sent to clients, by source of the response.",
			query{sumRate("kubeweir_response_bytes_total", "", "source"), "{{source}}"}).stacked(),
		graph("Slots in use", "percentunit", "Requests in flight as a share of the limit; above it requests get 429.",
			query{`max by (kind) (kubeweir_requests_in_flight{$sel} / (kubeweir_requests_in_flight_limit{$sel} > 0))`, "{{kind}}"}).ofOne(),
		graph("Rejected requests", "reqps", "Requests that got 429. limit: no slot is free; share: the user holds too many.",
			query{sumRate("kubeweir_requests_rejected_total", "", "kind", "reason"), "{{kind}} {{reason}}"}),
		graph("Connections", "none", "Open client connections.",
			query{`sum by (listener, protocol) (kubeweir_connections{$sel})`, "{{listener}} {{protocol}}"},
			query{`sum(kubeweir_connections_limit{$sel})`, "limit"}),
	}}
}

func saved() row {
	return row{"Upstream load saved", []panel{
		graph("Reads of clients and of the upstream", "reqps", "Reads by clients, and reads that kubeweir sent to the upstream. For a standalone the upstream is in the process.",
			query{`sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`, "reads of clients"},
			query{`sum(rate(kubeweir_upstream_requests_total{$sel,method="GET"}[$__rate_interval]))`, "reads upstream"}),
		graph("Reads without an upstream request", "percentunit", "Reads served from the cache, or with the response to another client's identical request.",
			query{`(sum(rate(kubeweir_requests_total{$sel,source="cached"}[$__rate_interval])) + sum(rate(kubeweir_collapsed_shared_total{$sel}[$__rate_interval]))) / sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`, "share"}).ofOne(),
		graph("Bytes to clients and from the upstream", "Bps", "Response bodies as sent (compressed or not), without framing.",
			query{`sum(rate(kubeweir_response_bytes_total{$sel}[$__rate_interval]))`, "to clients"},
			query{`sum(rate(kubeweir_upstream_response_bytes_total{$sel}[$__rate_interval]))`, "from the upstream"}),
		graph("Upstream requests by purpose", "reqps", "list, watch: feeds of the cache; references: names and versions for revalidated lists; review: tokens and permissions; client, impersonate, own: forwarded requests.",
			query{sumRate("kubeweir_upstream_requests_total", "", "purpose"), "{{purpose}}"}).stacked(),
		graph("Reads forwarded", "reqps", "Gets, lists and watches that were forwarded, by reason (docs/reasons.md).",
			query{sumRate("kubeweir_forwarded_reads_total", "", "reason"), "{{reason}}"}).stacked(),
		graph("Missing permissions", "none", "Permissions that the cluster denies the gateway itself; kubeweir rbac prints those that it needs.",
			query{`max by (verb, group, resource) (kubeweir_upstream_missing_rights{$sel})`, "{{verb}} {{resource}}.{{group}}"}),
		graph("Upstream errors", "reqps", "Code 0 means no response.",
			query{sumRate("kubeweir_upstream_requests_total", `,code=~"0|[45].."`, "code", "purpose"), "{{code}} {{purpose}}"}),
		graph("Upstream response time", "s", "99th percentile of the time to the response headers.",
			query{quantile("kubeweir_upstream_response_seconds_bucket", "", "purpose"), "{{purpose}}"}),
	}}
}

func watches() row {
	return row{"Watches", []panel{
		graph("Open watches", "none", "cached: served from the cache; forwarded: served by the upstream, without upgraded connections.",
			query{`sum by (instance) (kubeweir_watches_open{$sel})`, "cached {{instance}}"},
			query{`sum by (instance) (kubeweir_watches_widened{$sel})`, "interval extended {{instance}}"},
			query{`sum by (instance) (kubeweir_upstream_streams{$sel})`, "forwarded {{instance}}"}),
		graph("Clients per upstream watch", "none", "Client watches that one upstream watch serves.",
			query{`sum by (group, resource) (kubeweir_cache_watchers{$sel})`, "{{resource}}.{{group}}"}),
		graph("Deliveries", "ops", "Events delivered to client watches.",
			query{`topk(10, ` + sumRate("kubeweir_cache_deliveries_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Ended watches", "ops", "Client watches that ended, by reason. expired: 410, too slow or older than the history.",
			query{sumRate("kubeweir_watches_ended_total", "", "reason"), "{{reason}}"},
			query{`sum(rate(kubeweir_slow_watches_ended_total{$sel}[$__rate_interval]))`, "not reading"}),
		graph("Lagging", "none", "Client watches with events unread for longer than a second.",
			query{`sum by (group, resource) (kubeweir_cache_watchers_lagging{$sel}) > 0`, "{{resource}}.{{group}}"}),
		graph("History", "s", "Age of the oldest retained event: how long a client may be disconnected and still resume. The ten shortest histories with more than 100 events.",
			query{`bottomk(10, min by (group, resource) (kubeweir_cache_history_seconds{$sel} and kubeweir_cache_history_events{$sel} > 100))`, "{{resource}}.{{group}}"}),
	}}
}

func permissions() row {
	return row{"Permission cache", []panel{
		graph("Permissions", "ops", "upstream: a SubjectAccessReview; cache: a cached decision; offline: the last decision or the cached RBAC objects, while the upstream is unreachable.",
			query{sumRate("kubeweir_authorization_reviews_total", "", "result", "from"), "{{result}} {{from}}"}).stacked(),
		graph("Tokens", "ops", "valid, invalid, error: a TokenReview; cached: a cached result.",
			query{sumRate("kubeweir_authentication_token_reviews_total", "", "result"), "{{result}}"}).stacked(),
		graph("Cache entries", "percentunit", "Entries as a share of the limit.",
			query{`max(kubeweir_authorization_cache_entries{$sel} / kubeweir_authorization_cache_entries_limit{$sel})`, "permissions"},
			query{`max(kubeweir_authorization_visible_namespaces{$sel} / kubeweir_authorization_visible_namespaces_limit{$sel})`, "visible namespaces"},
			query{`max(kubeweir_authentication_cache_entries{$sel} / kubeweir_authentication_cache_entries_limit{$sel})`, "tokens"}).ofOne(),
		graph("Authentication", "reqps", "How requests were authenticated, or why they were not.",
			query{sumRate("kubeweir_authentication_requests_total", "", "result"), "{{result}}"}),
		graph("Permission invalidations", "ops", "How often all cached decisions were dropped because an RBAC object changed.",
			query{`sum(rate(kubeweir_authorization_invalidations_total{$sel}[$__rate_interval]))`, "drops"}),
		graph("Reviews of open watches", "ops", "Repeated permission reviews of open watches, and watches ended without permission.",
			query{sumRate("kubeweir_authorization_watch_rechecks_total", "", "result"), "{{result}}"},
			query{sumRate("kubeweir_authorization_watches_ended_total", "", "reason"), "ended: {{reason}}"}),
	}}
}

func memory() row {
	budget := func(name string) query {
		return query{`max(` + name + `{$sel} / (` + name + `_limit{$sel} > 0))`, strings.ReplaceAll(strings.TrimPrefix(name, "kubeweir_"), "_", " ")}
	}
	return row{"Memory and budgets", []panel{
		graph("Process", "bytes", "resident: resident memory of the process; heap: Go heap in use.",
			query{`process_resident_memory_bytes{$sel} and on (job, namespace, instance) kubeweir_build_info`, "resident {{instance}}"},
			query{`go_memstats_heap_inuse_bytes{$sel} and on (job, namespace, instance) kubeweir_build_info`, "heap {{instance}}"}),
		graph("Budgets of the process", "percentunit", "Derived forms are a cache and normally full.",
			budget("kubeweir_derived_bytes"), budget("kubeweir_response_buffer_bytes"), budget("kubeweir_waiting_stream_bytes"), budget("kubeweir_collapsed_bytes"),
			budget("kubeweir_long_request_bytes")).ofOne(),
		graph("Budgets of collections", "percentunit", "The fullest collection of each process.",
			query{`max by (instance) (kubeweir_cache_history_bytes{$sel}) / on (instance) kubeweir_cache_history_bytes_limit{$sel}`, "history {{instance}}"},
			query{`max by (instance) (kubeweir_cache_snapshot_bytes{$sel}) / on (instance) kubeweir_cache_snapshot_bytes_limit{$sel}`, "snapshots {{instance}}"}).ofOne(),
		graph("Objects", "bytes", "Encoded size of the objects in the cache; the ten largest collections.",
			query{`topk(10, sum by (group, resource, encoding) (kubeweir_cache_object_bytes{$sel}))`, "{{resource}}.{{group}} {{encoding}}"}).stacked(),
		graph("Histories", "bytes", "Events, their encoded forms, and snapshots.",
			query{`sum(kubeweir_cache_history_bytes{$sel})`, "events"},
			query{`sum(kubeweir_cache_history_frame_bytes{$sel})`, "encoded"},
			query{`sum(kubeweir_cache_snapshot_bytes{$sel})`, "snapshots"}).stacked(),
		graph("Hit ratio of derived forms", "percentunit", "Lookups of compressed lists, Table rows and metadata that found a cached form.",
			query{`sum by (form) (rate(kubeweir_derived_lookups_total{$sel,result="hit"}[$__rate_interval])) / sum by (form) (rate(kubeweir_derived_lookups_total{$sel}[$__rate_interval]))`, "{{form}}"}).ofOne(),
	}}
}

func store() row {
	return row{"Store of a standalone", []panel{
		graph("Commits", "ops", "Groups of changes made durable, and the changes in them.",
			query{`sum by (instance) (rate(kubeweir_store_commit_seconds_count{$sel}[$__rate_interval]))`, "commits {{instance}}"},
			query{`sum by (instance) (rate(kubeweir_store_commit_changes_sum{$sel}[$__rate_interval]))`, "changes {{instance}}"}),
		graph("Commit duration", "s", "99th percentile of the time until a group is on disk.",
			query{quantile("kubeweir_store_commit_seconds_bucket", "", "instance"), "{{instance}}"}),
		graph("Disk", "bytes", "",
			query{`kubeweir_store_disk_bytes{$sel}`, "used {{instance}}"},
			query{`kubeweir_store_disk_free_bytes{$sel}`, "free {{instance}}"}),
		graph("Keys", "none", "", query{`kubeweir_store_keys{$sel}`, "{{instance}}"}),
		graph("History", "none", "Readable revisions, and changes waiting for the disk.",
			query{`kubeweir_store_revision{$sel} - kubeweir_store_compacted_revision{$sel}`, "revisions {{instance}}"},
			query{`kubeweir_store_queued_changes{$sel}`, "waiting {{instance}}"}),
		graph("Memory", "bytes", "",
			query{`kubeweir_store_index_bytes{$sel}`, "index {{instance}}"}),
		graph("etcd: request duration", "s", "99th percentile; only with --etcd-servers.",
			query{quantile("kubeweir_etcd_request_seconds_bucket", "", "operation"), "{{operation}}"}),
		graph("etcd: errors", "ops", "",
			query{sumRate("kubeweir_etcd_request_errors_total", "", "operation", "reason"), "{{operation}} {{reason}}"}),
		graph("Accepts changes", "bool_yes_no", "Whether the store, or etcd, accepts writes.",
			query{`kubeweir_store_available{$sel}`, "store {{instance}}"},
			query{`kubeweir_etcd_available{$sel}`, "etcd {{instance}}"}).ofOne(),
	}}
}
