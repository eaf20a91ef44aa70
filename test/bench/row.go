package bench

import (
	"cmp"
	"fmt"
	"net/url"
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
	// WatchList: one client opens a watch with initial events and ends it after them, again and again. Each is a
	// request.
	WatchList Kind = "watch list"
	// Informers: many of client-go's start at the same moment. An informer is the unit.
	Informers Kind = "informers"
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
	// IdleConn: memory of an open connection without a request.
	IdleConn Kind = "idle connection"

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
	// WarmStart: how long a gateway that kept its state takes until it serves all pods as they are now, half a percent
	// of which have changed.
	WarmStart Kind = "warm start"
	// Restart is WarmStart until a client has read all pods, beside a start without what was kept and one of a server that
	// keeps a file an object.
	Restart Kind = "restart"
	// UplinkStart is how long a gateway that kept its state takes behind a link that carries Uplink bits a second, with
	// pods and nodes, until all pods are served, as old as they are; and, as a note, until pods and nodes are current.
	UplinkStart Kind = "warm start over an uplink"
	// Growth: how much memory grows with the second half of many events.
	Growth Kind = "growth of memory"
	// ScaledList is Requests with a megabyte of the answer as the unit.
	ScaledList Kind = "scaled list"
	// ScaledWatch is LabelWatch.
	ScaledWatch Kind = "scaled watch"
	// Queries: one client asks for lists that are sorted, narrowed or counted, in turn.
	Queries Kind = "queries"

	// Visible: a user lists what is in the Visible of Objects namespaces, in the others of which they may not. Objects are
	// namespaces of a kube-apiserver of its own.
	Visible Kind = "visible"

	// Tabs: watches of what people look at, which need not see each event. A second of one is the unit, with Objects or
	// without.
	Tabs Kind = "tabs"
)

// A Row is one line of the table. What is not said is zero: no churn, identity encoding, one client.
type Row struct {
	// Name selects the row on the command line, Title stands in the table.
	Name, Title string
	Kind        Kind
	// Over is the protocol of the clients.
	Over Protocol
	// PerConnection is how many watches share a connection, over HTTP/2. Zero for one.
	PerConnection int
	// Stalled is how many more watches there are that are not read.
	Stalled int
	// Path is the request's path and query. {namespace}, {node}, {pod} and {version} stand for those of the testbed,
	// {shard} for each of Shards parts of the pods in turn.
	Path   string
	Shards int
	// Queries are added to Path in turn.
	Queries []string
	// Accept is the media type asked for; empty for JSON.
	Accept string
	// Gzip accepts gzip.
	Gzip bool
	// Conditional sends the ETag of an earlier answer of kubeweir's as If-None-Match.
	Conditional bool
	// Objects is how many pods a synthetic API server has; zero for the testbed's kube-apiserver.
	Objects int
	// Visible is in how many namespaces the user may list, of a row of that kind.
	Visible int
	// Clients is how many clients or watchers there are. Zero for one.
	Clients int
	// Churn is how many pods are updated a second while the row is measured, behind the gateway's back.
	Churn int
	// WritesThrough makes the updates of Churn go through the server that is measured.
	WritesThrough bool
	// Session measures a gateway with --consistency=session.
	Session bool
	// WithoutManagedFields measures a gateway that keeps none of pods.
	WithoutManagedFields bool
	// Calm measures a gateway whose watches coalesce, within a bound of bytes.
	Calm bool
	// Changing is how many pods the events are of, zero for all.
	Changing int
	// Kept measures a gateway that keeps its state.
	Kept bool
	// Long measures a row of kind ScaledWatch for longer, because it differs by little from another.
	Long bool
	// Uplink is how many bits a second the way to the upstream carries, from the moment of which the row is; zero for as
	// many as there are.
	Uplink int
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

// unit is what the row's quantity is counted by.
func (r *Row) unit() string {
	if r.Shards > 0 {
		return "shard"
	}
	switch r.Kind {
	case Pages:
		return "page"
	case FanOut:
		return "delivery"
	case LabelWatch, ScaledWatch:
		return "event"
	case Tabs:
		return "tab-second"
	case ColdSync, ScaledList:
		return "MB"
	case Write:
		return "write"
	case Resident, Growth, StoreMemory:
		return "process"
	case Start, WarmStart, Restart, UplinkStart:
		return "start"
	case Create:
		return "create"
	case IdleWatch:
		return "watch"
	case IdleConn:
		return "connection"
	case Informers:
		return "informer"
	}
	return "request"
}

// quantity is what the row compares.
func (r *Row) quantity() Quantity {
	switch r.Kind {
	case Write:
		return Latency
	case Resident, IdleWatch, IdleConn, Growth, StoreMemory:
		return Memory
	case Start, WarmStart, Restart, UplinkStart:
		return Elapsed
	}
	return CPU
}

// protocol is Over, told of every row.
func (r *Row) protocol() Protocol { return cmp.Or(r.Over, HTTP1) }

// inFlight is how many requests a client has under way: over HTTP/2 two, as long as they do not depend on each other.
func (r *Row) inFlight() int {
	if r.Over == HTTP2 && (r.Kind == Requests || r.Kind == WatchList) {
		return 2
	}
	return 1
}

// drops tells whether the row asks for objects without managedFields.
func (r *Row) drops() bool { return strings.HasSuffix(r.Accept, withoutManagedFields) }

// paths are what is asked for in turn, of a row whose other places are filled in.
func (r *Row) paths(path string) []string {
	if r.Shards == 0 && len(r.Queries) == 0 {
		return []string{path}
	}
	if len(r.Queries) > 0 {
		out := make([]string, len(r.Queries))
		for i, query := range r.Queries {
			out[i] = path + query
		}
		return out
	}
	out := make([]string, r.Shards)
	for i := range out {
		bound := func(n int) string { return fmt.Sprintf("0x%x000000000000000", 16/r.Shards*n) }
		part := fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')", bound(i), bound(i+1))
		out[i] = strings.ReplaceAll(path, "{shard}", url.QueryEscape(part))
	}
	return out
}

// hasFloor tells whether the floor answers the row's requests. It does not keep watches that begin with objects.
func (r *Row) hasFloor() bool { return r.Kind == Requests || r.Kind == Pages }

// nginxServes tells whether a cache without freshness could answer: what is asked for may be of any age, and does not
// change.
func (r *Row) nginxServes() bool {
	return r.Kind == Requests && r.Churn == 0 && !r.Conditional && !r.drops() && strings.Contains(r.Path, "resourceVersion=0")
}
