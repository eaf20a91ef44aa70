// Package defaults holds the default values of settings that both the configuration (package
// config) and the part it configures need. Each value is defined only here.
package defaults

import "time"

// The cache: per collection (one resource in one encoding), except the last three.
const (
	HistoryAge            = 10 * time.Minute
	HistoryBytes          = 64 << 20
	HistoryEvents         = 102400
	SnapshotAge           = 5 * time.Minute // kube-apiserver's continue tokens last at least this long
	SnapshotBytes         = 64 << 20
	QueryBytes            = 64 << 20
	IdleCollectionTimeout = 10 * time.Minute
	FeedStale             = 30 * time.Second
	MaxIndexes            = 16

	DerivedCacheBytes = 64 << 20 // of all collections together
	MaxColdStarts     = 4        // collections at the same time
	MaxStartWaiters   = 1000     // requests
)

// Authentication and authorization.
const (
	TokenTTL        = 10 * time.Second
	TokenFailureTTL = 2 * time.Second
	TokenCacheSize  = 8192 // tokens

	AllowedTTL         = 10 * time.Second
	DeniedTTL          = 5 * time.Second
	DecisionCacheSize  = 16384 // decisions
	VisibleNamespaces  = 500_000
	WatchRecheckPeriod = time.Minute
	WatchGrace         = 5 * time.Minute

	ReviewTimeout = 10 * time.Second
)

// Client connections. The timeouts are kube-apiserver's where it has them
// (k8s.io/apiserver/pkg/server/secure_serving.go: 32 s for a header, 90 s idle).
const (
	MaxConnections = 32768
	MaxHeaderBytes = 64 << 10
	MaxStreams     = 250 // of one HTTP/2 connection

	HandshakeTimeout  = 10 * time.Second
	ReadHeaderTimeout = 32 * time.Second
	IdleTimeout       = 90 * time.Second
	BodyIdleTimeout   = 5 * time.Minute
	WriteTimeout      = 30 * time.Second // per 512 KiB
	PingInterval      = 30 * time.Second
	PingTimeout       = 15 * time.Second
)

// The upstream: timeouts and limits.
const (
	UpstreamDialTimeout    = 10 * time.Second
	UpstreamRequestTimeout = 70 * time.Second // kube-apiserver gives up after 60 s
	UpstreamStallTimeout   = time.Minute
	UpstreamSilenceTimeout = 10 * time.Second
	UpstreamServerCheck    = time.Second
	UpstreamServerSilence  = 2 * time.Second
	UpstreamPingInterval   = 5 * time.Second
	UpstreamPingTimeout    = 10 * time.Second
	FeedReadTimeout        = 150 * time.Second // bookmarks come every 60 s

	MaxObjectBytes = 32 << 20
)

// State that survives restarts.
const (
	StateMaxBytes  = 4 << 30
	StateWriteRate = 16 << 20 // bytes a second
	StateMaxAge    = 7 * 24 * time.Hour
)

// Coalesced watches: the profile for dashboards, also in bytes a second, and the bounds of what
// clients may request.
const (
	DashboardCoalesce   = 500 * time.Millisecond
	DashboardWatchBytes = 1 << 20
	MinCoalesce         = 10 * time.Millisecond
	MaxCoalesce         = 30 * time.Second
)
