package config

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// This file has what the configurations of the commands have in common.

// Limits bound what the program keeps and does at a time. Each has a metric.
type Limits struct {
	// MaxInFlight is the most requests under way, MaxWatches the most watches, log
	// follows and upgraded connections; one more is answered 429. A user gets at most
	// three quarters of either. 0 for no limit.
	MaxInFlight int `json:"maxInFlight"`
	MaxWatches  int `json:"maxWatches"`
	// MaxResumedWatches is the most watches that the cluster continues because they
	// begin before what the cache remembers; one more is told to list again.
	MaxResumedWatches int `json:"maxResumedWatches"`
	// MaxConnections is the most open connections over all listeners, never above half
	// of the files that the process may open.
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
	// QueryBytes bounds the columns of a collection: the values by which the queries of
	// lists sort, select and count, with what these keep from being freed.
	QueryBytes Bytes `json:"queryBytes"`
	// DerivedCacheBytes bounds what is kept of compressed lists, tables and
	// metadata, over all collections.
	DerivedCacheBytes Bytes `json:"derivedCacheBytes"`
	// CollapsedBodyBytes is the largest answer of the cluster that is shared
	// between callers; larger ones are fetched by each caller, and so is what exceeds
	// four times as much over all answers that are shared at a time.
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
	// SelfCheckPeriod is how often each collection is compared with the upstream, 0
	// for never.
	SelfCheckPeriod time.Duration `json:"selfCheckPeriod"`
}

// ServingTimeouts bound how long clients are waited for.
type ServingTimeouts struct {
	// Handshake bounds a client's TLS handshake, ReadHeader the reading of a
	// request's header.
	Handshake  time.Duration `json:"handshake"`
	ReadHeader time.Duration `json:"readHeader"`
	// Idle is how long a client's connection without a request stays open.
	Idle time.Duration `json:"idle"`
	// BodyIdle is how long a request's body may bring nothing, Write how long a
	// client may take for each half MiB of a response.
	BodyIdle time.Duration `json:"bodyIdle"`
	Write    time.Duration `json:"write"`
	// Ping is after which silence an HTTP/2 client is pinged, PingAnswer how long
	// it may take to answer.
	Ping       time.Duration `json:"ping"`
	PingAnswer time.Duration `json:"pingAnswer"`
}

// Audit says where requests are recorded.
type Audit struct {
	// Path is the file, "-" for standard output, "" for nowhere.
	Path string `json:"path"`
	// MaxSize is the size at which the file is put aside, 0 for never; MaxBackups
	// how many files put aside are kept.
	MaxSize    Bytes `json:"maxSize"`
	MaxBackups int   `json:"maxBackups"`
}

// Profiling says whether the admin listener serves /debug/pprof.
type Profiling string

// ProfilingAuto serves profiles where only this machine can ask for them.
const ProfilingAuto Profiling = "auto"

func (Profiling) choices() []string { return []string{"true", "false", string(ProfilingAuto)} }

// Console says what the admin listener shows in a browser, and by `kubeweir top`.
type Console struct {
	// Enabled serves it.
	Enabled bool `json:"enabled"`
	// Actions lets it change something: end a watch, begin a self-check.
	Actions bool `json:"actions"`
	// TokenFile has the token that its clients must give, read again when it changes; with
	// "" only those on this machine are let in.
	TokenFile string `json:"tokenFile"`
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

func defaultLimits() Limits {
	return Limits{
		MaxInFlight:           2000,
		MaxWatches:            20000,
		MaxResumedWatches:     100,
		MaxConnections:        defaults.MaxConnections,
		MaxStreams:            defaults.MaxStreams,
		MaxHeaderBytes:        defaults.MaxHeaderBytes,
		HistoryAge:            defaults.HistoryAge,
		HistoryBytes:          defaults.HistoryBytes,
		HistoryEvents:         defaults.HistoryEvents,
		SnapshotAge:           defaults.SnapshotAge,
		SnapshotBytes:         defaults.SnapshotBytes,
		QueryBytes:            defaults.QueryBytes,
		DerivedCacheBytes:     defaults.DerivedCacheBytes,
		CollapsedBodyBytes:    64 << 20,
		MaxObjectBytes:        defaults.MaxObjectBytes,
		MaxColdStarts:         defaults.MaxColdStarts,
		MaxStartWaiters:       defaults.MaxStartWaiters,
		MaxIndexes:            defaults.MaxIndexes,
		IdleCollectionTimeout: defaults.IdleCollectionTimeout,
		SelfCheckPeriod:       5 * time.Minute,
	}
}

func defaultServingTimeouts() ServingTimeouts {
	return ServingTimeouts{
		Handshake:  defaults.HandshakeTimeout,
		ReadHeader: defaults.ReadHeaderTimeout,
		Idle:       defaults.IdleTimeout,
		BodyIdle:   defaults.BodyIdleTimeout,
		Write:      defaults.WriteTimeout,
		Ping:       defaults.PingInterval,
		PingAnswer: defaults.PingTimeout,
	}
}

func defaultAudit() Audit       { return Audit{MaxSize: 100 << 20, MaxBackups: 10} }
func defaultLog() Log           { return Log{Level: "info", Format: Text} }
func defaultConsole() Console   { return Console{Enabled: true} }
func defaultShutdown() Shutdown { return Shutdown{Drain: 20 * time.Second} }
