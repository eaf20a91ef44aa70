package config

import (
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// Gateway configures `kubeweir gateway`. What Parse returns is valid.
type Gateway struct {
	// Kubeconfig is the file that says where the cluster is and who the gateway
	// is there; "" takes the service account of the pod it runs in. Context is the
	// context of it to use, "" for its current one.
	Kubeconfig string `json:"kubeconfig"`
	Context    string `json:"context"`
	// UpstreamServers are the API servers of the cluster, with the credentials and the CA
	// of the kubeconfig; none for the kubeconfig's server alone. See package apiservers.
	UpstreamServers []string `json:"upstreamServers"`
	// Listen is the host:port of the TLS listener; "" for none, which is possible
	// with InsecureListen only.
	Listen string `json:"listen"`
	// InsecureListen is the plaintext listener, on which everyone has the
	// gateway's own identity: a loopback host:port or "unix:" and an absolute
	// path. "" for none.
	InsecureListen string `json:"insecureListen"`
	// SidecarHosts are host names, without port, by which InsecureListen may be
	// called besides localhost and loopback addresses.
	SidecarHosts []string `json:"sidecarHosts"`
	// AdminListen is the host:port of the console, metrics, health and profiles; "" for none.
	AdminListen string `json:"adminListen"`
	// Profiling says whether AdminListen has /debug/pprof; "auto": on a loopback address.
	Profiling Profiling `json:"profiling"`
	// Console says what AdminListen shows besides.
	Console Console `json:"console"`
	// WatchListCompression compresses watches that begin with the objects there are.
	WatchListCompression bool `json:"watchListCompression"`
	// CacheAggregatedGroups are API groups that are cached although aggregated API
	// servers serve them. Others are forwarded, because such a server may answer each
	// user differently; these must answer everybody alike whom RBAC lets read them, and
	// their lists must be as kube-apiserver's: without kind and apiVersion in the items.
	CacheAggregatedGroups []string `json:"cacheAggregatedGroups"`
	// DropManagedFields are resources, by their plural names with their group unless it
	// is the core group, or "*" for all, of which no managedFields are kept.
	DropManagedFields []string `json:"dropManagedFields"`

	// CertDir is where a generated CA and serving certificate are kept over restarts,
	// with a kubeconfig; "" for the folder kubeweir in the user's cache folder.
	CertDir string `json:"certDir"`

	// ServiceAccountDir is a folder that the gateway fills with what a program in a pod
	// reads from its service account's: ca.crt, namespace, and a token, which stands for
	// the gateway's own identity and is known to nobody else. "" for none.
	ServiceAccountDir string `json:"serviceAccountDir"`

	// Clusters are those that the gateway stands in front of, if there are several. All
	// other settings but those of the process are then what each has unless it says
	// otherwise.
	Clusters []Cluster `json:"clusters"`
	// ClusterProfiles are more of them, which a hub names.
	ClusterProfiles ClusterProfiles `json:"clusterProfiles"`
	// AllClusters bounds what is under way for all of Clusters.
	AllClusters AllClusters `json:"allClusters"`

	TLS            TLS            `json:"tls"`
	Authentication Authentication `json:"authentication"`
	Authorization  Authorization  `json:"authorization"`
	// Profile has other defaults for some of the settings.
	Profile     Profile     `json:"profile"`
	Consistency Consistency `json:"consistency"`
	Offline     Offline     `json:"offline"`
	// Coalesce is for how long the events of a watch wait for others of the same objects,
	// WatchBytesPerSecond from which rate on they wait longer; 0 for not at all.
	Coalesce            time.Duration `json:"coalesce"`
	WatchBytesPerSecond Bytes         `json:"watchBytesPerSecond"`
	// Rules say what holds for some requests instead. They are tried in order; of each
	// setting, the first that matches and has it decides.
	Rules    []Rule   `json:"rules"`
	State    State    `json:"state"`
	Limits   Limits   `json:"limits"`
	Timeouts Timeouts `json:"timeouts"`
	Audit    Audit    `json:"audit"`
	Log      Log      `json:"log"`
	Shutdown Shutdown `json:"shutdown"`
}

// AllClusters bounds what is under way over several clusters, each of which has Limits of
// its own. One that has none yet always finds a place free.
type AllClusters struct {
	// MaxInFlight is the most requests under way, MaxWatches the most watches, log follows
	// and upgraded connections, of which a cluster gets three quarters; one more is
	// answered 429. 0 for no limit.
	MaxInFlight int `json:"maxInFlight"`
	MaxWatches  int `json:"maxWatches"`
}

// Authentication says who is believed. Bearer tokens always are what the cluster
// says of them by TokenReview.
type Authentication struct {
	// Anonymous lets requests without credentials in as system:anonymous. It is
	// off by default, because the gateway cannot know whether the cluster does.
	Anonymous bool `json:"anonymous"`
	// ClientCAFile holds the CAs of client certificates, PEM, read again when it
	// changes; "" accepts none.
	ClientCAFile string `json:"clientCAFile"`
	// RequestHeader describes authenticating proxies in front of the gateway.
	RequestHeader RequestHeader `json:"requestHeader"`
	// TokenTTL is how long an accepted token is believed without asking the
	// cluster again, TokenFailureTTL how long a refused one is refused.
	TokenTTL        time.Duration `json:"tokenTTL"`
	TokenFailureTTL time.Duration `json:"tokenFailureTTL"`
	// CacheSize bounds the tokens, and the certificates, that are remembered.
	CacheSize int `json:"cacheSize"`
}

// RequestHeader describes authenticating proxies, as the --requestheader-* flags
// of kube-apiserver do.
type RequestHeader struct {
	// CAFile holds the CAs of the proxies' client certificates, PEM, read again
	// when it changes; "" trusts no proxy.
	CAFile string `json:"caFile"`
	// AllowedNames are the common names of proxies; none allows every certificate
	// of the CA.
	AllowedNames []string `json:"allowedNames"`
	// UsernameHeaders, UIDHeaders, GroupHeaders and ExtraHeaderPrefixes name the
	// headers in which a proxy says who its client is.
	UsernameHeaders     []string `json:"usernameHeaders"`
	UIDHeaders          []string `json:"uidHeaders"`
	GroupHeaders        []string `json:"groupHeaders"`
	ExtraHeaderPrefixes []string `json:"extraHeaderPrefixes"`
}

// Authorization says how long the cluster's decisions are remembered. Where the
// gateway may watch RBAC objects, a change of one drops them all at once.
type Authorization struct {
	// AllowedTTL is how long a permission is remembered, DeniedTTL how long a
	// refusal.
	AllowedTTL time.Duration `json:"allowedTTL"`
	DeniedTTL  time.Duration `json:"deniedTTL"`
	// CacheSize bounds the decisions that are remembered.
	CacheSize int `json:"cacheSize"`
	// SelfReviews says how questions of clients about themselves are answered.
	SelfReviews SelfReviews `json:"selfReviews"`
	// VisibleNamespaces bounds the names that are remembered for rules with visibleLists.
	VisibleNamespaces int `json:"visibleNamespaces"`
	// WatchRecheckPeriod is how often the permission and the credential of an open
	// watch are reviewed without any change seen, WatchGrace how long a watch goes
	// on while that cannot be done.
	WatchRecheckPeriod time.Duration `json:"watchRecheckPeriod"`
	WatchGrace         time.Duration `json:"watchGrace"`
}

// SelfReviews says how a SelfSubjectAccessReview, SelfSubjectRulesReview or SelfSubjectReview
// is answered.
type SelfReviews string

// The answers to self-reviews.
const (
	// Forwarded has the cluster asked each time.
	Forwarded SelfReviews = "forwarded"
	// Cached answers with what the cluster answered to the same question of the same user,
	// for as long as decisions are remembered.
	Cached SelfReviews = "cached"
)

func (SelfReviews) choices() []string { return []string{string(Forwarded), string(Cached)} }

// State says what is kept over restarts.
type State struct {
	// Dir is the folder where what is cached is kept, so that a restart goes on with it;
	// "" for none.
	Dir string `json:"dir"`
	// KeyFile has the key that what is kept is sealed with; "" for none, and Secrets, and what
	// clients are known by, are not kept then.
	KeyFile string `json:"keyFile"`
	// Exclude are resources, by their plural names with their group unless it is the core
	// group, that are not kept.
	Exclude []string `json:"exclude"`
	// MaxBytes bounds what is on disk, WriteRate the bytes written a second.
	MaxBytes  Bytes `json:"maxBytes"`
	WriteRate Bytes `json:"writeRate"`
	// MaxAge is how long ago something may have been written to be used.
	MaxAge time.Duration `json:"maxAge"`
}

// Mode says how a read of the most recent state (no resourceVersion) is answered.
type Mode string

// The modes.
const (
	// Strict is linearizable: the cluster answers, simultaneous identical reads
	// share an answer.
	Strict Mode = "strict"
	// Session answers from the cache once it holds every write that went through
	// this gateway.
	Session Mode = "session"
)

func (Mode) choices() []string { return []string{string(Strict), string(Session)} }

// Consistency chooses the mode of reads.
type Consistency struct {
	// Default is the mode where no rule says another.
	Default Mode `json:"default"`
	// MaxStaleness is how long ago the cluster may have given a sign of life for
	// an answer in session mode; 0 for any time.
	MaxStaleness time.Duration `json:"maxStaleness"`
}

// Answer says whether something is allowed.
type Answer string

// The answers.
const (
	Allow Answer = "allow"
	Deny  Answer = "deny"
)

func (Answer) choices() []string { return []string{string(Allow), string(Deny)} }

// Offline says who is served from the cache, by what the cluster said last of who they are
// and what they may do, while no API server answers.
type Offline struct {
	// Default is what counts where no rule says something else.
	Default Answer `json:"default"`
	// TTL is how old answers, tokens and permissions may then be.
	TTL time.Duration `json:"ttl"`
}

// Timeouts bound how long the gateway waits for others.
type Timeouts struct {
	ServingTimeouts
	// Review is how long a request waits for a TokenReview or SubjectAccessReview.
	Review time.Duration `json:"review"`

	// UpstreamDial bounds connecting to the cluster, UpstreamRequest the time till
	// its answer begins, UpstreamStall how long a body may then stand still.
	// UpstreamSilence is how long the cluster may give no sign of life to anybody
	// before it counts as gone.
	UpstreamDial    time.Duration `json:"upstreamDial"`
	UpstreamRequest time.Duration `json:"upstreamRequest"`
	UpstreamStall   time.Duration `json:"upstreamStall"`
	UpstreamSilence time.Duration `json:"upstreamSilence"`
	// UpstreamServerCheck is how often each of several API servers is asked whether it is
	// ready, UpstreamServerSilence how long one may give no sign of life before what waits
	// for it goes to another.
	UpstreamServerCheck   time.Duration `json:"upstreamServerCheck"`
	UpstreamServerSilence time.Duration `json:"upstreamServerSilence"`
	// UpstreamPing is after which silence the connection that feeds the cache is
	// pinged, UpstreamPingAnswer how long an answer may take before it is given up.
	UpstreamPing       time.Duration `json:"upstreamPing"`
	UpstreamPingAnswer time.Duration `json:"upstreamPingAnswer"`
	// FeedRead is the silence after which a feed without pings (HTTP/1.1) is given
	// up; bookmarks come once a minute. FeedStale is the silence after which a
	// feed is reported as stale.
	FeedRead  time.Duration `json:"feedRead"`
	FeedStale time.Duration `json:"feedStale"`
}

// Default is the configuration without any file or flag.
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
			UpstreamPingAnswer:    defaults.UpstreamPingTimeout,
			FeedRead:              defaults.FeedReadTimeout,
			FeedStale:             defaults.FeedStale,
		},
		Audit:    defaultAudit(),
		Log:      defaultLog(),
		Shutdown: defaultShutdown(),
	}
}
