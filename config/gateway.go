package config

import (
	"log/slog"
	"strconv"
	"time"
)

// Gateway configures `kubeweir gateway`. What Parse returns is valid.
type Gateway struct {
	// Kubeconfig is the file that says where the cluster is and who the gateway
	// is there; "" takes the service account of the pod it runs in. Context is the
	// context of it to use, "" for its current one.
	Kubeconfig string `json:"kubeconfig"`
	Context    string `json:"context"`
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
	// AdminListen is the host:port of metrics, health and profiles; "" for none.
	AdminListen string `json:"adminListen"`

	TLS            TLS            `json:"tls"`
	Authentication Authentication `json:"authentication"`
	Authorization  Authorization  `json:"authorization"`
	Consistency    Consistency    `json:"consistency"`
	Limits         Limits         `json:"limits"`
	Timeouts       Timeouts       `json:"timeouts"`
	Audit          Audit          `json:"audit"`
	Log            Log            `json:"log"`
	Shutdown       Shutdown       `json:"shutdown"`
}

// TLS is the serving certificate. Both files or none; with none a certificate is
// generated at every start. The files are read again when they change.
type TLS struct {
	// CertFile holds the certificate and its chain, PrivateKeyFile its key; PEM.
	CertFile       string `json:"certFile"`
	PrivateKeyFile string `json:"privateKeyFile"`
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
	// OfflineTTL is how much longer than their TTLs accepted tokens and allowed
	// permissions count while the cluster cannot be asked; 0 for not at all.
	OfflineTTL time.Duration `json:"offlineTTL"`
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
	// WatchRecheckPeriod is how often the permission and the credential of an open
	// watch are reviewed without any change seen, WatchGrace how long a watch goes
	// on while that cannot be done.
	WatchRecheckPeriod time.Duration `json:"watchRecheckPeriod"`
	WatchGrace         time.Duration `json:"watchGrace"`
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
	// Default is the mode where no rule matches.
	Default Mode `json:"default"`
	// MaxStaleness is how long ago the cluster may have given a sign of life for
	// an answer in session mode; 0 for any time.
	MaxStaleness time.Duration `json:"maxStaleness"`
	// Rules are tried in order; the first that matches decides.
	Rules []Rule `json:"rules"`
}

// Rule matches a read when each of its lists that is not empty has a match.
type Rule struct {
	// Users, Groups and UserAgents are names in which "*" stands for any run of
	// characters: "Headlamp*", "system:serviceaccount:ci:*".
	Users      []string `json:"users"`
	Groups     []string `json:"groups"`
	UserAgents []string `json:"userAgents"`
	// Resources are plural names, with their group unless it is the core group:
	// "pods", "deployments.apps".
	Resources []string `json:"resources"`
	// Mode is what the rule decides. Required.
	Mode Mode `json:"mode"`
}

// Limits bound what the gateway keeps and does at a time. Each has a metric.
type Limits struct {
	// MaxInFlight is the most requests under way, MaxWatches the most watches, log
	// follows and upgraded connections; one more is answered 429. 0 for no limit.
	MaxInFlight int `json:"maxInFlight"`
	MaxWatches  int `json:"maxWatches"`
	// MaxResumedWatches is the most watches that the cluster continues because they
	// begin before what the cache remembers; one more is told to list again.
	MaxResumedWatches int `json:"maxResumedWatches"`
	// MaxConnections is the most open connections over all listeners.
	MaxConnections int `json:"maxConnections"`
	// MaxStreams is the most concurrent requests on one HTTP/2 connection.
	MaxStreams int `json:"maxStreams"`
	// MaxHeaderBytes is the most bytes of a request line and its header.
	MaxHeaderBytes Bytes `json:"maxHeaderBytes"`
	// HistoryAge, HistoryBytes and HistoryEvents bound the events that each
	// collection keeps for watches that resume and for reads at old versions.
	HistoryAge    time.Duration `json:"historyAge"`
	HistoryBytes  Bytes         `json:"historyBytes"`
	HistoryEvents int           `json:"historyEvents"`
	// SnapshotAge and SnapshotBytes bound the retained states of a collection, by
	// which lists are continued: how long one stays unused, and the bytes that all
	// of them keep from being freed.
	SnapshotAge   time.Duration `json:"snapshotAge"`
	SnapshotBytes Bytes         `json:"snapshotBytes"`
	// DerivedCacheBytes bounds what is kept of compressed lists, tables and
	// metadata, over all collections.
	DerivedCacheBytes Bytes `json:"derivedCacheBytes"`
	// CollapsedBodyBytes is the largest answer of the cluster that is shared
	// between callers; larger ones are fetched by each caller.
	CollapsedBodyBytes Bytes `json:"collapsedBodyBytes"`
	// MaxObjectBytes is the largest object that is cached.
	MaxObjectBytes Bytes `json:"maxObjectBytes"`
	// MaxColdStarts is how many collections may read their first list at a time,
	// MaxStartWaiters how many requests may wait for collections to start.
	MaxColdStarts   int `json:"maxColdStarts"`
	MaxStartWaiters int `json:"maxStartWaiters"`
	// MaxIndexes is how many labels and fields of a collection are indexed.
	MaxIndexes int `json:"maxIndexes"`
	// IdleCollectionTimeout is after which time without a read or a watch a
	// collection is dropped.
	IdleCollectionTimeout time.Duration `json:"idleCollectionTimeout"`
}

// Timeouts bound how long the gateway waits for others.
type Timeouts struct {
	// Handshake bounds a client's TLS handshake, ReadHeader the reading of a
	// request's header.
	Handshake  time.Duration `json:"handshake"`
	ReadHeader time.Duration `json:"readHeader"`
	// Idle is how long a client's connection without a request stays open.
	Idle time.Duration `json:"idle"`
	// BodyIdle is how long a request's body may bring nothing, Write how long a
	// client may take nothing of a response.
	BodyIdle time.Duration `json:"bodyIdle"`
	Write    time.Duration `json:"write"`
	// Ping is after which silence an HTTP/2 client is pinged, PingAnswer how long
	// it may take to answer.
	Ping       time.Duration `json:"ping"`
	PingAnswer time.Duration `json:"pingAnswer"`
	// Review bounds one TokenReview or SubjectAccessReview.
	Review time.Duration `json:"review"`

	// UpstreamDial bounds connecting to the cluster, UpstreamRequest the time till
	// its answer begins, UpstreamStall how long a body may then stand still.
	UpstreamDial    time.Duration `json:"upstreamDial"`
	UpstreamRequest time.Duration `json:"upstreamRequest"`
	UpstreamStall   time.Duration `json:"upstreamStall"`
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

// Audit says where reads that the gateway answers itself are recorded.
type Audit struct {
	// Path is the file, "-" for standard output, "" for nowhere.
	Path string `json:"path"`
	// MaxSize is the size at which the file is put aside, 0 for never; MaxBackups
	// how many files put aside are kept.
	MaxSize    Bytes `json:"maxSize"`
	MaxBackups int   `json:"maxBackups"`
}

// Log says what is written to standard error.
type Log struct {
	Level  Level  `json:"level"`
	Format Format `json:"format"`
}

// Level is the least severity that is logged.
type Level string

func (Level) choices() []string { return []string{"debug", "info", "warn", "error"} }

// Slog is the level in terms of log/slog.
func (l Level) Slog() slog.Level {
	switch l {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Format is how log lines are written.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

func (Format) choices() []string { return []string{string(Text), string(JSON)} }

// Shutdown says how the gateway ends.
type Shutdown struct {
	// Drain is the time over which open watches and connections are ended after
	// SIGTERM. It should be shorter than the pod's terminationGracePeriodSeconds.
	Drain time.Duration `json:"drain"`
}

// Bytes is a size in bytes.
type Bytes int64

// String writes whole multiples of 1,024 with a suffix.
func (b Bytes) String() string {
	for _, unit := range []struct {
		size Bytes
		name string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if b != 0 && b%unit.size == 0 {
			return strconv.FormatInt(int64(b/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Default is the configuration without any file or flag.
func Default() *Gateway {
	return &Gateway{
		Listen:      "127.0.0.1:8443",
		AdminListen: "127.0.0.1:9444",
		Authentication: Authentication{
			RequestHeader: RequestHeader{
				UsernameHeaders:     []string{"X-Remote-User"},
				UIDHeaders:          []string{"X-Remote-Uid"},
				GroupHeaders:        []string{"X-Remote-Group"},
				ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
			},
			TokenTTL:        10 * time.Second,
			TokenFailureTTL: 2 * time.Second,
			CacheSize:       8192,
		},
		Authorization: Authorization{
			AllowedTTL:         10 * time.Second,
			DeniedTTL:          5 * time.Second,
			CacheSize:          16384,
			WatchRecheckPeriod: time.Minute,
			WatchGrace:         5 * time.Minute,
		},
		Consistency: Consistency{Default: Strict, MaxStaleness: 30 * time.Second},
		Limits: Limits{
			MaxInFlight:           2000,
			MaxWatches:            20000,
			MaxResumedWatches:     100,
			MaxConnections:        32768,
			MaxStreams:            1000,
			MaxHeaderBytes:        64 << 10,
			HistoryAge:            10 * time.Minute,
			HistoryBytes:          64 << 20,
			HistoryEvents:         102400,
			SnapshotAge:           10 * time.Minute,
			SnapshotBytes:         64 << 20,
			DerivedCacheBytes:     64 << 20,
			CollapsedBodyBytes:    64 << 20,
			MaxObjectBytes:        32 << 20,
			MaxColdStarts:         4,
			MaxStartWaiters:       1000,
			MaxIndexes:            16,
			IdleCollectionTimeout: 10 * time.Minute,
		},
		Timeouts: Timeouts{
			Handshake:          10 * time.Second,
			ReadHeader:         32 * time.Second,
			Idle:               90 * time.Second,
			BodyIdle:           5 * time.Minute,
			Write:              30 * time.Second,
			Ping:               30 * time.Second,
			PingAnswer:         15 * time.Second,
			Review:             10 * time.Second,
			UpstreamDial:       10 * time.Second,
			UpstreamRequest:    70 * time.Second,
			UpstreamStall:      time.Minute,
			UpstreamPing:       5 * time.Second,
			UpstreamPingAnswer: 10 * time.Second,
			FeedRead:           150 * time.Second,
			FeedStale:          30 * time.Second,
		},
		Audit:    Audit{MaxSize: 100 << 20, MaxBackups: 10},
		Log:      Log{Level: "info", Format: Text},
		Shutdown: Shutdown{Drain: 20 * time.Second},
	}
}
