package monitoring

import "strings"

// This file is what the dashboard shows.

func rows() []row {
	return []row{
		overview(), feeds(), clients(), saved(), watches(), permissions(), memory(), store(),
	}
}

// graph is a panel a third of the page wide.
func graph(title, unit, description string, queries ...query) panel {
	return panel{kind: "timeseries", title: title, unit: unit, description: description, width: 8, queries: queries}
}

// number is a panel that shows the last value, a sixth of the page wide.
func number(title, unit, description, expr string, steps ...step) panel {
	return panel{kind: "stat", title: title, unit: unit, description: description, width: 4, steps: steps, queries: []query{{expr, ""}}}
}

func (p panel) stacked() panel { p.stack = true; return p }

// ofOne makes 1 the top of the axis.
func (p panel) ofOne() panel { p.max = 1; return p }

// good and bad colour a number that is bad from a value on.
func from(bad float64) []step { return []step{{0, "green"}, {bad, "red"}} }

// share is the part that requests with matchers have of all.
func share(matchers string) string {
	return `sum(rate(kubeweir_requests_total{$sel,` + matchers + `}[$__rate_interval])) / sum(rate(kubeweir_requests_total{$sel}[$__rate_interval]))`
}

// quantile is the 99th percentile of a histogram by labels.
func quantile(bucket, matchers string, by ...string) string {
	return `histogram_quantile(0.99, sum by (` + strings.Join(append(by, "le"), ", ") + `) (rate(` + bucket + `{$sel` + matchers + `}[$__rate_interval])))`
}

// sumRate is the rate of a counter by labels.
func sumRate(counter, matchers string, by ...string) string {
	return `sum by (` + strings.Join(by, ", ") + `) (rate(` + counter + `{$sel` + matchers + `}[$__rate_interval]))`
}

func overview() row {
	return row{"Overview", []panel{
		number("Instances", "none", "Processes that are scraped.", `count(kubeweir_build_info{$sel})`),
		number("Requests", "reqps", "Requests of clients.", `sum(rate(kubeweir_requests_total{$sel}[$__rate_interval]))`),
		number("From the cache", "percentunit", "Share of the reads that the upstream was not asked for. With strict consistency, reads without a resourceVersion are revalidated or collapsed instead, see the row on upstream cost.",
			`sum(rate(kubeweir_requests_total{$sel,source="cached"}[$__rate_interval])) / sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`),
		number("Server errors", "percentunit", "Share of the requests that ended in 5xx.", share(`code=~"5.."`), from(0.05)...),
		number("Feeds not synced", "none", "Collections that are starting or stale.", `count(kubeweir_cache_feed_synced{$sel} == 0) or vector(0)`, from(1)...),
		number("Open watches", "none", "Watches served from the cache.", `sum(kubeweir_watches_open{$sel})`),
		graph("Requests by where the answer came from", "reqps", "cached: the upstream was not asked; revalidated: it named the current versions, the bytes are the cache's; collapsed: one request to it, shared by all who asked the same meanwhile; forwarded: sent on as the client; gateway: kubeweir's own answer.",
			query{sumRate("kubeweir_requests_total", "", "source"), "{{source}}"}).stacked(),
		graph("Errors by code", "reqps", "Requests that ended in 4xx or 5xx, by who said so.",
			query{sumRate("kubeweir_requests_total", `,code=~"[45].."`, "code", "source"), "{{code}} {{source}}"}),
		graph("99th percentile of durations", "s", "From a request's header to the end of its response, without watches. A list takes as long as its client reads.",
			query{quantile("kubeweir_request_duration_seconds_bucket", "", "verb", "source"), "{{verb}} {{source}}"}),
	}}
}

func feeds() row {
	return row{"Feeds", []panel{
		graph("Lag", "s", "Time since the feed's connection last gave a sign of life, or since the feed broke. Above 30 s a feed is stale.",
			query{`max by (instance, group, resource, encoding) (kubeweir_cache_feed_lag_seconds{$sel}) > 1`, "{{resource}}.{{group}} {{encoding}} {{instance}}"}),
		graph("Not synced", "none", "Collections that are starting or stale.",
			query{`1 - kubeweir_cache_feed_synced{$sel} > 0`, "{{resource}}.{{group}} {{encoding}} {{instance}}"}),
		graph("Ends of feeds", "ops", "How often the upstream's watches ended, by reason.",
			query{sumRate("kubeweir_cache_feed_restarts_total", "", "reason"), "{{reason}}"}),
		graph("Events", "ops", "Events received from the upstream.",
			query{`topk(10, ` + sumRate("kubeweir_cache_feed_events_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Objects", "none", "Objects held; the ten largest collections.",
			query{`topk(10, sum by (group, resource) (kubeweir_cache_objects{$sel}))`, "{{resource}}.{{group}}"}),
		graph("Checks", "ops", "How often collections were compared with the upstream, by result. differs is never expected; unfinished: the upstream did not answer.",
			query{sumRate("kubeweir_cache_checks_total", "", "result"), "{{result}}"}),
		graph("Not checked for", "s", "Time since a collection was last found equal to the upstream.",
			query{`topk(10, max by (group, resource, encoding) (kubeweir_cache_check_age_seconds{$sel}))`, "{{resource}}.{{group}} {{encoding}}"}),
		graph("Time to start a collection", "s", "99th percentile from the first use of a resource until it was complete.",
			query{quantile("kubeweir_cache_start_seconds_bucket", "", "resource"), "{{resource}}"}),
	}}
}

func clients() row {
	return row{"Clients", []panel{
		graph("Requests by verb", "reqps", "", query{sumRate("kubeweir_requests_total", "", "verb"), "{{verb}}"}).stacked(),
		graph("Requests by resource", "reqps", "The ten most asked for.",
			query{`topk(10, ` + sumRate("kubeweir_requests_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Response bytes", "Bps", "Bytes of bodies sent to clients, by where the answer came from.",
			query{sumRate("kubeweir_response_bytes_total", "", "source"), "{{source}}"}).stacked(),
		graph("Places in use", "percentunit", "Requests under way as a share of the limit; above it requests are answered 429.",
			query{`max by (kind) (kubeweir_requests_in_flight{$sel} / (kubeweir_requests_in_flight_limit{$sel} > 0))`, "{{kind}}"}).ofOne(),
		graph("Refused", "reqps", "Requests answered 429. limit: no place is free; share: the user holds too many.",
			query{sumRate("kubeweir_requests_refused_total", "", "kind", "reason"), "{{kind}} {{reason}}"}),
		graph("Connections", "none", "Open client connections.",
			query{`sum by (listener, protocol) (kubeweir_connections{$sel})`, "{{listener}} {{protocol}}"},
			query{`sum(kubeweir_connections_limit{$sel})`, "limit"}),
	}}
}

func saved() row {
	return row{"Upstream cost saved", []panel{
		graph("Reads of clients and requests upstream", "reqps", "What clients read, and every request that kubeweir made to the upstream. For a standalone the upstream is in the process.",
			query{`sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`, "reads of clients"},
			query{`sum(rate(kubeweir_upstream_requests_total{$sel,method="GET"}[$__rate_interval]))`, "reads upstream"}),
		graph("Reads that cost the upstream nothing", "percentunit", "Reads answered from the cache, or with the answer to somebody else's request.",
			query{`(sum(rate(kubeweir_requests_total{$sel,source="cached"}[$__rate_interval])) + sum(rate(kubeweir_collapsed_shared_total{$sel}[$__rate_interval]))) / sum(rate(kubeweir_requests_total{$sel,verb=~"get|list|watch"}[$__rate_interval]))`, "share"}).ofOne(),
		graph("Bytes to clients and from the upstream", "Bps", "Bodies without frames; compressed ones as they were sent.",
			query{`sum(rate(kubeweir_response_bytes_total{$sel}[$__rate_interval]))`, "to clients"},
			query{`sum(rate(kubeweir_upstream_response_bytes_total{$sel}[$__rate_interval]))`, "from the upstream"}),
		graph("Requests upstream by purpose", "reqps", "list, watch: the cache's feeds; references: names and versions for revalidated lists; review: tokens and permissions; client, impersonate, own: forwarded.",
			query{sumRate("kubeweir_upstream_requests_total", "", "purpose"), "{{purpose}}"}).stacked(),
		graph("Reads forwarded", "reqps", "Gets, lists and watches that were sent on, by reason (docs/reasons.md).",
			query{sumRate("kubeweir_forwarded_reads_total", "", "reason"), "{{reason}}"}).stacked(),
		graph("Missing rights", "none", "Rights that the cluster refused the gateway itself; kubeweir rbac prints those that it needs.",
			query{`max by (verb, group, resource) (kubeweir_upstream_missing_rights{$sel})`, "{{verb}} {{resource}}.{{group}}"}),
		graph("Upstream errors", "reqps", "Code 0 is no answer.",
			query{sumRate("kubeweir_upstream_requests_total", `,code=~"0|[45].."`, "code", "purpose"), "{{code}} {{purpose}}"}),
		graph("Upstream's time to answer", "s", "99th percentile until the head of the response.",
			query{quantile("kubeweir_upstream_response_seconds_bucket", "", "purpose"), "{{purpose}}"}),
	}}
}

func watches() row {
	return row{"Watches", []panel{
		graph("Open watches", "none", "served from the cache; forwarded: the upstream's own, upgraded connections apart.",
			query{`sum by (instance) (kubeweir_watches_open{$sel})`, "cached {{instance}}"},
			query{`sum by (instance) (kubeweir_watches_widened{$sel})`, "slowed down for their bytes {{instance}}"},
			query{`sum by (instance) (kubeweir_upstream_streams{$sel})`, "forwarded {{instance}}"}),
		graph("Watches for each upstream watch", "none", "How many clients one watch of the upstream serves.",
			query{`sum by (group, resource) (kubeweir_cache_watchers{$sel})`, "{{resource}}.{{group}}"}),
		graph("Deliveries", "ops", "Events handed to client watches.",
			query{`topk(10, ` + sumRate("kubeweir_cache_deliveries_total", "", "group", "resource") + `)`, "{{resource}}.{{group}}"}),
		graph("Ends", "ops", "Client watches that ended, by reason. expired: 410, too slow or older than the history.",
			query{sumRate("kubeweir_watches_ended_total", "", "reason"), "{{reason}}"},
			query{`sum(rate(kubeweir_slow_watches_ended_total{$sel}[$__rate_interval]))`, "not reading"}),
		graph("Lagging", "none", "Client watches that have left events unread for longer than a second.",
			query{`sum by (group, resource) (kubeweir_cache_watchers_lagging{$sel}) > 0`, "{{resource}}.{{group}}"}),
		graph("History", "s", "Age of the oldest event held: how long a client may be away and go on. The ten shortest of the busy collections.",
			query{`bottomk(10, min by (group, resource) (kubeweir_cache_history_seconds{$sel} and kubeweir_cache_history_events{$sel} > 100))`, "{{resource}}.{{group}}"}),
	}}
}

func permissions() row {
	return row{"Permission cache", []panel{
		graph("Permissions", "ops", "upstream: a SubjectAccessReview; cache: remembered; offline: because the upstream could not be asked, by its last word or the RBAC objects in the cache.",
			query{sumRate("kubeweir_authorization_reviews_total", "", "result", "from"), "{{result}} {{from}}"}).stacked(),
		graph("Tokens", "ops", "valid, invalid, error: a TokenReview; cached: remembered.",
			query{sumRate("kubeweir_authentication_token_reviews_total", "", "result"), "{{result}}"}).stacked(),
		graph("Remembered", "percentunit", "Entries as a share of the most.",
			query{`max(kubeweir_authorization_cache_entries{$sel} / kubeweir_authorization_cache_entries_limit{$sel})`, "permissions"},
			query{`max(kubeweir_authorization_visible_namespaces{$sel} / kubeweir_authorization_visible_namespaces_limit{$sel})`, "visible namespaces"},
			query{`max(kubeweir_authentication_cache_entries{$sel} / kubeweir_authentication_cache_entries_limit{$sel})`, "tokens"}).ofOne(),
		graph("Authentication", "reqps", "How requests were authenticated, or why not.",
			query{sumRate("kubeweir_authentication_requests_total", "", "result"), "{{result}}"}),
		graph("Permissions dropped", "ops", "How often all were dropped because an RBAC object changed.",
			query{`sum(rate(kubeweir_authorization_invalidations_total{$sel}[$__rate_interval]))`, "drops"}),
		graph("Open watches reviewed", "ops", "Permissions of open watches asked for again, and watches ended for want of one.",
			query{sumRate("kubeweir_authorization_watch_rechecks_total", "", "result"), "{{result}}"},
			query{sumRate("kubeweir_authorization_watches_ended_total", "", "reason"), "ended: {{reason}}"}),
	}}
}

func memory() row {
	budget := func(name string) query {
		return query{`max(` + name + `{$sel} / (` + name + `_limit{$sel} > 0))`, strings.ReplaceAll(strings.TrimPrefix(name, "kubeweir_"), "_", " ")}
	}
	return row{"Memory against budgets", []panel{
		graph("Process", "bytes", "resident: what the system counts; heap: what Go holds.",
			query{`process_resident_memory_bytes{$sel} and on (job, namespace, instance) kubeweir_build_info`, "resident {{instance}}"},
			query{`go_memstats_heap_inuse_bytes{$sel} and on (job, namespace, instance) kubeweir_build_info`, "heap {{instance}}"}),
		graph("Budgets of the process", "percentunit", "That of derived forms is a cache's: full is well.",
			budget("kubeweir_derived_bytes"), budget("kubeweir_response_buffer_bytes"), budget("kubeweir_waiting_stream_bytes"), budget("kubeweir_collapsed_bytes"),
			budget("kubeweir_long_request_bytes")).ofOne(),
		graph("Budgets of collections", "percentunit", "The fullest collection of each process.",
			query{`max by (instance) (kubeweir_cache_history_bytes{$sel}) / on (instance) kubeweir_cache_history_bytes_limit{$sel}`, "history {{instance}}"},
			query{`max by (instance) (kubeweir_cache_snapshot_bytes{$sel}) / on (instance) kubeweir_cache_snapshot_bytes_limit{$sel}`, "retained states {{instance}}"}).ofOne(),
		graph("Objects", "bytes", "Encoded size of the objects held; the ten largest collections.",
			query{`topk(10, sum by (group, resource, encoding) (kubeweir_cache_object_bytes{$sel}))`, "{{resource}}.{{group}} {{encoding}}"}).stacked(),
		graph("Histories", "bytes", "Events, and their encoded forms.",
			query{`sum(kubeweir_cache_history_bytes{$sel})`, "events"},
			query{`sum(kubeweir_cache_history_frame_bytes{$sel})`, "encoded"},
			query{`sum(kubeweir_cache_snapshot_bytes{$sel})`, "retained states"}).stacked(),
		graph("Derived forms found", "percentunit", "Lookups of compressed lists, rows of tables and metadata that found what was made before.",
			query{`sum by (form) (rate(kubeweir_derived_lookups_total{$sel,result="hit"}[$__rate_interval])) / sum by (form) (rate(kubeweir_derived_lookups_total{$sel}[$__rate_interval]))`, "{{form}}"}).ofOne(),
	}}
}

func store() row {
	return row{"Standalone's store", []panel{
		graph("Commits", "ops", "Groups of changes made durable, and the changes in them.",
			query{`sum by (instance) (rate(kubeweir_store_commit_seconds_count{$sel}[$__rate_interval]))`, "commits {{instance}}"},
			query{`sum by (instance) (rate(kubeweir_store_commit_changes_sum{$sel}[$__rate_interval]))`, "changes {{instance}}"}),
		graph("Time of a commit", "s", "99th percentile until a group is on disk.",
			query{quantile("kubeweir_store_commit_seconds_bucket", "", "instance"), "{{instance}}"}),
		graph("Disk", "bytes", "",
			query{`kubeweir_store_disk_bytes{$sel}`, "used {{instance}}"},
			query{`kubeweir_store_disk_free_bytes{$sel}`, "free {{instance}}"}),
		graph("Keys", "none", "", query{`kubeweir_store_keys{$sel}`, "{{instance}}"}),
		graph("History", "none", "Revisions that can be read, and changes that wait for the disk.",
			query{`kubeweir_store_revision{$sel} - kubeweir_store_compacted_revision{$sel}`, "revisions {{instance}}"},
			query{`kubeweir_store_queued_changes{$sel}`, "waiting {{instance}}"}),
		graph("Memory", "bytes", "",
			query{`kubeweir_store_index_bytes{$sel}`, "index {{instance}}"},
			query{`kubeweir_store_ring_bytes{$sel}`, "recent changes {{instance}}"}),
		graph("etcd: time of requests", "s", "99th percentile; with --etcd-servers only.",
			query{quantile("kubeweir_etcd_request_seconds_bucket", "", "operation"), "{{operation}}"}),
		graph("etcd: errors", "ops", "",
			query{sumRate("kubeweir_etcd_request_errors_total", "", "operation", "reason"), "{{operation}} {{reason}}"}),
		graph("Accepts changes", "bool_yes_no", "Whether the store, or etcd, can be written to.",
			query{`kubeweir_store_available{$sel}`, "store {{instance}}"},
			query{`kubeweir_etcd_available{$sel}`, "etcd {{instance}}"}).ofOne(),
	}}
}
