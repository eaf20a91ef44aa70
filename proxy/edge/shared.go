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
	Options Options
	Log     *slog.Logger
	Metrics *Metrics
	Panics  *contain.Panics
	Tls     *tls.Config
	readers readers
	Buffers Buffers
	Date    dateCache

	// Base is the parent of every request's context.
	Base context.Context
	// Draining is set when Shutdown begins: responses close their connections.
	Draining atomic.Bool
	// ended is called with a connection that has ended.
	ended func(*Conn)
}
