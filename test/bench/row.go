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
	// WatchList: one client opens a watch with initial events and ends it after them, again and
	// again. Each is a request.
	WatchList Kind = "watch list"
	// Informers: many client-go informers start at the same moment. An informer is the unit.
	Informers Kind = "informers"
	// Burst: many clients send the same request at the same moment.
	Burst Kind = "burst"
	// FanOut: every event goes to every watcher. A delivery is the unit.
	FanOut Kind = "fan-out"
	// LabelWatch: each watcher has its own label selector and every event goes to one of them. An
	// event is the unit.
	LabelWatch Kind = "label watch"
	// Write: the median time that the gateway adds to a write.
	Write Kind = "write"
	// Resident: memory with all pods in the cache.
	Resident Kind = "resident memory"
	// IdleWatch: memory of an open watch without events.
	IdleWatch Kind = "idle watch"
	// IdleConn: memory of an open connection without a request.
	IdleConn Kind = "idle connection"

	// The following kinds compare a standalone kubeweir with kube-apiserver and etcd together.

	// Start: the time from the start until ready, with the existing data.
	Start Kind = "start"
	// StoreMemory: memory of the idle processes.
	StoreMemory Kind = "memory of a store"
	// Create: clients create objects, each of which is on disk before the response.
	Create Kind = "create"

	// The following kinds need a number of Objects, which a synthetic API server generates.

	// ColdSync: the cost of filling an empty cache. A megabyte of JSON is the unit.
	ColdSync Kind = "cold sync"
	// WarmStart: the time until a gateway with saved state serves all pods in their current state,
	// after half a percent of them changed.
	WarmStart Kind = "warm start"
	// Restart: WarmStart until a client has read all pods, beside a start without saved state and
	// the start of a server that stores one file per object.
	Restart Kind = "restart"
	// UplinkStart: the time until a gateway with saved state serves all pods, however stale, when
	// its link carries Uplink bits a second. The cluster has pods and nodes. A note says when both
	// are current.
	UplinkStart Kind = "warm start over an uplink"
	// Growth: how much memory grows with the second half of many events.
	Growth Kind = "growth of memory"
	// ScaledList: Requests with a megabyte of the response as the unit.
	ScaledList Kind = "scaled list"
	// ScaledWatch: LabelWatch with a synthetic API server.
	ScaledWatch Kind = "scaled watch"
	// Queries: one client requests sorted, filtered and counted lists in turn.
	Queries Kind = "queries"

	// Visible: a user may list pods in Visible of Objects namespaces and lists them cluster-wide.
	// Objects counts the namespaces of a separate kube-apiserver.
	Visible Kind = "visible"

	// Tabs: watches of what people look at, which need not see each event. A second of one watch is
	// the unit. Objects is optional.
	Tabs Kind = "tabs"
)

// A Row is one line of the table. Zero values mean: no churn, identity encoding, one client.
type Row struct {
	// Name selects the row on the command line, Title is its title in the table.
	Name, Title string
	Kind        Kind
	// Over is the protocol of the clients.
	Over Protocol
	// PerConnection is how many watches share an HTTP/2 connection. Zero means one.
	PerConnection int
	// Stalled is how many additional watches are open but never read.
	Stalled int
	// Path is the request's path and query. {namespace}, {node}, {pod} and {version} are replaced
	// with the testbed's, {shard} with each of Shards parts of the pods in turn.
	Path   string
	Shards int
	// Queries are appended to Path in turn.
	Queries []string
	// Accept is the requested media type; empty for JSON.
	Accept string
	// Gzip accepts gzip.
	Gzip bool
	// Conditional sends the ETag of an earlier response of kubeweir as If-None-Match.
	Conditional bool
	// Objects is how many pods a synthetic API server has; zero for the testbed's kube-apiserver.
	Objects int
	// Visible is in how many namespaces the user may list, in a row of that kind.
	Visible int
	// Clients is how many clients or watchers there are. Zero means one.
	Clients int
	// Churn is how many pods are updated a second during the measurement, not through the gateway.
	Churn int
	// WritesThrough sends the updates of Churn through the measured server.
	WritesThrough bool
	// Session measures a gateway with --consistency=session.
	Session bool
	// WithoutManagedFields measures a gateway that drops the managedFields of pods.
	WithoutManagedFields bool
	// Coalesced measures a gateway that coalesces watches, up to a bound in bytes.
	Coalesced bool
	// Changing is how many different pods the events are about; zero means all.
	Changing int
	// Saved measures a gateway that saves its state.
	Saved bool
	// Long measures a row of kind ScaledWatch for longer, because it differs little from another
	// row.
	Long bool
	// Uplink is the bandwidth to the upstream in bits per second, from the measured moment on; zero
	// means unlimited.
	Uplink int
	// Own measures a gateway of its own, because the row leaves work behind: a second reflector.
	Own bool
	// Upstream adds kube-apiserver's processor time to kubeweir's, because kubeweir needs
	// kube-apiserver for the row.
	Upstream bool
	// Rate is how many events per second are sent to watchers; zero means as many as the server
	// takes.
	Rate int
	// Plaintext measures the gateway's plaintext listener.
	Plaintext bool

	Target Target
}

// unit returns the unit of the row's quantity.
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

// quantity returns what the row compares.
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

// protocol returns Over, or HTTP/1.1 if it is not set.
func (r *Row) protocol() Protocol { return cmp.Or(r.Over, HTTP1) }

// inFlight returns how many requests a client has in flight: two over HTTP/2, if they do not depend
// on each other.
func (r *Row) inFlight() int {
	if r.Over == HTTP2 && (r.Kind == Requests || r.Kind == WatchList) {
		return 2
	}
	return 1
}

// drops reports whether the row requests objects without managedFields.
func (r *Row) drops() bool { return strings.HasSuffix(r.Accept, withoutManagedFields) }

// paths returns the paths to request in turn. All placeholders but {shard} are already replaced.
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

// hasFloor reports whether the floor serves the row's requests. It does not support watches with
// initial events.
func (r *Row) hasFloor() bool { return r.Kind == Requests || r.Kind == Pages }

// nginxServes reports whether a cache without freshness could respond: the request accepts any age,
// and the objects do not change.
func (r *Row) nginxServes() bool {
	return r.Kind == Requests && r.Churn == 0 && !r.Conditional && !r.drops() && strings.Contains(r.Path, "resourceVersion=0")
}
