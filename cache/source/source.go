package source

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// Resource describes one resource that a Source can list and watch. It is safe for concurrent use
// and must not be copied.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Custom is true for resources defined by a CustomResourceDefinition. They have no protobuf
	// encoding, and every item of their lists carries kind and apiVersion.
	Custom bool
	// Aggregated is true for resources of another API server behind the upstream, whose versions
	// belong to a store of its own.
	Aggregated bool
	// Schema decodes the resource's objects.
	Schema *object.Schema
	// Printer renders Tables. It is nil if kubeweir cannot, so that requests for Tables are
	// forwarded.
	Printer table.Printer
	// Definition identifies the definition of a custom resource, across restarts as well. A
	// checkpoint of another definition is not used.
	Definition string
	// Changed is when the definition of a custom resource became this one, if another one was known
	// before or another server served it; else zero.
	Changed time.Time

	retired atomic.Bool                   // see Retire
	forms   atomic.Pointer[form.Resource] // see Form
}

// Form returns what package form knows of the resource. It is always the same pointer, by which
// forms cache what they derive.
func (r *Resource) Form() *form.Resource {
	if r.forms.Load() == nil {
		r.forms.CompareAndSwap(nil, &form.Resource{
			APIVersion: r.GroupVersion().String(),
			Kind:       r.Kind,
			Custom:     r.Custom,
			Printer:    r.Printer,
		})
	}
	return r.forms.Load()
}

// HoldsSecrets reports whether the objects are Secrets.
func (r *Resource) HoldsSecrets() bool { return r.Kind == "Secret" && r.Group == "" }

// BypassesWatchCache reports whether kube-apiserver has no watch cache for the resource and always
// reads it from its store, as it does for Events. Source: DefaultWatchCacheSizes in
// k8s.io/kubernetes/pkg/kubeapiserver.
func (r *Resource) BypassesWatchCache() bool {
	return r.GroupVersionResource.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// Retire marks the definition as outdated, so that no new collection uses it. The caller then ends
// the existing ones with Manager.Drop.
func (r *Resource) Retire() { r.retired.Store(true) }

// IsRetired reports whether Retire was called.
func (r *Resource) IsRetired() bool { return r.retired.Load() }

// Reinstate returns a copy that is not retired, for a definition that became current again at the
// time changed.
func (r *Resource) Reinstate(changed time.Time) *Resource {
	return &Resource{
		GroupVersionResource: r.GroupVersionResource,
		Kind:                 r.Kind,
		Namespaced:           r.Namespaced,
		Custom:               r.Custom,
		Aggregated:           r.Aggregated,
		Schema:               r.Schema,
		Printer:              r.Printer,
		Definition:           r.Definition,
		Changed:              changed,
	}
}

// IsCompatible reports whether a filter or printer that was compiled for one of two descriptions of
// a resource also fits the other. All descriptions of a built-in resource are alike.
func (r *Resource) IsCompatible(other *Resource) bool {
	return r == other || !r.Custom && !other.Custom && r.Namespaced == other.Namespaced
}

// ErrRedefined means that the caller's Resource is outdated, because its definition has changed. The
// caller has to look it up again.
var ErrRedefined = errors.New("the resource was redefined")

// RedefinitionTime is how long after the change of a definition its server may still respond
// according to the old one. It then ends the watches that it began so, and what was listed with
// them has to be listed again.
const RedefinitionTime = 30 * time.Second

// ListOptions are the parameters of Source.List and VersionLister.ListVersions, spelled as in the
// Kubernetes API.
type ListOptions struct {
	// Namespace is the namespace of the objects; "" means all namespaces.
	Namespace, LabelSelector, FieldSelector string
	// ResourceVersion and ResourceVersionMatch are both empty for the most recent state.
	ResourceVersion, ResourceVersionMatch string
	// Limit is the page size in objects, 0 for all. Continue is the token of the previous page.
	Limit    int64
	Continue string
}

// ListMeta is the metadata of a list.
type ListMeta struct {
	ResourceVersion uint64
	Continue        string
	// RemainingItemCount is nil if the list does not have it.
	RemainingItemCount *int64
	// Kind and APIVersion describe the list (PodList, v1), as the source sent them.
	Kind, APIVersion string
	// Warnings are the values of the response's Warning headers. Every response of a deprecated
	// version of a resource has one.
	Warnings []string
	// Bytes is the size of the response of a VersionLister on the wire, 0 if unknown.
	Bytes int64
}

// Remaining returns how many objects follow those of a page. known is false if the list does not
// contain the number.
func (m *ListMeta) Remaining() (n int64, known bool) {
	if m.RemainingItemCount != nil {
		return *m.RemainingItemCount, true
	}
	return 0, m.Continue == ""
}

// WatchOptions are the parameters of Source.Watch.
type WatchOptions struct {
	// ResourceVersion is exclusive. 0 with SendInitialEvents means the most recent state.
	ResourceVersion uint64
	// SendInitialEvents requests a streaming list (KEP-3157): ADDED events of all objects, then a
	// bookmark with InitialEventsEnd.
	SendInitialEvents bool
	// TimeoutSeconds ends the watch; 0 leaves that to the source.
	TimeoutSeconds int64
	// Probe marks a watch that only probes for changes and does not fill a collection.
	Probe bool
}

// WatchAccepted is the type of an event without object or version, by which a Source may report
// that the server has accepted the watch, before any other event. Without it, a watch counts as
// accepted with its first event, or when the connection has shown activity some time after it was
// opened.
const WatchAccepted api.EventType = 0

// Event is one event of a watch.
type Event struct {
	Type api.EventType
	// Object is encoded as object.Schema.Decode expects it and belongs to the receiver. For a
	// bookmark it is the bookmark's object, a template for bookmarks to clients, or nil if the
	// source has none.
	Object []byte
	// ResourceVersion is set for bookmarks.
	ResourceVersion uint64
	// InitialEventsEnd marks the bookmark that ends the initial events.
	InitialEventsEnd bool
}

// ErrUnsupported means that a source does not support a request.
var ErrUnsupported = errors.New("not supported by the upstream")

// ErrNoBookmark means that a watch ended without the bookmark that was expected.
var ErrNoBookmark = errors.New("the watch ended without a bookmark")

// ErrNoVersion means that a list, or the bookmark that ends one, has no resourceVersion.
var ErrNoVersion = errors.New("the upstream's list has no resourceVersion")

// Source is the interface of the cache to an API server: a remote kube-apiserver or the origin. Its
// methods are safe for concurrent use. Errors that the server responded with, or sent as ERROR
// events, are *errors.StatusError of apimachinery.
type Source interface {
	// List reads one page and calls visit for each item, in order, with bytes that visit may keep.
	// Items in JSON are complete objects with kind and apiVersion, items in protobuf bare messages.
	List(ctx context.Context, res *Resource, enc api.Encoding, opts ListOptions, visit func(item []byte) error) (ListMeta, error)
	// Watch calls handle for each event until the watch ends (nil), breaks, or ctx is done. The
	// error wraps ErrUnsupported if the source does not support SendInitialEvents. The source
	// abandons the connection when nothing has arrived, not even the response to a ping, for its
	// own time limit.
	Watch(ctx context.Context, res *Resource, enc api.Encoding, opts WatchOptions, handle func(Event) error) error
	// CurrentVersion returns the current version of the source's store, read linearizably: it is at
	// least that of every write acknowledged before the call.
	CurrentVersion(ctx context.Context, res *Resource) (uint64, error)
	// Server identifies the program that responds at present. It serves only for comparison:
	// another program may encode the same objects differently. The request is small and also shows
	// whether the server responds at all. The error wraps ErrUnsupported if the source does not
	// know.
	Server(ctx context.Context) (string, error)
	// LastContact returns when the connection that watches use last showed activity, with a
	// monotonic clock reading; zero before the first.
	LastContact() time.Time
	// Delay returns a recent lower bound of how long responses take from the server to here. It
	// does not block.
	Delay() time.Duration
}

// VersionLister is a Source that can list names and versions of objects, which costs it less than
// a list of the objects.
type VersionLister interface {
	// ListVersions calls visit for each object of a list, in order, with its key (see
	// store.Snapshot.Get) and version. The error wraps ErrUnsupported if the server cannot list res
	// in this way; other errors are those of List.
	ListVersions(ctx context.Context, res *Resource, opts ListOptions, visit func(key string, rv uint64) error) (ListMeta, error)
}

// ReplicatedSource is a Source of several servers with one store, some of which may temporarily lag
// behind.
type ReplicatedSource interface {
	// NewestVersion returns the highest CurrentVersion of all servers that respond, with an error
	// if a healthy one did not. The error wraps ErrUnsupported if there is only one server.
	NewestVersion(ctx context.Context, res *Resource) (uint64, error)
}

// ColumnSource is a Source that knows the columns of the server's Tables.
type ColumnSource interface {
	// Columns returns the columnDefinitions of the server's Tables of res in JSON.
	Columns(ctx context.Context, res *Resource) ([]byte, error)
}

// CompressedSource is a Source whose lists, but not its watches, may be compressed.
type CompressedSource interface {
	// Compressed reports whether they are.
	Compressed() bool
}

// ImmediateSource is a Source in this process that knows at once how far its watches have come.
// With it, the cache serves reads of the most recent state.
type ImmediateSource interface {
	Source
	// Progress reports which version the collection that is filled by the open watch of res in enc
	// must hold to be current.
	//
	// current is at least the store's version at the time of the call. last is the version of the
	// newest change of the resource up to current, or a lower version after which nothing is
	// missing: a collection that holds last holds everything up to current. If shared is true,
	// several changes have that version; the collection then must hold last and must have received
	// the bookmark, at last or above, that the watch sends after them.
	//
	// The error wraps ErrUnsupported if there is no such watch at present, or if res is not kept in
	// this store.
	Progress(ctx context.Context, res *Resource, enc api.Encoding) (last, current uint64, shared bool, err error)
}

const (
	// SmallCallTimeout bounds calls with a small response.
	SmallCallTimeout = 15 * time.Second
	// recentContact is how recent the source's last activity must be for a timeout to be extended.
	recentContact = 2 * time.Second
)

// maxExtension bounds an extended timeout, as a multiple of the timeout.
const maxExtension = 10

// WithTimeout bounds a call with a small response by a timeout. The timeout is extended while bytes
// arrive from the source: on a slow link the response waits behind them, and a repeated call would
// wait again. When the time is over, the cause of the context is context.DeadlineExceeded.
func WithTimeout(ctx context.Context, source Source, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	began, most := time.Now(), min(maxExtension*timeout, time.Minute)
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() { // which does not fire before it is stored
		last := source.LastContact()
		if time.Since(began) < most && last.After(began) && time.Since(last) < recentContact {
			timer.Reset(recentContact / 2)
			return
		}
		cancel(context.DeadlineExceeded)
	})
	timer.Reset(timeout)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// IsStatus reports whether err is a response of the server.
func IsStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// IsExpired reports whether the server no longer knows the requested version.
func IsExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// IsTooLarge reports whether the server has not reached the requested version.
func IsTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// IsRejected reports whether the server rejected the request in a way that another attempt will not
// change soon: no permission, no such resource, method or encoding, or an invalid request.
func IsRejected(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)
}
