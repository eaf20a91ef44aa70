package config

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Gateway configures `kubeweir gateway`. Parse returns only valid configurations. Its sections
// describe the fields.
type Gateway struct {
	Kubeconfig           string    `json:"kubeconfig"`
	Context              string    `json:"context"`
	UpstreamServers      []string  `json:"upstreamServers"`
	Listen               string    `json:"listen"`
	InsecureListen       string    `json:"insecureListen"`
	SidecarHosts         []string  `json:"sidecarHosts"`
	AdminListen          string    `json:"adminListen"`
	Profiling            Profiling `json:"profiling"`
	Console              Console   `json:"console"`
	WatchListCompression bool      `json:"watchListCompression"`
	// CacheAggregatedGroups are the groups of aggregated API servers to cache. Other aggregated
	// groups are forwarded, because such a server may respond to each user differently.
	CacheAggregatedGroups []string `json:"cacheAggregatedGroups"`
	DropManagedFields     []string `json:"dropManagedFields"`

	CertDir           string `json:"certDir"`
	ServiceAccountDir string `json:"serviceAccountDir"`

	Clusters        []Cluster       `json:"clusters"`
	ClusterProfiles ClusterProfiles `json:"clusterProfiles"`
	AllClusters     AllClusters     `json:"allClusters"`

	TLS                 TLS            `json:"tls"`
	Authentication      Authentication `json:"authentication"`
	Authorization       Authorization  `json:"authorization"`
	Profile             Profile        `json:"profile"`
	Consistency         Consistency    `json:"consistency"`
	Offline             Offline        `json:"offline"`
	Coalesce            time.Duration  `json:"coalesce"`
	WatchBytesPerSecond Bytes          `json:"watchBytesPerSecond"`
	Rules               []Rule         `json:"rules"`
	State               State          `json:"state"`
	Limits              Limits         `json:"limits"`
	Timeouts            Timeouts       `json:"timeouts"`
	Audit               Audit          `json:"audit"`
	Tracing             Tracing        `json:"tracing"`
	Log                 Log            `json:"log"`
	Shutdown            Shutdown       `json:"shutdown"`
}

// AllClusters limits the requests in flight over all clusters, each of which also has its own Limits.
// A cluster without requests always gets a slot.
type AllClusters struct {
	MaxInFlight int `json:"maxInFlight"`
	MaxWatches  int `json:"maxWatches"`
}

// Authentication configures who is accepted, in addition to bearer tokens, which the cluster reviews.
type Authentication struct {
	// Anonymous is off by default, because the gateway cannot know whether the cluster accepts requests
	// without credentials.
	Anonymous       bool          `json:"anonymous"`
	ClientCAFile    string        `json:"clientCAFile"`
	RequestHeader   RequestHeader `json:"requestHeader"`
	TokenTTL        time.Duration `json:"tokenTTL"`
	TokenFailureTTL time.Duration `json:"tokenFailureTTL"`
	CacheSize       int           `json:"cacheSize"`
}

// RequestHeader describes authenticating proxies, as the --requestheader-* flags
// of kube-apiserver do.
type RequestHeader struct {
	CAFile              string   `json:"caFile"`
	AllowedNames        []string `json:"allowedNames"`
	UsernameHeaders     []string `json:"usernameHeaders"`
	UIDHeaders          []string `json:"uidHeaders"`
	GroupHeaders        []string `json:"groupHeaders"`
	ExtraHeaderPrefixes []string `json:"extraHeaderPrefixes"`
}

// Authorization determines how long the cluster's decisions are cached. If the gateway may watch
// RBAC objects, a change of one invalidates all of them at once.
type Authorization struct {
	AllowedTTL         time.Duration `json:"allowedTTL"`
	DeniedTTL          time.Duration `json:"deniedTTL"`
	CacheSize          int           `json:"cacheSize"`
	SelfReviews        SelfReviews   `json:"selfReviews"`
	VisibleNamespaces  int           `json:"visibleNamespaces"`
	WatchRecheckPeriod time.Duration `json:"watchRecheckPeriod"`
	WatchGrace         time.Duration `json:"watchGrace"`
}

// SelfReviews determines how SelfSubjectAccessReviews, SelfSubjectRulesReviews and
// SelfSubjectReviews are served.
type SelfReviews string

// The values of SelfReviews.
const (
	// Forwarded sends each review to the cluster.
	Forwarded SelfReviews = "forwarded"
	// Cached serves the cluster's response to the same review of the same user, for as long as
	// decisions are cached.
	Cached SelfReviews = "cached"
)

func (SelfReviews) choices() []string { return []string{string(Forwarded), string(Cached)} }

// State configures the state that is saved for a restart.
type State struct {
	Dir       string        `json:"dir"`
	KeyFile   string        `json:"keyFile"`
	Exclude   []string      `json:"exclude"`
	MaxBytes  Bytes         `json:"maxBytes"`
	WriteRate Bytes         `json:"writeRate"`
	MaxAge    time.Duration `json:"maxAge"`
}

// Mode determines how a read of the most recent state (no resourceVersion) is served.
type Mode string

// The modes.
const (
	// Strict is linearizable: the cluster responds, and simultaneous identical reads share a
	// response.
	Strict Mode = "strict"
	// Session serves from the cache once it holds every write that went through this gateway.
	Session Mode = "session"
)

func (Mode) choices() []string { return []string{string(Strict), string(Session)} }

// Consistency chooses the mode of reads.
type Consistency struct {
	Default      Mode          `json:"default"`
	MaxStaleness time.Duration `json:"maxStaleness"`
}

// Response allows or denies something.
type Response string

// The values of Response.
const (
	Allow Response = "allow"
	Deny  Response = "deny"
)

func (Response) choices() []string { return []string{string(Allow), string(Deny)} }

// Offline determines which clients are served from the cache while no API server responds, based on
// the cluster's last decisions about them.
type Offline struct {
	Default Response      `json:"default"`
	TTL     time.Duration `json:"ttl"`
}

// Timeouts bound how long the gateway waits for others.
type Timeouts struct {
	ServingTimeouts
	Review time.Duration `json:"review"`

	UpstreamDial          time.Duration `json:"upstreamDial"`
	UpstreamRequest       time.Duration `json:"upstreamRequest"`
	UpstreamStall         time.Duration `json:"upstreamStall"`
	UpstreamSilence       time.Duration `json:"upstreamSilence"`
	UpstreamServerCheck   time.Duration `json:"upstreamServerCheck"`
	UpstreamServerSilence time.Duration `json:"upstreamServerSilence"`
	UpstreamPing          time.Duration `json:"upstreamPing"`
	UpstreamPingResponse  time.Duration `json:"upstreamPingAnswer"`
	FeedRead              time.Duration `json:"feedRead"`
	FeedStale             time.Duration `json:"feedStale"`
}

// Default returns the configuration without any file or flag.
func Default() *Gateway {
	return &Gateway{
		Listen:               "127.0.0.1:8443",
		AdminListen:          "127.0.0.1:9444",
		Profiling:            ProfilingAuto,
		Console:              defaultConsole(),
		WatchListCompression: true,
		TLS:                  TLS{MinVersion: TLS12},
		ClusterProfiles:      ClusterProfiles{Max: 100},
		AllClusters:          AllClusters{MaxInFlight: 4000, MaxWatches: 40000},
		Authentication: Authentication{
			RequestHeader: RequestHeader{
				UsernameHeaders:     []string{"X-Remote-User"},
				UIDHeaders:          []string{"X-Remote-Uid"},
				GroupHeaders:        []string{"X-Remote-Group"},
				ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
			},
			TokenTTL:        defaults.TokenTTL,
			TokenFailureTTL: defaults.TokenFailureTTL,
			CacheSize:       defaults.TokenCacheSize,
		},
		Authorization: Authorization{
			AllowedTTL:         defaults.AllowedTTL,
			DeniedTTL:          defaults.DeniedTTL,
			CacheSize:          defaults.DecisionCacheSize,
			SelfReviews:        Forwarded,
			VisibleNamespaces:  defaults.VisibleNamespaces,
			WatchRecheckPeriod: defaults.WatchRecheckPeriod,
			WatchGrace:         defaults.WatchGrace,
		},
		Profile:     NoProfile,
		Consistency: Consistency{Default: Strict, MaxStaleness: 30 * time.Second},
		Offline:     Offline{Default: Deny, TTL: time.Hour},
		State:       State{MaxBytes: defaults.StateMaxBytes, WriteRate: defaults.StateWriteRate, MaxAge: defaults.StateMaxAge},
		Limits:      defaultLimits(),
		Timeouts: Timeouts{
			ServingTimeouts:       defaultServingTimeouts(),
			Review:                defaults.ReviewTimeout,
			UpstreamDial:          defaults.UpstreamDialTimeout,
			UpstreamRequest:       defaults.UpstreamRequestTimeout,
			UpstreamStall:         defaults.UpstreamStallTimeout,
			UpstreamSilence:       defaults.UpstreamSilenceTimeout,
			UpstreamServerCheck:   defaults.UpstreamServerCheck,
			UpstreamServerSilence: defaults.UpstreamServerSilence,
			UpstreamPing:          defaults.UpstreamPingInterval,
			UpstreamPingResponse:  defaults.UpstreamPingTimeout,
			FeedRead:              defaults.FeedReadTimeout,
			FeedStale:             defaults.FeedStale,
		},
		Audit:    defaultAudit(),
		Log:      defaultLog(),
		Shutdown: defaultShutdown(),
	}
}
