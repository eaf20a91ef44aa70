package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// ErrForward means that the cache cannot serve a read exactly like the upstream, so that the request
// has to be forwarded. ForwardReason returns the reason.
var ErrForward = errors.New("cannot be served from the cache")

// ForwardReason returns the reason of an error that is ErrForward.
func ForwardReason(err error) reason.Forward {
	if f, ok := errors.AsType[*forwardError](err); ok {
		return f.why
	}
	return reason.CacheUnavailable
}

// Request is one authorized get or list. A Reader does not keep it, and changes nothing but Cost.
type Request struct {
	// Namespace and Name come from the request. A list has no Name.
	Namespace, Name string
	// Options are the parsed parameters. For a get only ResourceVersion counts.
	Options api.ListOptions
	// Query is the list's query, nil for none. Its values are read from a collection in JSON.
	Query *query.Query
	// ObjectsFrom, if not nil, is the collection whose objects the response has, because the client
	// requested an encoding other than JSON while the Query is evaluated on JSON.
	ObjectsFrom Collection
	// Filter is compiled from the list's namespace and selectors, including that of a shard. If it
	// is nil, the Reader compiles it.
	Filter *object.Filter
	Rep    api.Representation
	// Compression is what the client accepts. Bodies up to api.CompressionThreshold are never
	// compressed.
	Compression api.Compression
	// IfNoneMatch is the header of that name.
	IfNoneMatch string
	// MostRecent is true if the caller has proved that the collection holds the most recent state
	// for this request. Without it, reads of that state (api.ListOptions.MostRecent; a get without
	// resourceVersion) end in ErrForward.
	MostRecent bool
	// User identifies the client. Users take turns to make columns for queries.
	User string
	// Cost counts the requests to the source so far.
	Cost freshness.Cost
}

// Options configure a Reader. The zero value uses the defaults.
type Options struct {
	// DerivedBytes bounds the cache of derived forms: compressed lists, rows of Tables, metadata of
	// custom resources. Default: 64 MiB.
	DerivedBytes int64
	// Wait is how long a read at a version that the collection has not reached waits before it ends
	// in ErrForward. It is short because an idle resource learns versions only once a minute, while
	// the upstream can respond at once. Default: 100 ms.
	Wait time.Duration
	// Now is the clock for relative times in Tables and queries. Default: time.Now.
	Now func() time.Time
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
}

const defaultReadWait = 100 * time.Millisecond

// Collection is what a Reader needs of a collection. The methods are those of cache.Collection.
type Collection interface {
	Resource() *source.Resource
	Encoding() api.Encoding
	ListMeta() *source.ListMeta
	// Snapshot, SnapshotAt, Retain and Select are Latest, At, Retain and Select of store.Store.
	Snapshot() *store.Snapshot
	SnapshotAt(rv uint64) (*store.Snapshot, error)
	Retain(v *store.Snapshot)
	Select(ctx context.Context, f *object.Filter) (objs []*object.Object, at *store.Snapshot)
	WantShard(s *shard.Selector)
	WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error
	Columns() *query.Columns
	Freshness() *freshness.Checker
}

// Reader serves gets and lists from collections, byte for byte like the upstream. It is safe for
// concurrent use.
type Reader struct {
	// Renderer renders the objects.
	Renderer *form.Renderer
	wait     time.Duration
	now      func() time.Time
}

// New returns a Reader. Close releases it.
func New(o Options) (*Reader, error) {
	o.DerivedBytes = cmp.Or(o.DerivedBytes, defaults.DerivedCacheBytes)
	o.Wait = cmp.Or(o.Wait, defaultReadWait)
	if o.Now == nil {
		o.Now = time.Now
	}
	renderer, err := form.NewRenderer(form.Options{DerivedBytes: o.DerivedBytes, Now: o.Now, Registerer: o.Registerer})
	if err != nil {
		return nil, err
	}
	return &Reader{Renderer: renderer, wait: o.Wait, now: o.Now}, nil
}

// Close releases the cache of derived forms and ends its goroutines. Later reads work, but slowly.
func (r *Reader) Close() { r.Renderer.Close() }

// Get serves a get from c. The error is a Status error that the upstream would return, too,
// ErrForward, or that of ctx. The response has no Audit-Id.
func (r *Reader) Get(ctx context.Context, c Collection, req *Request) (*api.Response, error) {
	f := r.form(c, req)
	if f == nil {
		return nil, Forward(reason.Unservable, nil)
	}
	key, ok := objectKey(c.Resource(), req.Namespace, req.Name)
	if !ok {
		return nil, Forward(reason.Unservable, nil)
	}
	v := c.Snapshot()
	switch version := req.Options.ResourceVersion; {
	case version != "":
		rv, err := api.ParseResourceVersion(version)
		if err != nil {
			return nil, api.InvalidResourceVersion(version, err)
		}
		if v, err = r.snapshotNotOlderThan(ctx, c, rv); err != nil {
			return nil, err
		}
	case !req.MostRecent:
		return nil, Forward(reason.NotCurrent, nil)
	}
	o := v.Get(key)
	if o == nil {
		return nil, api.NewNotFound(c.Resource().GroupResource(), req.Name)
	}
	resp, err := r.Renderer.Get(f, o, req.client())
	return resp, unrenderable(c, err)
}

// respond renders a list.
func (r *Reader) respond(c Collection, req *Request, f form.Form, list *form.List) (*api.Response, error) {
	resp, err := r.Renderer.List(f, list, req.client())
	return resp, unrenderable(c, err)
}

// form returns the form in which the client gets the objects of c, or nil if that is not supported.
func (r *Reader) form(c Collection, req *Request) form.Form {
	return r.Renderer.For(c.Resource().Form(), c.Encoding(), req.Rep)
}

func (r *Request) client() form.Client {
	return form.Client{Compression: r.Compression, IfNoneMatch: r.IfNoneMatch}
}

// unrenderable returns the error to forward a request if a form cannot be derived from an object,
// nil without one.
func unrenderable(c Collection, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, form.ErrCostly):
		return Forward(reason.Representation, err)
	}
	return Forward(reason.Unrenderable, fmt.Errorf("rendering %s: %w", c.Resource().Resource, err))
}

// objectKey returns the key of a name. ok is false for paths that the resource does not have.
func objectKey(res *source.Resource, namespace, name string) (key string, ok bool) {
	switch {
	case res.Namespaced:
		return namespace + "/" + name, namespace != "" && name != ""
	case namespace != "" && (namespace != name || res.Resource != "namespaces"):
		// Only a Namespace has itself as the namespace in its path.
		return "", false
	}
	return name, name != ""
}

// snapshotNotOlderThan waits up to Options.Wait for a snapshot at rv or above.
func (r *Reader) snapshotNotOlderThan(ctx context.Context, c Collection, rv uint64) (*store.Snapshot, error) {
	if v := c.Snapshot(); v.RV() >= rv {
		return v, nil
	}
	if err := r.waitFor(ctx, c, rv); err != nil {
		return nil, err
	}
	return c.Snapshot(), nil
}

// waitFor returns ErrForward for all failures except that the client has left: only the upstream
// knows whether a version that has not arrived is too large.
func (r *Reader) waitFor(ctx context.Context, c Collection, rv uint64) error {
	if err := c.WaitFor(ctx, rv, r.wait); err != nil {
		return leftOrForward(ctx, reason.VersionAhead, err)
	}
	return nil
}

// leftOrForward returns the error of ctx if the client has left, else ErrForward.
func leftOrForward(ctx context.Context, why reason.Forward, err error) error {
	return cmp.Or(ctx.Err(), Forward(why, err))
}

// forwardError is ErrForward with its reason and its cause, if any.
type forwardError struct {
	why reason.Forward
	err error
}

// Forward returns ErrForward with a reason and the error that caused it, which may be nil.
func Forward(why reason.Forward, err error) error { return &forwardError{why, err} }

func (e *forwardError) Error() string {
	text := ErrForward.Error() + " (" + e.why.String() + ")"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *forwardError) Is(target error) bool { return target == ErrForward }

func (e *forwardError) Unwrap() error { return e.err }
