package edge

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/contain"
)

// Shared is what the connections of a Server have in common.
type Shared struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	panics  *contain.Panics
	tls     *tls.Config
	readers readers
	buffers buffers
	date    dateCache

	// base is the parent of every request's context.
	base context.Context
	// draining is set when Shutdown begins: responses close their connections.
	draining atomic.Bool
	// ended is called with a connection that has ended.
	ended func(*conn)
}
