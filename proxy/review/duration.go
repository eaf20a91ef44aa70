package review

import (
	"sync/atomic"
	"time"
)

// Duration is a time.Duration that may change. It is safe for concurrent use.
type Duration struct{ ns atomic.Int64 }

// Load returns the duration.
func (d *Duration) Load() time.Duration { return time.Duration(d.ns.Load()) }

// Store replaces the duration.
func (d *Duration) Store(v time.Duration) { d.ns.Store(int64(v)) }
