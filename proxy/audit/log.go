package audit

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/util/webhook"
	pluginlog "k8s.io/apiserver/plugin/pkg/audit/log"
	pluginwebhook "k8s.io/apiserver/plugin/pkg/audit/webhook"

	"github.com/kubeweir/kubeweir/internal/contain"
)

// Options configure a Log, which records nothing without File.Path and Webhook.ConfigFile.
type Options struct {
	// Policy decides what is recorded. Default: DefaultPolicy.
	Policy *auditinternal.Policy
	// File is the log backend.
	File File
	// Webhook is the webhook backend.
	Webhook Webhook
	// Stdout is what the path "-" stands for (default os.Stdout).
	Stdout io.Writer
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Logger receives errors of the backends. Default: discarded.
	Logger *slog.Logger
}

// BackendError is the error of a backend that cannot be opened: log or webhook.
type BackendError struct {
	Backend string
	Err     error
}

// Error implements error.
func (e *BackendError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *BackendError) Unwrap() error { return e.Err }

// DefaultPolicy records all requests but health checks at level Metadata, when they are complete and,
// if they are long-running, when the response begins.
func DefaultPolicy() *auditinternal.Policy {
	return &auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	}
}

// Log records requests. All methods are safe for concurrent use and may be called on a nil Log, which
// records nothing.
type Log struct {
	policy   audit.PolicyRuleEvaluator // nil if nothing is recorded
	chains   []*chain
	backend  audit.Backend // starts and ends the chains
	file     *file         // nil without one
	retained retainedBytes
	panics   *contain.Panics

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	done      chan struct{} // closed when all events are delivered
	err       error         // of closing the file; written before done is closed
}

// Open opens the file, which must be possible, and starts the backends, which Close ends.
func Open(o Options) (*Log, error) {
	o.Stdout = cmp.Or[io.Writer](o.Stdout, os.Stdout)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := &Log{closing: make(chan struct{}), done: make(chan struct{}), panics: contain.New(o.Registerer, o.Logger)}
	chains := chains{closing: l.closing, metrics: newMetrics(), log: o.Logger}
	if o.File.Path != "" {
		out := o.Stdout
		if o.File.Path != "-" {
			var err error
			if l.file, err = openFile(&o.File); err != nil {
				return nil, &BackendError{"log", err}
			}
			out = l.file
		}
		written := &reportedWriter{to: out, path: o.File.Path, log: o.Logger, due: rateLimited()}
		to := pluginlog.NewBackend(written, cmp.Or(o.File.Format, pluginlog.FormatJson), auditv1.SchemeGroupVersion)
		l.chains = append(l.chains, chains.wrap("log", to, &o.File.Delivery))
	}
	if o.Webhook.ConfigFile != "" {
		backoff := webhook.DefaultRetryBackoffWithInitialDelay(o.Webhook.InitialBackoff)
		to, err := pluginwebhook.NewBackend(o.Webhook.ConfigFile, auditv1.SchemeGroupVersion, backoff, nil)
		if err != nil {
			return nil, &BackendError{"webhook", err}
		}
		l.chains = append(l.chains, chains.wrap("webhook", to, &o.Webhook.Delivery))
	}
	if len(l.chains) == 0 {
		close(l.done)
		return l, nil
	}
	chains.metrics.register(o.Registerer)
	backends := make([]audit.Backend, len(l.chains))
	for i, c := range l.chains {
		backends[i] = c
	}
	l.backend = audit.Union(backends...)
	if o.Policy == nil {
		o.Policy = DefaultPolicy()
	}
	l.policy = policy.NewPolicyRuleEvaluator(o.Policy)
	return l, l.backend.Run(l.closing)
}

// sink takes the events of one request.
type sink struct {
	log    *Log
	client context.Context // done when the client has left
}

// ProcessEvents implements audit.Sink.
func (s sink) ProcessEvents(events ...*auditinternal.Event) bool {
	accepted := true
	for _, e := range events {
		e = bounded(e)
		for _, c := range s.log.chains {
			accepted = c.process(s.client, e) && accepted
		}
	}
	return accepted
}

// Enabled reports whether anything is recorded.
func (l *Log) Enabled() bool { return l != nil && l.policy != nil }

// Reopen opens the file again, after another program moved it away.
func (l *Log) Reopen() {
	if l != nil && l.file != nil {
		_ = l.file.Close() // the next event opens it
	}
}

// Close delivers what is queued and ends the backends. Later events are dropped. It returns early when
// ctx is done; the delivery then ends on its own.
func (l *Log) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.closeOnce.Do(func() {
		close(l.closing)
		if l.backend != nil {
			l.panics.Go(nil, "background", l.shutdown)
		}
	})
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Log) shutdown() {
	defer close(l.done)
	l.backend.Shutdown()
	if l.file != nil {
		l.err = l.file.Close()
	}
}
