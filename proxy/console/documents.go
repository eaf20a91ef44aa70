package console

import "time"

// This file has the documents that the console's pages and `kubeweir top` are made of, as
// docs/console.md describes them. Sizes are in bytes, durations in seconds, rates in a second.
// A rate, or what is not known, that is nil is null. Lists are never null.

// Session is what a client may see and do: what is asked for first.
type Session struct {
	// Mode is gateway or standalone.
	Mode    string    `json:"mode"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Actions tells whether actions are allowed (--console-actions).
	Actions bool `json:"actions"`
	// Clusters are the names that the parameter cluster may have; none where there is one
	// cluster, without a name.
	Clusters []string `json:"clusters"`
	// Pages are those that there are.
	Pages []string `json:"pages"`
}

// Figure is a count since the start, and how fast it grows.
type Figure struct {
	Total float64  `json:"total"`
	Rate  *float64 `json:"rate"`
}

// Check is a condition of health.
type Check struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	OK      bool   `json:"ok"`
	Reason  string `json:"reason,omitempty"`
}

// Overview is how a cluster, or all of them together, are doing.
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

// Requests are those of clients. BySource has the sources of kubeweir_requests_total.
type Requests struct {
	Figure
	BySource map[string]Figure `json:"bySource"`
	// Errors are answers from 500 on.
	Errors Figure `json:"errors"`
}

// Reads are gets, lists and watches of resources.
type Reads struct {
	Total float64 `json:"total"`
	// HitShare is the share of them that made no request of its own at the upstream: since
	// the start, and of late.
	HitShare       *float64 `json:"hitShare"`
	HitShareRecent *float64 `json:"hitShareRecent"`
}

// Traffic is what clients were sent, and what came of the upstream.
type Traffic struct {
	Sent     Figure `json:"sent"`
	Upstream Figure `json:"upstream"`
}

// Saved is what the upstream was saved, by an estimate which Estimate explains.
type Saved struct {
	Requests   float64 `json:"requests"`
	Bytes      float64 `json:"bytes"`
	CPUSeconds float64 `json:"cpuSeconds"`
	Estimate   string  `json:"estimate"`
}

// Lag is how long ago the feed that is furthest behind gave a sign of life.
type Lag struct {
	Seconds    *float64 `json:"seconds"`
	Collection string   `json:"collection,omitempty"`
}

// WatchFigures are those of the clients' watches, and of the feeds.
type WatchFigures struct {
	Open    int `json:"open"`
	Lagging int `json:"lagging"`
	// Upstream are the watches by which the collections are fed.
	Upstream  int    `json:"upstream"`
	EventsIn  Figure `json:"eventsIn"`
	EventsOut Figure `json:"eventsOut"`
}

// CollectionsSummary counts the collections.
type CollectionsSummary struct {
	Total    int   `json:"total"`
	Synced   int   `json:"synced"`
	Starting int   `json:"starting"`
	Stale    int   `json:"stale"`
	Stopped  int   `json:"stopped"`
	Objects  int   `json:"objects"`
	Bytes    int64 `json:"bytes"`
}

// Memory is the process's. Limit is GOMEMLIMIT, 0 for none.
type Memory struct {
	Resident float64  `json:"resident"`
	Heap     float64  `json:"heap"`
	Limit    int64    `json:"limit"`
	Budgets  []Budget `json:"budgets"`
}

// Budget is something that has a bound.
type Budget struct {
	Name    string  `json:"name"`
	Cluster string  `json:"cluster,omitempty"`
	Used    float64 `json:"used"`
	// Limit is 0 for none.
	Limit float64 `json:"limit"`
	// Unit is bytes, entries, requests or connections.
	Unit string `json:"unit"`
	// Setting is the path of the bound in the configuration, "" where it is fixed.
	Setting string `json:"setting,omitempty"`
}

// CPU is the process's.
type CPU struct {
	Seconds    float64  `json:"seconds"`
	Cores      *float64 `json:"cores"`
	GOMAXPROCS int      `json:"gomaxprocs"`
}

// Reachability tells whether API servers answer.
type Reachability struct {
	Reachable   bool       `json:"reachable"`
	Since       *time.Time `json:"since,omitempty"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Delay       float64    `json:"delay"`
}

// Series are numbers, or null, Step seconds apart, the oldest first.
type Series []*float64

// OverviewSeries are those of the overview.
type OverviewSeries struct {
	Step          int    `json:"step"`
	CachedRate    Series `json:"cachedRate"`
	ForwardedRate Series `json:"forwardedRate"`
	HitShare      Series `json:"hitShare"`
	SentRate      Series `json:"sentRate"`
	Watches       Series `json:"watches"`
}

// Collections are all that are kept.
type Collections struct {
	At time.Time `json:"at"`
	// HistoryBytesLimit is of each.
	HistoryBytesLimit float64      `json:"historyBytesLimit"`
	Collections       []Collection `json:"collections"`
}

// CollectionName names a resource in one encoding among those of all clusters.
type CollectionName struct {
	ID       string `json:"id"`
	Cluster  string `json:"cluster,omitempty"`
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Encoding string `json:"encoding"`
}

// Collection is a resource in one encoding.
type Collection struct {
	CollectionName
	// State is starting, synced, stale or stopped.
	State       string     `json:"state"`
	Since       time.Time  `json:"since"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Error       string     `json:"error,omitempty"`
	Objects     int        `json:"objects"`
	Bytes       int64      `json:"bytes"`
	// ResourceVersion is text: it may be larger than what JavaScript counts exactly.
	ResourceVersion string `json:"resourceVersion"`
	// Age is how long ago the feed gave a sign of life.
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

// History is what a collection remembers of its past.
type History struct {
	Events  int     `json:"events"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// CollectionSeries are those of a collection; events leave them out.
type CollectionSeries struct {
	Step      int    `json:"step"`
	Objects   Series `json:"objects"`
	Watchers  Series `json:"watchers"`
	EventRate Series `json:"eventRate"`
}

// Clients are who costs what.
type Clients struct {
	At time.Time `json:"at"`
	// Unavailable says why there are no numbers, "" where there are.
	Unavailable string `json:"unavailable,omitempty"`
	// Window is what the counts are of, in seconds, Covers how much of it there is yet; Sort
	// what the lists are ordered by.
	Window     int            `json:"window"`
	Covers     float64        `json:"covers"`
	Sort       string         `json:"sort"`
	Users      []Client       `json:"users"`
	UserAgents []Client       `json:"userAgents"`
	Resources  []Client       `json:"resources"`
	Total      Client         `json:"total"`
	Budgets    []ClientBudget `json:"budgets"`
	Blocked    []Blocked      `json:"blocked"`
}

// Client is a user, a user agent or a resource.
type Client struct {
	Cluster          string  `json:"cluster,omitempty"`
	Name             string  `json:"name"`
	Requests         float64 `json:"requests"`
	Bytes            float64 `json:"bytes"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	Watches          float64 `json:"watches"`
	UpstreamRequests float64 `json:"upstreamRequests"`
	UpstreamBytes    float64 `json:"upstreamBytes"`
	Refused          float64 `json:"refused"`
	// Missing is by how many requests at most the count may be too small: of who fell out of
	// the bounded table meanwhile; 0 for an exact one.
	Missing float64 `json:"missing"`
}

// ClientBudget is what a rule allows somebody to cause at the upstream.
type ClientBudget struct {
	Cluster           string  `json:"cluster,omitempty"`
	Rule              string  `json:"rule"`
	Who               string  `json:"who"`
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`
	BytesPerSecond    float64 `json:"bytesPerSecond,omitempty"`
	Refused           float64 `json:"refused"`
	AnsweredStale     float64 `json:"answeredStale"`
}

// Blocked is a user agent that is refused.
type Blocked struct {
	UserAgent string     `json:"userAgent"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"`
	Refused   float64    `json:"refused"`
}

// OpenWatches are watches that are served from the cache: the first MaxWatches by the order
// that is asked for, of Open.
type OpenWatches struct {
	At      time.Time   `json:"at"`
	Open    int         `json:"open"`
	Shown   int         `json:"shown"`
	Watches []OpenWatch `json:"watches"`
}

// OpenWatch is one watch.
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

// Upstreams are the clusters and their API servers.
type Upstreams struct {
	At       time.Time         `json:"at"`
	Clusters []UpstreamCluster `json:"clusters"`
}

// UpstreamCluster is one of them.
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

// APIServer is one of several of a cluster.
type APIServer struct {
	Server      string  `json:"server"`
	Up          bool    `json:"up"`
	Preferred   bool    `json:"preferred"`
	Outstanding float64 `json:"outstanding"`
	Requests    float64 `json:"requests"`
	Retries     float64 `json:"retries"`
	Ejections   float64 `json:"ejections"`
}

// UpstreamPurpose are the requests to the upstream for one purpose.
type UpstreamPurpose struct {
	Purpose string `json:"purpose"`
	Figure
	Errors float64 `json:"errors"`
	Bytes  float64 `json:"bytes"`
}

// Right is one that the gateway lacks at the cluster.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

// Permissions are what was decided of late. They have names, never contents or credentials.
type Permissions struct {
	At            time.Time     `json:"at"`
	Decisions     Decisions     `json:"decisions"`
	Invalidations Invalidations `json:"invalidations"`
	Denials       []Denial      `json:"denials"`
	Revocations   []Revocation  `json:"revocations"`
	EndedWatches  []EndedWatch  `json:"endedWatches"`
	Refusals      []Rejection   `json:"refusals"`
}

// Decisions counts what was decided, and by whom.
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

// Invalidations counts how often all decisions were dropped.
type Invalidations struct {
	Total float64    `json:"total"`
	Last  *time.Time `json:"last,omitempty"`
}

// Denial is what somebody was not allowed, Count times, lately At.
type Denial struct {
	ID          string    `json:"id"`
	At          time.Time `json:"at"`
	Cluster     string    `json:"cluster,omitempty"`
	User        string    `json:"user"`
	UserAgent   string    `json:"userAgent"`
	Verb        string    `json:"verb"`
	Group       string    `json:"group"`
	Resource    string    `json:"resource"`
	Subresource string    `json:"subresource,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
	Path        string    `json:"path,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Count       int       `json:"count"`
}

// Revocation is a moment at which rights changed.
type Revocation struct {
	At      time.Time `json:"at"`
	Cluster string    `json:"cluster,omitempty"`
	What    string    `json:"what"`
}

// EndedWatch is a watch that was ended by something else than its client or its time.
type EndedWatch struct {
	At        time.Time `json:"at"`
	Cluster   string    `json:"cluster,omitempty"`
	User      string    `json:"user"`
	Group     string    `json:"group"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Reason    string    `json:"reason"`
	Seconds   float64   `json:"seconds"`
}

// Refused counts requests that were refused for a reason of docs/reasons.md.
type Rejection struct {
	Reason string `json:"reason"`
	Figure
}

// Checks are the comparisons of the collections with the upstream.
type Checks struct {
	At time.Time `json:"at"`
	// Period is in which time each is compared, 0 for never.
	Period float64 `json:"period"`
	// Running tells that one is under way that an action began.
	Running     bool                `json:"running"`
	Collections []CheckedCollection `json:"collections"`
}

// CheckedCollection is what was found of one.
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

// CheckTotals counts the results.
type CheckTotals struct {
	Same       float64 `json:"same"`
	Differs    float64 `json:"differs"`
	Unfinished float64 `json:"unfinished"`
}

// Configuration is what is in force.
type Configuration struct {
	// Text is all settings as a configuration file.
	Format   string    `json:"format"`
	Text     string    `json:"text"`
	Note     string    `json:"note"`
	Settings []Setting `json:"settings"`
}

// Setting is one of them.
type Setting struct {
	Path    string `json:"path"`
	Value   string `json:"value"`
	Default bool   `json:"default"`
	Flag    string `json:"flag,omitempty"`
	About   string `json:"about"`
}

// Store is that of a standalone.
type Store struct {
	At time.Time `json:"at"`
	// Engine is embedded or etcd; of etcd little is known here.
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
	RingBytes   float64     `json:"ringBytes"`
	Watchers    float64     `json:"watchers"`
	Expired     float64     `json:"expired"`
	Types       []StoreType `json:"types"`
	TypesNote   string      `json:"typesNote,omitempty"`
	Series      StoreSeries `json:"series"`
}

// Commits are means over all since the start.
type Commits struct {
	Seconds *float64 `json:"seconds"`
	Changes *float64 `json:"changes"`
}

// StoreType is how much there is of one type. Bytes are those of the objects in the cache, about what the store has, null for
// what the cache does not hold.
type StoreType struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	Objects  int    `json:"objects"`
	Bytes    *int64 `json:"bytes"`
}

// StoreSeries are those of the store.
type StoreSeries struct {
	Step      int    `json:"step"`
	WriteRate Series `json:"writeRate"`
}

// Done is the answer to an action.
type ActionResult struct {
	Done bool   `json:"done"`
	Text string `json:"text"`
}

// Failure is the answer to what cannot be done.
type Failure struct {
	Error string `json:"error"`
}
