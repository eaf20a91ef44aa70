package bench

import (
	"fmt"
	"slices"
	"strings"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	tableType    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metadataType = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	cborType     = "application/cbor"

	// withoutManagedFields is appended to a media type (KEP-5958).
	withoutManagedFields = ";drop=metadata.managedFields"
)

// allPods is the list of all pods from a cache, watchPods the watch that begins with the most
// recent state of all pods.
const (
	allPods   = "/api/v1/pods?resourceVersion=0"
	watchPods = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)

// Rows returns all rows in the order in which they are measured and shown. Rows of memory come
// first, before other rows have affected it; both servers restart after the idle watches. Rows that
// change the pods come after those whose bytes are compared.
func Rows() []Row {
	return slices.Concat(memoryRows(), listRows(), formRows(), watchListRows(), churnRows(), strictRows(), watchRows(), manyWatchRows(), tabRows(), scaledRows(), queryRows(), visibleRows(), standaloneRows())
}

// overBoth returns a row over HTTP/1.1 and the same row over HTTP/2 with a target of its own.
func overBoth(r Row, target Target) []Row {
	twin := r
	twin.Name, twin.Over, twin.Target = r.Name+"-h2", HTTP2, target
	return []Row{r, twin}
}

func memoryRows() []Row {
	const conn, watch = 16 << 10, 4 << 10 // over HTTP/2
	return []Row{
		{Name: "memory-pods", Title: "resident with all pods cached as JSON", Kind: Resident, Path: allPods,
			Target: Target{Max: 60 << 20, PerRaw: 1.5}},
		{Name: "memory-watch-tls", Title: "idle watch, TLS", Kind: IdleWatch, Clients: 10000, Target: Target{Max: 45 << 10}},
		{Name: "memory-watch-plain", Title: "idle watch, plaintext", Kind: IdleWatch, Clients: 10000, Plaintext: true,
			Target: Target{Max: 12 << 10}},
		{Name: "memory-conn-h2", Title: "idle connection, TLS", Kind: IdleConn, Over: HTTP2, Clients: 10000, Target: Target{Max: conn}},
		{Name: "memory-watch-h2", Title: "idle watch, TLS, 10,000 on 10,000 connections", Kind: IdleWatch, Over: HTTP2, Clients: 10000,
			Target: Target{Max: conn + watch}},
		{Name: "memory-watch-h2-100", Title: "idle watch, TLS, 10,000 on 100 connections", Kind: IdleWatch, Over: HTTP2, Clients: 10000,
			PerConnection: 100, Target: Target{Max: conn/100 + watch}},
	}
}

func listRows() []Row {
	return slices.Concat(
		overBoth(Row{Name: "list-json", Title: "list rv=0 JSON", Kind: Requests, Path: allPods, Target: Target{Ratio: 16, Nginx: true}},
			Target{Ratio: 18, Nginx: true}),
		overBoth(Row{Name: "list-protobuf", Title: "list rv=0 protobuf", Kind: Requests, Path: allPods, Accept: protobufType, Own: true, Target: Target{Ratio: 10}},
			Target{Ratio: 14}),
		overBoth(Row{Name: "list-table", Title: "list rv=0 Table", Kind: Requests, Path: allPods, Accept: tableType, Target: Target{Ratio: 15}}, Target{}),
		overBoth(Row{Name: "list-metadata", Title: "list rv=0 PartialObjectMetadataList", Kind: Requests, Path: allPods, Accept: metadataType,
			Target: Target{Ratio: 9}}, Target{}),
		overBoth(Row{Name: "list-json-gzip", Title: "list rv=0 JSON, gzip", Kind: Requests, Path: allPods, Gzip: true, Target: Target{Ratio: 100}},
			Target{Ratio: 300}),
		overBoth(Row{Name: "list-namespace", Title: "list one namespace of 20", Kind: Requests, Path: "/api/v1/namespaces/{namespace}/pods?resourceVersion=0",
			Target: Target{Ratio: 12}}, Target{Ratio: 17}),
		overBoth(Row{Name: "list-label", Title: "list labelSelector, 1 of 50 matches", Kind: Requests, Path: allPods + "&labelSelector=shard%3D7",
			Target: Target{Ratio: 14}}, Target{}),
		overBoth(Row{Name: "list-field", Title: "list fieldSelector spec.nodeName, 1 of 200", Kind: Requests,
			Path: allPods + "&fieldSelector=spec.nodeName%3D{node}", Target: Target{Ratio: 8}}, Target{}),
		overBoth(Row{Name: "list-pages", Title: "list limit=500, all pages", Kind: Pages,
			Path: "/api/v1/pods?limit=500&resourceVersion={version}&resourceVersionMatch=NotOlderThan", Target: Target{Ratio: 10}}, Target{}),
		overBoth(Row{Name: "list-pages-unset", Title: "list limit=500, all pages, unset rv", Kind: Pages, Path: "/api/v1/pods?limit=500", Upstream: true}, Target{}),
		overBoth(Row{Name: "get", Title: "get one pod rv=0", Kind: Requests, Path: "{pod}?resourceVersion=0", Target: Target{Ratio: 8, Nginx: true}},
			Target{Ratio: 11, Nginx: true}),
		overBoth(Row{Name: "list-unchanged", Title: "list rv=0 JSON with If-None-Match, unchanged", Kind: Requests, Path: allPods, Conditional: true,
			Target: Target{Ratio: 1000}}, Target{}),
	)
}

// formRows use representations that kube-apiserver 1.37 serves only behind feature gates, or not at
// all: it ignores the parameter that drops managedFields. They stand beside the cost of kubeweir's
// full list.
func formRows() []Row {
	const shards = 8
	shard := Row{Name: "list-shards", Title: "list rv=0 JSON, one of 8 shards", Kind: Requests, Path: allPods + "&shardSelector={shard}", Shards: shards}
	part := func(whole string) Target {
		return Target{Above: whole, MostAbove: 1.05 / shards, BytesOf: whole, MostBytes: 1.05 / shards}
	}
	shard.Target = part("list-json")
	return slices.Concat(
		[]Row{
			{Name: "list-cbor-h2", Title: "list rv=0 CBOR", Kind: Requests, Over: HTTP2, Path: allPods, Accept: cborType,
				Target: Target{Above: "list-json-h2", MostAbove: 1}},
			{Name: "list-json-drop-h2", Title: "list rv=0 JSON without managedFields", Kind: Requests, Over: HTTP2, Path: allPods,
				Accept: "application/json" + withoutManagedFields, Target: Target{Above: "list-json-h2", MostAbove: 1, BytesOf: "list-json-h2", MostBytes: 0.7}},
			{Name: "list-protobuf-drop-h2", Title: "list rv=0 protobuf without managedFields", Kind: Requests, Over: HTTP2, Path: allPods,
				Accept: protobufType + withoutManagedFields, Own: true,
				Target: Target{Above: "list-protobuf-h2", MostAbove: 1, BytesOf: "list-protobuf-h2", MostBytes: 0.7}},
		},
		overBoth(shard, part("list-json-h2")),
	)
}

// churnRows change the pods during the measurement.
func churnRows() []Row {
	return slices.Concat(
		overBoth(Row{Name: "list-json-churn", Title: "list rv=0 JSON, 100 updates/s", Kind: Requests, Path: allPods, Churn: 100, Target: Target{Ratio: 14}}, Target{}),
		overBoth(Row{Name: "list-json-gzip-churn", Title: "list rv=0 JSON, gzip, 100 updates/s", Kind: Requests, Path: allPods, Gzip: true, Churn: 100,
			Target: Target{Ratio: 20}}, Target{}),
	)
}

// strictRows request the most recent state.
func strictRows() []Row {
	return slices.Concat(
		overBoth(Row{Name: "list-unset", Title: "list unset rv JSON, strict", Kind: Requests, Path: "/api/v1/pods", Upstream: true}, Target{}),
		overBoth(Row{Name: "burst-strict", Title: "list unset rv by 50 clients at once, strict", Kind: Burst, Path: "/api/v1/pods", Clients: 50, Upstream: true,
			Target: Target{Ratio: 10}}, Target{}),
		overBoth(Row{Name: "burst-session", Title: "same, session, 20 writes/s through the gateway", Kind: Burst, Path: "/api/v1/pods", Clients: 50,
			Upstream: true, Session: true, Churn: 20, WritesThrough: true, Target: Target{Ratio: 14}}, Target{}),
	)
}

func watchListRows() []Row {
	return slices.Concat(
		overBoth(Row{Name: "watchlist-json", Title: "WatchList of all pods, unset rv, JSON", Kind: WatchList, Path: watchPods, Upstream: true},
			Target{OwnRatio: 30}),
		overBoth(Row{Name: "watchlist-protobuf", Title: "WatchList of all pods, unset rv, protobuf", Kind: WatchList, Path: watchPods, Accept: protobufType,
			Own: true, Upstream: true}, Target{OwnRatio: 18}),
		overBoth(Row{Name: "watchlist-json-gzip", Title: "WatchList of all pods, unset rv, JSON, gzip", Kind: WatchList, Path: watchPods, Gzip: true,
			Upstream: true}, Target{OwnRatio: 150, BytesOf: "list-json-gzip", MostBytes: 1.02}),
		overBoth(Row{Name: "watchlist-protobuf-gzip", Title: "WatchList of all pods, unset rv, protobuf, gzip", Kind: WatchList, Path: watchPods,
			Accept: protobufType, Gzip: true, Upstream: true}, Target{}),
		[]Row{{Name: "informers", Title: "200 client-go informers at once, protobuf, gateway just started", Kind: Informers, Over: HTTP2, Clients: 200, Upstream: true}},
	)
}

func watchRows() []Row {
	return []Row{
		{Name: "watch-paced", Title: "watch, 40 events/s to 1,000 watchers", Kind: FanOut, Clients: 1000, Rate: 40, Target: Target{Ratio: 2.2}},
		{Name: "watch-paced-h2", Title: "watch, 40 events/s to 1,000 watchers, 20 a connection", Kind: FanOut, Over: HTTP2, Clients: 1000, PerConnection: 20,
			Rate: 40, Target: Target{Ratio: 4}},
		{Name: "watch-paced-cbor-h2", Title: "watch, 40 events/s to 1,000 watchers, 20 a connection, CBOR", Kind: FanOut, Over: HTTP2, Clients: 1000, PerConnection: 20,
			Rate: 40, Accept: cborType, Target: Target{Above: "watch-paced-h2", MostAbove: 1}},
		{Name: "watch-paced-ws", Title: "watch, 40 events/s to 1,000 watchers", Kind: FanOut, Over: WebSocket, Clients: 1000, Rate: 40},
		{Name: "watch-fast", Title: "watch, events as fast as possible to 1,000 watchers", Kind: FanOut, Clients: 1000, Target: Target{Ratio: 4}},
		{Name: "watch-fast-h2", Title: "watch, events as fast as possible to 1,000 watchers, 20 a connection", Kind: FanOut, Over: HTTP2, Clients: 1000,
			PerConnection: 20, Target: Target{Ratio: 8}},
		{Name: "watch-fast-ws", Title: "watch, events as fast as possible to 1,000 watchers", Kind: FanOut, Over: WebSocket, Clients: 1000},
		{Name: "watch-labels-10", Title: "watch, 10 watchers by label, 100 events/s", Kind: LabelWatch, Clients: 10, Rate: 100},
		{Name: "watch-labels", Title: "watch, 5,000 watchers by label, 100 events/s", Kind: LabelWatch, Clients: 5000, Rate: 100,
			Target: Target{Ratio: 8, Above: "watch-labels-10", MostAbove: 1.5}},
	}
}

// manyWatchRows have more watchers than most clusters, and watchers that do not read.
func manyWatchRows() []Row {
	hurtNobody := func(row string) Target { return Target{Above: row, MostP99: 2} }
	return []Row{
		{Name: "watch-stalled", Title: "watch, 40 events/s to 1,000 watchers, 1,000 more do not read", Kind: FanOut, Clients: 1000, Rate: 40, Stalled: 1000,
			Target: hurtNobody("watch-paced")},
		{Name: "watch-stalled-h2", Title: "watch, 40 events/s to 1,000 watchers, 20 a connection, 1,000 more do not read", Kind: FanOut, Over: HTTP2, Clients: 1000,
			PerConnection: 20, Rate: 40, Stalled: 1000, Target: hurtNobody("watch-paced-h2")},
		{Name: "watch-10k-h2-100", Title: "watch, 2 events/s to 10,000 watchers on 100 connections", Kind: FanOut, Over: HTTP2, Clients: 10000, PerConnection: 100, Rate: 2},
		{Name: "watch-10k-h2", Title: "watch, 2 events/s to 10,000 watchers on 10,000 connections", Kind: FanOut, Over: HTTP2, Clients: 10000, Rate: 2},
	}
}

// tabRows are pages that people look at: of few pods that change often, as in a rollout, and of all
// pods. kubeweir bounds the bytes per tab; kube-apiserver sends each change. The configured bound
// is a little below the target, because deliveries differ in size.
func tabRows() []Row {
	const watchMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	busy := Row{Kind: Tabs, Over: HTTP2, Objects: 2000, Rate: 5000, Coalesced: true, Target: Target{Bytes: 100e3}}
	row := func(name, title string, clients int, accept string) Row {
		r := busy
		r.Name, r.Title, r.Clients, r.Accept = name, title, clients, accept
		return r
	}
	return []Row{
		{Name: "tabs", Title: "200 tabs, 200 events/s of 50 pods, Table, --coalesce=500ms", Kind: Tabs, Over: HTTP2, Clients: 200, Rate: 200, Changing: 50,
			Accept: tableType, Coalesced: true, Target: Target{Ratio: 4, Bytes: 100e3}},
		row("tab-metadata", "a tab, 5,000 events/s of 2,000 pods, metadata without managedFields, at most 95 kB/s", 1, watchMetadata+withoutManagedFields),
		row("tab-table", "a tab, 5,000 events/s of 2,000 pods, Table without managedFields, at most 95 kB/s", 1, tableType+withoutManagedFields),
		row("tab-table-full", "a tab, 5,000 events/s of 2,000 pods, Table as kubectl asks for it, at most 95 kB/s", 1, tableType),
		row("tabs-busy", "200 tabs, 5,000 events/s of 2,000 pods, Table without managedFields, at most 95 kB/s each", 200, tableType+withoutManagedFields),
	}
}

// scaledRows depend on the number of objects.
func scaledRows() []Row {
	return []Row{
		{Name: "memory-50k", Title: "resident with 50,000 pods cached as JSON, listed once", Kind: Resident, Objects: 50_000, Path: allPods,
			Target: Target{Max: 60e6, PerRaw: 1.5}},
		{Name: "memory-50k-drop", Title: "resident with 50,000 pods cached as JSON, listed once, --drop-managed-fields=pods", Kind: Resident, Objects: 50_000,
			Path: allPods, WithoutManagedFields: true, Target: Target{Above: "memory-50k", MostAbove: 0.7}},
		{Name: "growth", Title: "growth in the second half of 360,000 updates (an hour of 100/s)", Kind: Growth, Objects: 5000, Target: Target{Max: 8e6}},
		{Name: "cold-sync", Title: "cold sync of 100,000 pods", Kind: ColdSync, Objects: 100_000, Target: Target{Max: 10_000}},
		{Name: "warm-start", Title: "warm start with 100,000 pods, of which 0.5 % have changed", Kind: WarmStart, Objects: 100_000, Saved: true,
			Target: Target{Max: 2000}},
		{Name: "restart", Title: "restart with 17,000 pods, of which 0.5 % have changed, until a client has read all", Kind: Restart, Objects: 17_000, Saved: true},
		{Name: "warm-uplink", Title: "warm start over 50 kbit/s with 17,000 pods and 500 nodes, after 10 s away, until all pods are served, marked as stale",
			Kind: UplinkStart, Objects: 17_000, Saved: true, Uplink: 50_000, Target: Target{Max: 5000}},
		{Name: "updates", Title: "100 updates/s of 100,000 pods, each for one of 200 watchers", Kind: ScaledWatch, Objects: 100_000, Clients: 200, Rate: 100, Long: true},
		{Name: "updates-kept", Title: "100 updates/s of 100,000 pods, each for one of 200 watchers, --state-dir", Kind: ScaledWatch, Objects: 100_000, Clients: 200, Rate: 100,
			Long: true, Saved: true, Target: Target{Above: "updates", MostAbove: 1.1}},
		{Name: "scale-list-1k", Title: "list rv=0 JSON of 1,000 pods", Kind: ScaledList, Objects: 1000, Path: allPods},
		{Name: "scale-list-100k", Title: "list rv=0 JSON of 100,000 pods", Kind: ScaledList, Objects: 100_000, Path: allPods,
			Target: Target{Above: "scale-list-1k", MostAbove: 1.5}},
		{Name: "scale-watch-1k", Title: "watch, 1,000 watchers by label, 1,000 pods", Kind: ScaledWatch, Objects: 1000, Clients: 1000, Rate: 200},
		{Name: "scale-watch-100k", Title: "watch, 1,000 watchers by label, 100,000 pods", Kind: ScaledWatch, Objects: 100_000, Clients: 1000, Rate: 200,
			Target: Target{Above: "scale-watch-1k", MostAbove: 1.5}},

		{Name: "write-forwarded", Title: "write through the gateway, added at the median", Kind: Write, Target: Target{Max: 0.3}},
	}
}

// queryRows are lists for dashboards, which kube-apiserver does not support.
func queryRows() []Row {
	const many = 150_000
	page := []string{
		"&sortBy=.metadata.name", "&sortBy=-.metadata.creationTimestamp", "&sortBy=.spec.nodeName,.metadata.name", "&sortBy=.status.phase,.status.podIP",
		"&sortBy=-.metadata.labels." + podLabel,
	}
	counts := []string{"&countBy=.status.phase", "&countBy=.metadata.namespace,.spec.nodeName"}
	return []Row{
		{Name: "query-page-5k", Title: "page of 100 of 5,000 pods by name", Kind: Queries, Objects: 5000, Path: allPods + "&limit=100",
			Queries: []string{"&sortBy=.metadata.name"}, Target: Target{Max: 1000}},
		{Name: "query-page", Title: "page of 50 of 150,000 pods, by each of 5 columns in turn", Kind: Queries, Objects: many, Path: allPods + "&limit=50",
			Queries: page, Target: Target{P99: 20}},
		{Name: "query-page-churn", Title: "page of 50 of 150,000 pods, by each of 5 columns in turn, 100 updates/s", Kind: Queries, Objects: many, Churn: 100,
			Path: allPods + "&limit=50", Queries: page, Target: Target{P99: 20}},
		{Name: "query-counts", Title: "counts of 150,000 pods", Kind: Queries, Objects: many, Path: allPods + "&limit=0", Queries: counts, Target: Target{P99: 5}},
		{Name: "query-counts-churn", Title: "counts of 150,000 pods, 100 updates/s", Kind: Queries, Objects: many, Churn: 100, Path: allPods + "&limit=0", Queries: counts,
			Target: Target{P99: 5}},
	}
}

// visibleRows are lists by a rule with visibleLists.
func visibleRows() []Row {
	return []Row{
		{Name: "visible-1k", Title: "list of the pods of the 1,000 of 5,000 namespaces that a user may list", Kind: Visible, Objects: 5000, Visible: 1000, Path: allPods,
			Target: Target{P99: 50}},
		{Name: "visible-10k", Title: "list of the pods of 10,000 namespaces, each of which a user may list", Kind: Visible, Objects: 10_000, Visible: 10_000, Path: allPods},
	}
}

func standaloneRows() []Row {
	return []Row{
		{Name: "standalone-start", Title: "standalone: ready, with little data", Kind: Start, Target: Target{Max: 1000}},
		{Name: "standalone-memory", Title: "standalone: idle memory", Kind: StoreMemory, Target: Target{Max: 120e6}},
		{Name: "standalone-create-1", Title: "standalone: durable creates, 1 client", Kind: Create, Target: Target{Ratio: 2, Rate: 2}},
		{Name: "standalone-create-32", Title: "standalone: durable creates, 32 clients", Kind: Create, Clients: 32, Target: Target{Ratio: 2, Rate: 2}},
		{Name: "standalone-start-full", Title: "standalone: ready, with what was created", Kind: Start, Target: Target{Max: 1000}},
	}
}

// Choose returns the rows with the given names, in the order of all. Without names it returns all
// of them.
func Choose(all []Row, names []string) ([]Row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []Row
	for _, r := range all {
		if slices.Contains(names, r.Name) {
			out = append(out, r)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(r Row) bool { return r.Name == name }) {
			return nil, fmt.Errorf("no row is named %q; there are %s", name, strings.Join(rowNames(all), ", "))
		}
	}
	return out, nil
}

func rowNames(rows []Row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return out
}
