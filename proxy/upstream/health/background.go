package health

import (
	"context"
	"log/slog"
)

// Background is the environment of goroutines.
type Background struct {
	// Context ends with the upstream's client. Spawn starts a goroutine that must end with Context,
	// and returns false after that.
	Context context.Context
	Spawn   func(func()) bool
	Log     *slog.Logger
}
