package bench

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind says how a row is measured.
type Kind string

// The kinds of rows.
const (
	// Requests: one client sends the same request again and again.
	Requests Kind = "requests"
	// Pages: one client reads a list in pages, again and again. A page is the unit.
	Pages Kind = "pages"
	// Burst: many clients send the same request at the same moment.
	Burst Kind = "burst"
	// FanOut: every event goes to every watcher. A delivery is the unit.
	FanOut Kind = "fan-out"
	// LabelWatch: each watcher has its own label selector and every event goes to one of them. An event is the unit.
	LabelWatch Kind = "label watch"
	// Write: what a write takes longer when it goes through the gateway, at the median.
	Write Kind = "write"
	// Resident: memory with all pods in the cache.
	Resident Kind = "resident memory"
	// IdleWatch: memory of an open watch without events.
	IdleWatch Kind = "idle watch"

	// The following compare a standalone kubeweir with kube-apiserver and etcd, whose processes count together.

	// Start: how long it takes to be ready, on the data that there is.
	Start Kind = "start"
	// StoreMemory: memory of the processes, left alone.
	StoreMemory Kind = "memory of a store"
	// Create: clients create objects, each of which is on disk before the answer.
	Create Kind = "create"

	// The following need a number of Objects, which a synthetic API server makes up.

	// ColdSync: what it takes to fill an empty cache. A megabyte of JSON is the unit.
	ColdSync Kind = "cold sync"
	// Growth: how much memory grows with the second half of many events.
	Growth Kind = "growth of memory"
	// ScaledList is Requests with a megabyte of the answer as the unit.
	ScaledList Kind = "scaled list"
	// ScaledWatch is LabelWatch.
	ScaledWatch Kind = "scaled watch"
)

// A Target is what a row is to reach. Zero fields ask for nothing.
type Target struct {
	// Ratio is the least kube-apiserver:kubeweir.
	Ratio float64
	// Rate is the least kubeweir:kube-apiserver of units per second.
	Rate float64
	// Max is the most that kubeweir may take, in the unit of the row's quantity.
	Max float64
	// PerRaw is added to Max for every byte of JSON of the pods.
	PerRaw float64
	// Above, with MostAbove: kubeweir takes at most so many times what it takes in the row of that name.
	Above     string
	MostAbove float64
}

// A Row is one line of the table. What is not said is zero: no churn, identity encoding, one client.
type Row struct {
	// Name selects the row on the command line, Title stands in the table.
	Name, Title string
	Kind        Kind
	// Path is the request's path and query. {namespace}, {node}, {pod} and {version} stand for those of the testbed.
	Path string
	// Accept is the media type asked for; empty for JSON.
	Accept string
	// Gzip accepts gzip.
	Gzip bool
	// Conditional sends the ETag of an earlier answer of kubeweir's as If-None-Match.
	Conditional bool
	// Objects is how many pods a synthetic API server has; zero for the testbed's kube-apiserver.
	Objects int
	// Clients is how many clients or watchers there are. Zero for one.
	Clients int
	// Churn is how many pods are updated a second while the row is measured, behind the gateway's back.
	Churn int
	// WritesThrough makes the updates of Churn go through the server that is measured.
	WritesThrough bool
	// Session measures a gateway with --consistency=session.
	Session bool
	// Own measures a gateway that other rows do not, because the row leaves work behind that goes on: a second feed.
	Own bool
	// Upstream counts kube-apiserver's processor time for kubeweir too, because kubeweir makes use of it.
	Upstream bool
	// Rate is how many events a second watchers are sent; zero for as many as the server takes.
	Rate int
	// Plaintext measures the gateway's plaintext listener.
	Plaintext bool

	Target Target
}

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	tableType    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metadataType = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// Rows returns all rows, in the order in which they are measured and shown. Rows of memory come first, before other
// rows have left their traces; after the idle watches both servers begin anew.
func Rows() []Row {
	const allPods = "/api/v1/pods?resourceVersion=0"
	return []Row{
		{Name: "memory-pods", Title: "resident with all pods cached as JSON", Kind: Resident, Path: allPods,
			Target: Target{Max: 60 << 20, PerRaw: 1.5}},
		{Name: "memory-watch-tls", Title: "idle watch, TLS", Kind: IdleWatch, Clients: 10000, Target: Target{Max: 45 << 10}},
		{Name: "memory-watch-plain", Title: "idle watch, plaintext", Kind: IdleWatch, Clients: 10000, Plaintext: true,
			Target: Target{Max: 12 << 10}},

		{Name: "list-json", Title: "list rv=0 JSON", Kind: Requests, Path: allPods, Target: Target{Ratio: 16}},
		{Name: "list-protobuf", Title: "list rv=0 protobuf", Kind: Requests, Path: allPods, Accept: protobufType, Own: true, Target: Target{Ratio: 10}},
		{Name: "list-table", Title: "list rv=0 Table", Kind: Requests, Path: allPods, Accept: tableType, Target: Target{Ratio: 15}},
		{Name: "list-metadata", Title: "list rv=0 PartialObjectMetadataList", Kind: Requests, Path: allPods, Accept: metadataType, Target: Target{Ratio: 9}},
		{Name: "list-json-gzip", Title: "list rv=0 JSON, gzip", Kind: Requests, Path: allPods, Gzip: true, Target: Target{Ratio: 100}},
		{Name: "list-json-churn", Title: "list rv=0 JSON, 100 updates/s", Kind: Requests, Path: allPods, Churn: 100, Target: Target{Ratio: 14}},
		{Name: "list-json-gzip-churn", Title: "list rv=0 JSON, gzip, 100 updates/s", Kind: Requests, Path: allPods, Gzip: true, Churn: 100, Target: Target{Ratio: 20}},
		{Name: "list-namespace", Title: "list one namespace of 20", Kind: Requests, Path: "/api/v1/namespaces/{namespace}/pods?resourceVersion=0", Target: Target{Ratio: 12}},
		{Name: "list-label", Title: "list labelSelector, 1 of 50 matches", Kind: Requests, Path: allPods + "&labelSelector=shard%3D7", Target: Target{Ratio: 14}},
		{Name: "list-field", Title: "list fieldSelector spec.nodeName, 1 of 200", Kind: Requests, Path: allPods + "&fieldSelector=spec.nodeName%3D{node}", Target: Target{Ratio: 8}},
		{Name: "list-pages", Title: "list limit=500, all pages", Kind: Pages, Path: "/api/v1/pods?limit=500&resourceVersion={version}&resourceVersionMatch=NotOlderThan", Target: Target{Ratio: 10}},
		{Name: "list-pages-unset", Title: "list limit=500, all pages, unset rv", Kind: Pages, Path: "/api/v1/pods?limit=500", Upstream: true},
		{Name: "get", Title: "get one pod rv=0", Kind: Requests, Path: "{pod}?resourceVersion=0", Target: Target{Ratio: 8}},
		{Name: "list-unchanged", Title: "list rv=0 JSON with If-None-Match, unchanged", Kind: Requests, Path: allPods, Conditional: true, Target: Target{Ratio: 1000}},

		{Name: "list-unset", Title: "list unset rv JSON, strict", Kind: Requests, Path: "/api/v1/pods", Upstream: true},
		{Name: "burst-strict", Title: "list unset rv by 50 clients at once, strict", Kind: Burst, Path: "/api/v1/pods", Clients: 50, Upstream: true, Target: Target{Ratio: 10}},
		{Name: "burst-session", Title: "same, session, 20 writes/s through the gateway", Kind: Burst, Path: "/api/v1/pods", Clients: 50, Upstream: true,
			Session: true, Churn: 20, WritesThrough: true, Target: Target{Ratio: 14}},

		{Name: "watch-paced", Title: "watch, 40 events/s to 1,000 watchers", Kind: FanOut, Clients: 1000, Rate: 40, Target: Target{Ratio: 2.2}},
		{Name: "watch-fast", Title: "watch, events as fast as possible to 1,000 watchers", Kind: FanOut, Clients: 1000, Target: Target{Ratio: 4}},
		{Name: "watch-labels-10", Title: "watch, 10 watchers by label, 100 events/s", Kind: LabelWatch, Clients: 10, Rate: 100},
		{Name: "watch-labels", Title: "watch, 5,000 watchers by label, 100 events/s", Kind: LabelWatch, Clients: 5000, Rate: 100,
			Target: Target{Ratio: 8, Above: "watch-labels-10", MostAbove: 1.5}},

		{Name: "memory-50k", Title: "resident with 50,000 pods cached as JSON, listed once", Kind: Resident, Objects: 50_000, Path: allPods,
			Target: Target{Max: 60e6, PerRaw: 1.5}},
		{Name: "growth", Title: "growth in the second half of 360,000 updates (an hour of 100/s)", Kind: Growth, Objects: 5000, Target: Target{Max: 8e6}},
		{Name: "cold-sync", Title: "cold sync of 100,000 pods", Kind: ColdSync, Objects: 100_000, Target: Target{Max: 10_000}},
		{Name: "scale-list-1k", Title: "list rv=0 JSON of 1,000 pods", Kind: ScaledList, Objects: 1000, Path: allPods},
		{Name: "scale-list-100k", Title: "list rv=0 JSON of 100,000 pods", Kind: ScaledList, Objects: 100_000, Path: allPods,
			Target: Target{Above: "scale-list-1k", MostAbove: 1.5}},
		{Name: "scale-watch-1k", Title: "watch, 1,000 watchers by label, 1,000 pods", Kind: ScaledWatch, Objects: 1000, Clients: 1000, Rate: 200},
		{Name: "scale-watch-100k", Title: "watch, 1,000 watchers by label, 100,000 pods", Kind: ScaledWatch, Objects: 100_000, Clients: 1000, Rate: 200,
			Target: Target{Above: "scale-watch-1k", MostAbove: 1.5}},

		{Name: "write-forwarded", Title: "write through the gateway, added at the median", Kind: Write, Target: Target{Max: 0.3}},

		{Name: "standalone-start", Title: "standalone: ready, with little data", Kind: Start, Target: Target{Max: 1000}},
		{Name: "standalone-memory", Title: "standalone: idle memory", Kind: StoreMemory, Target: Target{Max: 120e6}},
		{Name: "standalone-create-1", Title: "standalone: durable creates, 1 client", Kind: Create, Target: Target{Ratio: 2, Rate: 3}},
		{Name: "standalone-create-32", Title: "standalone: durable creates, 32 clients", Kind: Create, Clients: 32, Target: Target{Ratio: 2, Rate: 3}},
		{Name: "standalone-start-full", Title: "standalone: ready, with what was created", Kind: Start, Target: Target{Max: 1000}},
	}
}

// Choose returns the rows with the given names, in the order of all; no names chooses all of them.
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

// unit is what the row's quantity is counted by.
func (r *Row) unit() string {
	switch r.Kind {
	case Pages:
		return "page"
	case FanOut:
		return "delivery"
	case LabelWatch, ScaledWatch:
		return "event"
	case ColdSync, ScaledList:
		return "MB"
	case Write:
		return "write"
	case Resident, Growth, StoreMemory:
		return "process"
	case Start:
		return "start"
	case Create:
		return "create"
	case IdleWatch:
		return "watch"
	}
	return "request"
}

// quantity is what the row compares.
func (r *Row) quantity() Quantity {
	switch r.Kind {
	case Write:
		return Latency
	case Resident, IdleWatch, Growth, StoreMemory:
		return Memory
	case Start:
		return Elapsed
	}
	return CPU
}
