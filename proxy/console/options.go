package console

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/explain"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// The values of Options.Mode.
const (
	Gateway    = "gateway"
	Standalone = "standalone"
)

// Options configure a Console. Fields are required unless their comment says otherwise.
type Options struct {
	// Mode is Gateway or Standalone; Version is the version of the program.
	Mode, Version string
	// Actions enables the actions.
	Actions bool
	// TokenFile holds the token that clients must send. Without it, only clients on this machine
	// are allowed.
	TokenFile string
	// Process gathers the metrics of the process.
	Process prometheus.Gatherer
	// Clusters returns the current clusters. A single one has no name. It must be fast.
	Clusters func() []*Cluster
	// Blocked holds the user agents that are blocked.
	Blocked *policy.Blocked
	// Configuration returns the settings in force, without secrets.
	Configuration func() *Configuration
	// Types returns the number of objects of each type in an embedded store; it is optional.
	Types func() []StoreType
	// Audit records actions; it is optional.
	Audit  *audit.Log
	Log    *slog.Logger
	Panics *contain.Panics
}

// Cluster is a cluster, or the origin in this process, that the console shows.
type Cluster struct {
	Name    string
	Handler Handler
	// Metrics gathers the metrics of the cluster's parts.
	Metrics prometheus.Gatherer
	// Check compares the collections selected by which with the upstream.
	Check func(ctx context.Context, which func(schema.GroupVersionResource) bool)
	// Upstream is nil for the origin in this process.
	Upstream *Upstream
	// LastChange returns when an RBAC change last dropped all cached decisions, nil if none did.
	LastChange func() *time.Time
}

// Handler is the part of a *proxy.Gateway that the console reads. Its methods must be safe for
// concurrent use.
type Handler interface {
	Collections() []cache.CollectionStatus
	WatchesOpen() int
	OpenWatches() []watch.OpenWatch
	EndWatch(id uint64) bool
	Denials() []proxy.Denial
	EndedWatches() []proxy.EndedWatch
	Checks() []healthz.CheckResult
	Usage() *usage.Usage
	Budgets() []policy.BudgetState
	Explain(ctx context.Context, q explain.Question) (*explain.Explanation, error)
}

// Upstream describes the connection to a cluster.
type Upstream struct {
	// Server is the URL of the API server.
	Server string
	// Reachable reports whether the cluster is reachable and, if not, since when.
	Reachable func() (ok bool, since time.Time)
	// Version returns the Kubernetes version of the cluster, "" if it is unknown.
	Version func() string
}
