package edge

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/contain"
)

// Shared is the state that all connections of a Server share.
type Shared struct {
	Options Options
	Log     *slog.Logger
	Metrics *Metrics
	Panics  *contain.Panics
	Buffers Buffers
	// Base is the parent of every request's context.
	Base context.Context
	// Draining is set when Shutdown begins: responses close their connections.
	Draining atomic.Bool

	tls     *tls.Config
	readers readers
	date    atomic.Pointer[dateText]
}

// dateText is the value of the Date header during one second.
type dateText struct {
	second int64
	text   string
}

// Date returns the value of the Date header, made once a second.
func (s *Shared) Date() string {
	now := time.Now()
	t := s.date.Load()
	if t == nil || t.second != now.Unix() {
		t = &dateText{now.Unix(), now.UTC().Format(http.TimeFormat)}
		s.date.Store(t)
	}
	return t.text
}
