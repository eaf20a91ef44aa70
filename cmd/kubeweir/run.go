package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
)

// startTime is when the process has usually settled after its start.
const startTime = 3 * time.Second

// run starts s, lets it serve until ctx ends or failed returns an error, and drains it.
func run(ctx context.Context, s *app.Server, failed <-chan error, log *slog.Logger, stderr io.Writer) (err error) {
	defer s.Close()
	if err := s.Start(ctx); err != nil {
		return err
	}
	s.Announce(stderr)
	defer time.AfterFunc(startTime, releaseMemory).Stop()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	log.Info("draining")
	s.Drain()
	return err
}

// newLogger returns a logger and the variable that sets its level.
func newLogger(c config.Log, out io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(c.Level.Slog())
	options := &slog.HandlerOptions{Level: level}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options)), level
	}
	return slog.New(slog.NewTextHandler(out, options)), level
}

// quietLibraries redirects the log of the Kubernetes libraries to log, at a lower level. They write
// to klog, which is global to the process, and most of their lines are details.
func quietLibraries(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(lowered{log.Handler()}).With("from", "kubernetes"))
}

// outlivePanics lets the process outlive a panic that a goroutine of the Kubernetes
// libraries has recovered from and logged, instead of raising it again. kube-apiserver
// ends then, and is started again beside others that serve meanwhile; but one process
// is all there is here, and what made a controller panic, an object mostly, is there
// again after a start, so that nobody could delete it. The libraries' loops go on with
// the next item. There is one such setting in a process. It covers the controllers and the scheduler
// of this process, too. Panics in goroutines that do not call utilruntime.HandleCrash, and
// klog.FlushAndExit, still end the process.
func outlivePanics() { utilruntime.ReallyCrash = false }

// lowered is a handler that logs the libraries' info records at debug level.
type lowered struct{ slog.Handler }

func (l lowered) level(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return min(level, slog.LevelDebug)
	}
	return level
}

// Enabled implements slog.Handler.
func (l lowered) Enabled(ctx context.Context, level slog.Level) bool {
	return l.Handler.Enabled(ctx, l.level(level))
}

// Handle implements slog.Handler. A client that disconnects is not an error: every exec and many
// watches end this way.
func (l lowered) Handle(ctx context.Context, r slog.Record) error {
	r.Level = l.level(r.Level)
	if ofClientThatLeft(&r) {
		if r.Level = slog.LevelDebug; !l.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return l.Handler.Handle(ctx, r)
}

// ofClientThatLeft reports whether a record says that a client's connection was closed, or that a
// handler returned without a panic after its client had disconnected (timeoutHandler in
// k8s.io/apiserver/pkg/server/filters).
func ofClientThatLeft(r *slog.Record) (left bool) {
	late := r.Message == "Post-timeout activity"
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "err":
			left = strings.Contains(a.Value.String(), net.ErrClosed.Error())
		case a.Key == "result":
			left = late && a.Value.Any() == nil
		}
		return !left
	})
	return left
}

// WithAttrs implements slog.Handler.
func (l lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l lowered) WithGroup(name string) slog.Handler { return lowered{l.Handler.WithGroup(name)} }

func userAgent() string { return "kubeweir/" + buildVersion() }
