package console

import (
	"time"

	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// This file defines the documents that the console's pages and `kubeweir top` show (see
// docs/console.md). Sizes are in bytes, durations in seconds, rates per second. A value that is
// unknown is null. Lists are never null.

// Session describes what a client may see and do. Clients request it first.
type Session struct {
	// Mode is gateway or standalone.
	Mode    string    `json:"mode"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Actions reports whether actions are enabled (--console-actions).
	Actions bool `json:"actions"`
	// Clusters are the values of the parameter cluster, none if there is a single cluster without
	// a name.
	Clusters []string `json:"clusters"`
	// Pages are the names of the pages in this mode.
	Pages []string `json:"pages"`
}

// Figure is a count since the start of the process, and its recent growth.
type Figure struct {
	Total float64  `json:"total"`
	Rate  *float64 `json:"rate"`
}

// Check is the result of a readiness check.
type Check struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	OK      bool   `json:"ok"`
	Reason  string `json:"reason,omitempty"`
}

// Overview is the state of a cluster, or of all clusters together.
type Overview struct {
	At          time.Time          `json:"at"`
	Cluster     string             `json:"cluster,omitempty"`
	Ready       bool               `json:"ready"`
	Checks      []Check            `json:"checks"`
	Requests    Requests           `json:"requests"`
	Reads       Reads              `json:"reads"`
	Bytes       Traffic            `json:"bytes"`
	Saved       Saved              `json:"saved"`
	Lag         Lag                `json:"lag"`
	Watches     WatchFigures       `json:"watches"`
	Collections CollectionsSummary `json:"collections"`
	Memory      Memory             `json:"memory"`
	CPU         CPU                `json:"cpu"`
	Upstream    *Reachability      `json:"upstream,omitempty"`
	Series      OverviewSeries     `json:"series"`
}

// Requests counts requests of clients. The keys of BySource are the sources of
// kubeweir_requests_total.
type Requests struct {
	Figure
	BySource map[string]Figure `json:"bySource"`
	// Errors counts responses with a status of 500 and above.
	Errors Figure `json:"errors"`
}

// Reads counts gets, lists and watches of resources.
type Reads struct {
	Total float64 `json:"total"`
	// HitShare is the cache hit ratio: the share of reads that needed no upstream request of their
	// own. HitShareRecent is that of recent reads.
	HitShare       *float64 `json:"hitShare"`
	HitShareRecent *float64 `json:"hitShareRecent"`
}

// Traffic counts bytes sent to clients, and bytes received from the upstream.
type Traffic struct {
	Sent     Figure `json:"sent"`
	Upstream Figure `json:"upstream"`
}

// Saved is the upstream load saved. Estimate explains how it is estimated.
type Saved struct {
	Requests   float64 `json:"requests"`
	Bytes      float64 `json:"bytes"`
	CPUSeconds float64 `json:"cpuSeconds"`
	Estimate   string  `json:"estimate"`
}

// Lag is the largest lag of a feed, and the collection of this feed.
type Lag struct {
	Seconds    *float64 `json:"seconds"`
	Collection string   `json:"collection,omitempty"`
}

// WatchFigures counts watches of clients, and their events.
type WatchFigures struct {
	Open    int `json:"open"`
	Lagging int `json:"lagging"`
	// Upstream is the number of watches that feed collections.
	Upstream  int    `json:"upstream"`
	EventsIn  Figure `json:"eventsIn"`
	EventsOut Figure `json:"eventsOut"`
}

// CollectionsSummary counts collections by state.
type CollectionsSummary struct {
	Total    int   `json:"total"`
	Synced   int   `json:"synced"`
	Starting int   `json:"starting"`
	Stale    int   `json:"stale"`
	Stopped  int   `json:"stopped"`
	Objects  int   `json:"objects"`
	Bytes    int64 `json:"bytes"`
}

// Memory is the memory of the process. Limit is GOMEMLIMIT, 0 without one.
type Memory struct {
	Resident float64  `json:"resident"`
	Heap     float64  `json:"heap"`
	Limit    int64    `json:"limit"`
	Budgets  []Budget `json:"budgets"`
}

// Budget is the use of a limit.
type Budget struct {
	Name    string  `json:"name"`
	Cluster string  `json:"cluster,omitempty"`
	Used    float64 `json:"used"`
	// Limit is 0 without a limit.
	Limit float64 `json:"limit"`
	// Unit is bytes, entries, requests or connections.
	Unit string `json:"unit"`
	// Setting is the path of the limit in the configuration, "" if it is fixed.
	Setting string `json:"setting,omitempty"`
}

// CPU is the CPU time of the process.
type CPU struct {
	Seconds    float64  `json:"seconds"`
	Cores      *float64 `json:"cores"`
	GOMAXPROCS int      `json:"gomaxprocs"`
}

// Reachability describes whether a cluster is reachable. Since is when it became unreachable.
type Reachability struct {
	Reachable   bool       `json:"reachable"`
	Since       *time.Time `json:"since,omitempty"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Delay       float64    `json:"delay"`
}

// Series are the points of a chart, Step seconds apart, the oldest first. Unknown points are null.
type Series []*float64

// OverviewSeries are the series of an overview.
type OverviewSeries struct {
	Step          int    `json:"step"`
	CachedRate    Series `json:"cachedRate"`
	ForwardedRate Series `json:"forwardedRate"`
	HitShare      Series `json:"hitShare"`
	SentRate      Series `json:"sentRate"`
	Watches       Series `json:"watches"`
}

// Collections lists the collections in the cache.
type Collections struct {
	At time.Time `json:"at"`
	// HistoryBytesLimit is the limit of each collection.
	HistoryBytesLimit float64      `json:"historyBytesLimit"`
	Collections       []Collection `json:"collections"`
}

// CollectionName identifies a collection among all clusters: a resource in one encoding.
type CollectionName struct {
	ID       string `json:"id"`
	Cluster  string `json:"cluster,omitempty"`
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Encoding string `json:"encoding"`
}

// Collection is the state of a collection.
type Collection struct {
	CollectionName
	// State is starting, synced, stale or stopped.
	State       string     `json:"state"`
	Since       time.Time  `json:"since"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Error       string     `json:"error,omitempty"`
	Objects     int        `json:"objects"`
	Bytes       int64      `json:"bytes"`
	// ResourceVersion is a string, because JavaScript does not represent large integers exactly.
	ResourceVersion string `json:"resourceVersion"`
	// Age is the lag of the feed.
	Age           *float64          `json:"age"`
	Watchers      int               `json:"watchers"`
	Lagging       int               `json:"lagging"`
	EventsIn      Figure            `json:"eventsIn"`
	History       History           `json:"history"`
	Indexes       int               `json:"indexes"`
	Snapshots     int               `json:"snapshots"`
	SnapshotBytes int64             `json:"snapshotBytes"`
	QueryColumns  int               `json:"queryColumns"`
	QueryBytes    int64             `json:"queryBytes"`
	Checked       *time.Time        `json:"checked,omitempty"`
	Series        *CollectionSeries `json:"series,omitempty"`
}

// History is the event history of a collection.
type History struct {
	Events  int     `json:"events"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// CollectionSeries are the series of a collection. Documents in streams omit them.
type CollectionSeries struct {
	Step      int    `json:"step"`
	Objects   Series `json:"objects"`
	Watchers  Series `json:"watchers"`
	EventRate Series `json:"eventRate"`
}

// Clients is the usage by client.
type Clients struct {
	At time.Time `json:"at"`
	// Window is the period of the counts, and Covers the part of it with data. Sort is the order of
	// the lists.
	Window     int                   `json:"window"`
	Covers     float64               `json:"covers"`
	Sort       string                `json:"sort"`
	Users      []Client              `json:"users"`
	UserAgents []Client              `json:"userAgents"`
	Resources  []Client              `json:"resources"`
	Total      usage.Row             `json:"total"`
	Budgets    []ClientBudget        `json:"budgets"`
	Blocked    []policy.BlockedAgent `json:"blocked"`
}

// Client is the usage of a user, a user agent or a resource.
type Client struct {
	Cluster string `json:"cluster,omitempty"`
	usage.Row
}

// ClientBudget is the upstream load that a rule allows each client it matches.
type ClientBudget struct {
	Cluster string `json:"cluster,omitempty"`
	policy.BudgetState
}

// OpenWatches lists watches served from the cache: the first MaxWatches in the requested order, of
// Open.
type OpenWatches struct {
	At      time.Time   `json:"at"`
	Open    int         `json:"open"`
	Shown   int         `json:"shown"`
	Watches []OpenWatch `json:"watches"`
}

// OpenWatch is an open watch.
type OpenWatch struct {
	ID            string    `json:"id"`
	Cluster       string    `json:"cluster,omitempty"`
	User          string    `json:"user"`
	UserAgent     string    `json:"userAgent"`
	Group         string    `json:"group"`
	Version       string    `json:"version"`
	Resource      string    `json:"resource"`
	Namespace     string    `json:"namespace,omitempty"`
	Selector      string    `json:"selector,omitempty"`
	FieldSelector string    `json:"fieldSelector,omitempty"`
	Form          string    `json:"form"`
	Began         time.Time `json:"began"`
	Events        uint64    `json:"events"`
	Lagging       bool      `json:"lagging"`
}

// Upstreams lists the clusters and their API servers.
type Upstreams struct {
	At       time.Time         `json:"at"`
	Clusters []UpstreamCluster `json:"clusters"`
}

// UpstreamCluster is a cluster behind the gateway.
type UpstreamCluster struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Reachability
	Kubernetes    string            `json:"kubernetes,omitempty"`
	Ready         bool              `json:"ready"`
	Checks        []Check           `json:"checks"`
	Watches       int               `json:"watches"`
	Connections   int               `json:"connections"`
	Servers       []APIServer       `json:"servers"`
	Requests      []UpstreamPurpose `json:"requests"`
	MissingRights []Right           `json:"missingRights"`
}

// APIServer is one of several API servers of a cluster.
type APIServer struct {
	Server      string  `json:"server"`
	Up          bool    `json:"up"`
	Preferred   bool    `json:"preferred"`
	Outstanding float64 `json:"outstanding"`
	Requests    float64 `json:"requests"`
	Retries     float64 `json:"retries"`
	Ejections   float64 `json:"ejections"`
}

// UpstreamPurpose counts the upstream requests for one purpose.
type UpstreamPurpose struct {
	Purpose string `json:"purpose"`
	Figure
	Errors float64 `json:"errors"`
	Bytes  float64 `json:"bytes"`
}

// Right is a permission that the gateway lacks in the cluster.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

// Permissions are recent authorization decisions. They contain names, never contents or
// credentials.
type Permissions struct {
	At            time.Time     `json:"at"`
	Decisions     Decisions     `json:"decisions"`
	Invalidations Invalidations `json:"invalidations"`
	Denials       []Denial      `json:"denials"`
	EndedWatches  []EndedWatch  `json:"endedWatches"`
	Rejections    []Rejection   `json:"rejections"`
}

// Decisions counts authorization decisions by source and result, and cached ones.
type Decisions struct {
	Cached   float64 `json:"cached"`
	Upstream float64 `json:"upstream"`
	Offline  float64 `json:"offline"`
	Allowed  float64 `json:"allowed"`
	Denied   float64 `json:"denied"`
	Errors   float64 `json:"errors"`
	Entries  float64 `json:"entries"`
	Limit    float64 `json:"limit"`
}

// Invalidations counts how often all cached decisions were dropped.
type Invalidations struct {
	Total float64    `json:"total"`
	Last  *time.Time `json:"last,omitempty"`
}

// Denial is a request that a user was denied.
type Denial struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster,omitempty"`
	proxy.Denial
}

// EndedWatch is a watch that ended early, and not because of its client.
type EndedWatch struct {
	Cluster string `json:"cluster,omitempty"`
	proxy.EndedWatch
}

// Rejection counts requests that were rejected for a reason in docs/reasons.md.
type Rejection struct {
	Reason string `json:"reason"`
	Figure
}

// Checks lists the results of comparing collections with the upstream.
type Checks struct {
	At time.Time `json:"at"`
	// Period is the time between two checks of a collection, 0 without periodic checks.
	Period float64 `json:"period"`
	// Running reports whether a check started by an action is running.
	Running     bool                `json:"running"`
	Collections []CheckedCollection `json:"collections"`
}

// CheckedCollection is the last check of a collection.
type CheckedCollection struct {
	CollectionName
	// Result is same, differs, unfinished, or none.
	Result    string      `json:"result"`
	Checked   *time.Time  `json:"checked,omitempty"`
	Objects   int         `json:"objects"`
	Sampled   int         `json:"sampled"`
	Differing int         `json:"differing"`
	Error     string      `json:"error,omitempty"`
	Seconds   float64     `json:"seconds"`
	Totals    CheckTotals `json:"totals"`
}

// CheckTotals counts checks by result.
type CheckTotals struct {
	Same       float64 `json:"same"`
	Differs    float64 `json:"differs"`
	Unfinished float64 `json:"unfinished"`
}

// Configuration is the configuration in force.
type Configuration struct {
	// Text is the configuration as a file.
	Format   string    `json:"format"`
	Text     string    `json:"text"`
	Note     string    `json:"note"`
	Settings []Setting `json:"settings"`
}

// Setting is a setting in force.
type Setting struct {
	Path    string `json:"path"`
	Value   string `json:"value"`
	Default bool   `json:"default"`
	Flag    string `json:"flag,omitempty"`
	About   string `json:"about"`
}

// Store is the state of a standalone's store.
type Store struct {
	At time.Time `json:"at"`
	// Engine is embedded or etcd. For etcd, most values are unknown.
	Engine      string      `json:"engine"`
	Available   bool        `json:"available"`
	DiskBytes   float64     `json:"diskBytes"`
	DiskFree    *float64    `json:"diskFree"`
	Keys        float64     `json:"keys"`
	Revision    float64     `json:"revision"`
	Compacted   float64     `json:"compacted"`
	Compactions float64     `json:"compactions"`
	Writes      Figure      `json:"writes"`
	Commit      Commits     `json:"commit"`
	Queued      float64     `json:"queued"`
	IndexBytes  float64     `json:"indexBytes"`
	Watchers    float64     `json:"watchers"`
	Expired     float64     `json:"expired"`
	Types       []StoreType `json:"types"`
	Series      StoreSeries `json:"series"`
}

// Commits holds means over all commits since the start.
type Commits struct {
	Seconds *float64 `json:"seconds"`
	Changes *float64 `json:"changes"`
}

// StoreType is the number of objects of a type. Types of Kubernetes itself have no group.
type StoreType struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Objects  int    `json:"objects"`
}

// StoreSeries are the series of a store.
type StoreSeries struct {
	Step      int    `json:"step"`
	WriteRate Series `json:"writeRate"`
}

// ActionResult is the response to an action.
type ActionResult struct {
	Done bool   `json:"done"`
	Text string `json:"text"`
}

// Failure is the response to a request that fails.
type Failure struct {
	Error string `json:"error"`
}
