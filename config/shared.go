package config

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/kubeweir/kubeweir/internal/defaults"
)

// This file has the settings that all commands share.

// Limits bound memory and concurrency. Each has a metric.
type Limits struct {
	MaxInFlight           int           `json:"maxInFlight"`
	MaxWatches            int           `json:"maxWatches"`
	MaxResumedWatches     int           `json:"maxResumedWatches"`
	MaxConnections        int           `json:"maxConnections"`
	MaxStreams            int           `json:"maxStreams"`
	MaxHeaderBytes        Bytes         `json:"maxHeaderBytes"`
	HistoryAge            time.Duration `json:"historyAge"`
	HistoryBytes          Bytes         `json:"historyBytes"`
	HistoryEvents         int           `json:"historyEvents"`
	SnapshotAge           time.Duration `json:"snapshotAge"`
	SnapshotBytes         Bytes         `json:"snapshotBytes"`
	QueryBytes            Bytes         `json:"queryBytes"`
	DerivedCacheBytes     Bytes         `json:"derivedCacheBytes"`
	CollapsedBodyBytes    Bytes         `json:"collapsedBodyBytes"`
	MaxObjectBytes        Bytes         `json:"maxObjectBytes"`
	MaxColdStarts         int           `json:"maxColdStarts"`
	MaxStartWaiters       int           `json:"maxStartWaiters"`
	MaxIndexes            int           `json:"maxIndexes"`
	IdleCollectionTimeout time.Duration `json:"idleCollectionTimeout"`
	SelfCheckPeriod       time.Duration `json:"selfCheckPeriod"`
}

// ServingTimeouts bound how long the server waits for clients.
type ServingTimeouts struct {
	Handshake    time.Duration `json:"handshake"`
	ReadHeader   time.Duration `json:"readHeader"`
	Idle         time.Duration `json:"idle"`
	BodyIdle     time.Duration `json:"bodyIdle"`
	Write        time.Duration `json:"write"`
	Ping         time.Duration `json:"ping"`
	PingResponse time.Duration `json:"pingAnswer"`
}

// Tracing determines where spans of requests are sent.
type Tracing struct {
	ConfigFile string `json:"configFile"`
}

// Profiling determines whether the admin listener serves /debug/pprof.
type Profiling string

// ProfilingAuto serves profiles if only this machine can reach the listener.
const ProfilingAuto Profiling = "auto"

func (Profiling) choices() []string { return []string{"true", "false", string(ProfilingAuto)} }

// Console configures what the admin listener shows in a browser and `kubeweir top`.
type Console struct {
	Enabled   bool   `json:"enabled"`
	Actions   bool   `json:"actions"`
	TokenFile string `json:"tokenFile"`
}

// Log configures the log on standard error.
type Log struct {
	Level  Level  `json:"level"`
	Format Format `json:"format"`
}

// Level is the lowest severity that is logged.
type Level string

func (Level) choices() []string { return []string{"debug", "info", "warn", "error"} }

// Slog returns the level as a slog.Level.
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

// Format is the format of log lines.
type Format string

// The formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

func (Format) choices() []string { return []string{string(Text), string(JSON)} }

// Shutdown determines how the gateway ends.
type Shutdown struct {
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
		Handshake:    defaults.HandshakeTimeout,
		ReadHeader:   defaults.ReadHeaderTimeout,
		Idle:         defaults.IdleTimeout,
		BodyIdle:     defaults.BodyIdleTimeout,
		Write:        defaults.WriteTimeout,
		Ping:         defaults.PingInterval,
		PingResponse: defaults.PingTimeout,
	}
}

func defaultLog() Log           { return Log{Level: "info", Format: Text} }
func defaultConsole() Console   { return Console{Enabled: true} }
func defaultShutdown() Shutdown { return Shutdown{Drain: 20 * time.Second} }
