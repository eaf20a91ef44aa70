package source

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/object"
)

// Resource describes one resource that a Source can list and watch.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Custom is true for resources defined by a CustomResourceDefinition: they
	// have no protobuf encoding, and their lists carry kind and apiVersion in
	// every item.
	Custom bool
	// Aggregated is true for resources that another API server serves behind the
	// upstream. What it means by a version is its own affair.
	Aggregated bool
	// Schema scans its objects.
	Schema *object.Schema
	// Printer renders its tables; nil when kubeweir cannot, and Table requests
	// are then forwarded.
	Printer table.Printer
	// Definition tells definitions of a custom resource apart, over restarts too; what
	// was kept by another one is not used.
	Definition string
	// Changed is when the definition of a custom resource became this one, if another
	// was known before or another server served it, else zero.
	Changed time.Time

	retired atomic.Bool                   // see Retire
	forms   atomic.Pointer[form.Resource] // see formed
}

// Form is what forms know of the resource: always the same one, under which they keep
// what they derive.
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

// BypassesWatchCache reports whether kube-apiserver has no watch cache for the resource and reads
// it from its store always: Events, by DefaultWatchCacheSizes in
// k8s.io/kubernetes/pkg/kubeapiserver.
func (r *Resource) BypassesWatchCache() bool {
	return r.GroupVersionResource.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// Retire says that the definition is no longer this one: no collection is made with it
// any more. Those that there are end with Manager.Drop, which comes after it.
func (r *Resource) Retire() { r.retired.Store(true) }

// IsRetired reports whether Retire was called.
func (r *Resource) IsRetired() bool { return r.retired.Load() }

// Anew is the same description, but none that was retired: it became true again, at the
// time changed.
func (r *Resource) Anew(changed time.Time) *Resource {
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

// IsCompatible reports whether what was compiled for one of two descriptions of a resource, a
// filter or a printer, is good for the other. Built-in ones are always described alike.
func (r *Resource) IsCompatible(other *Resource) bool {
	return r == other || !r.Custom && !other.Custom && r.Namespaced == other.Namespaced
}

// ErrRedefined says that the caller's Resource is not that of the collection, because
// the definition has changed meanwhile: it has to be looked up again.
var ErrRedefined = errors.New("the definition of the resource has changed")

// ListOptions says which list a Source is asked for.
type ListOptions struct {
	// ResourceVersion and ResourceVersionMatch as in the Kubernetes API; both
	// empty means most recent.
	ResourceVersion, ResourceVersionMatch string
	// Limit is the page size in objects, 0 for all; Continue the token of the
	// page before.
	Limit    int64
	Continue string
}

// ReferenceOptions says which objects a ReferenceSource is asked for: the parameters
// of a list of the most recent state, or of a page after the first, as a client
// may spell them.
type ReferenceOptions struct {
	Namespace                    string // "" for all
	LabelSelector, FieldSelector string
	Limit                        int64
	Continue                     string
}

// ListMeta is what a list says of itself.
type ListMeta struct {
	ResourceVersion uint64
	Continue        string
	// RemainingItemCount is nil when the list does not say it.
	RemainingItemCount *int64
	// Kind and APIVersion of the list itself (PodList, v1): asked of the source,
	// never guessed.
	Kind, APIVersion string
	// Warnings are the values of the answer's Warning headers: a deprecated
	// version of a resource has one on every answer.
	Warnings []string
	// Bytes is how many the answer of a ReferenceSource had on its way, 0 if it does not tell.
	Bytes int64
}

// Following is how many objects follow those of a page, if it tells.
func (m *ListMeta) Following() (n int64, told bool) {
	if m.RemainingItemCount != nil {
		return *m.RemainingItemCount, true
	}
	return 0, m.Continue == ""
}

// WatchOptions says where a Source's watch begins.
type WatchOptions struct {
	// ResourceVersion is exclusive; 0 with SendInitialEvents means most recent.
	ResourceVersion uint64
	// SendInitialEvents asks for the streaming list (KEP-3157): ADDED events of
	// all objects, then a bookmark with InitialEventsEnd set.
	SendInitialEvents bool
	// TimeoutSeconds ends the watch, 0 leaves that to the source.
	TimeoutSeconds int64
	// Probe says that the watch is for a look, not one that a collection is fed by.
	Probe bool
}

// WatchAccepted is the type of an event without object or version by which a
// Source can say, first of all, that the server has accepted the watch. Without
// it a watch counts as accepted with its first event, or when the connection has
// given a sign of life some time after it was opened.
const WatchAccepted api.EventType = 0

// Event is one event of a Source's watch.
type Event struct {
	Type api.EventType
	// Object is the object in the form that object.Schema.Decode takes, owned by
	// the receiver. For a bookmark it is the bookmark's object in that form (the
	// template of the bookmarks sent to clients), or nil if the source has none.
	Object []byte
	// ResourceVersion is set for bookmarks.
	ResourceVersion uint64
	// InitialEventsEnd marks the bookmark that ends the streaming list.
	InitialEventsEnd bool
}

// ErrUnsupported is returned by a Source for a way of reading that it lacks.
var ErrUnsupported = errors.New("not supported by the source")

// Source is what the cache needs of an API server: a remote kube-apiserver or
// the origin. Its methods are safe for concurrent use. Errors that the server
// answered with are *errors.StatusError of apimachinery, also those that arrive
// as ERROR events.
type Source interface {
	// List reads one page and calls visit for each item, in order, with bytes
	// that visit may keep. For JSON the items are complete objects with kind and
	// apiVersion, for protobuf bare messages.
	List(ctx context.Context, res *Resource, enc api.Encoding, opts ListOptions, visit func(item []byte) error) (ListMeta, error)
	// Watch calls handle for each event until the watch ends (nil), breaks or
	// ctx is done. It returns ErrUnsupported (wrapped) when SendInitialEvents is
	// asked of a source without it. The connection is given up when nothing, not
	// even an answer to a ping, came for the source's own dead-connection limit.
	Watch(ctx context.Context, res *Resource, enc api.Encoding, opts WatchOptions, handle func(Event) error) error
	// CurrentVersion is the current version of the source's store, read
	// linearizably: at least that of every write acknowledged before the call.
	CurrentVersion(ctx context.Context, res *Resource) (uint64, error)
	// Server names the program that answers at present, for comparison alone: another
	// program may encode the same objects differently. It is a small request, by which
	// it is also found out whether the server answers. The error is ErrUnsupported
	// (wrapped) when the source has no way to ask.
	Server(ctx context.Context) (string, error)
	// LastContact is when the connection that feeds come through last gave a sign of life,
	// with a monotonic clock reading; zero before.
	LastContact() time.Time
	// Delay is for how long what the source sends is under way, at least, as far as that
	// was measured lately. It does not wait.
	Delay() time.Duration
}

// ReferenceSource is a Source that can tell which objects there are, and in which
// versions, for less than a list of the objects costs it.
type ReferenceSource interface {
	Source
	// References calls visit for each object of a list, in its order, with the
	// object's key (see View.Get) and version. The error is ErrUnsupported (wrapped)
	// when the server has no such list of res, otherwise as that of Source.List.
	References(ctx context.Context, res *Resource, opts ReferenceOptions, visit func(key string, rv uint64) error) (ListMeta, error)
}

// ManySource is a Source of several servers with one store. One of them may be behind the
// others for a while.
type ManySource interface {
	Source
	// NewestVersion is the highest CurrentVersion of all servers that tell theirs, with an
	// error if one that is well did not; ErrUnsupported (wrapped) when there is only one.
	NewestVersion(ctx context.Context, res *Resource) (uint64, error)
}

// ColumnSource is a Source that can tell what the server's Tables of a resource look like.
type ColumnSource interface {
	Source
	// Columns is the JSON of the columnDefinitions of the server's Tables of res.
	Columns(ctx context.Context, res *Resource) ([]byte, error)
}

// CompressedSource is a Source whose lists may come compressed, which watches do not.
type CompressedSource interface {
	Source
	// Compressed tells whether they do.
	Compressed() bool
}

// PromptSource is a Source that can tell at once how far its watches are: one in
// this process. With it most-recent reads are answered from the cache.
type PromptSource interface {
	Source
	// Progress tells how far the collection that is fed by the open watch of res in
	// enc has to be to be current. current is at least the store's version at the
	// time of the call; last is the version of the newest change of the resource up
	// to current, or an older version than which none is missing: a collection that
	// holds last holds everything up to current. With shared, several changes have that
	// version: the collection has to hold last and to have had the bookmark, of last or
	// more, which that watch brings after them.
	//
	// The error is ErrUnsupported (wrapped) when it cannot tell: there is no such
	// watch at present, or what res names is not kept in this store.
	Progress(ctx context.Context, res *Resource, enc api.Encoding) (last, current uint64, shared bool, err error)
}
