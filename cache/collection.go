package cache

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Collection holds all objects of one resource in one encoding, fed by one
// upstream watch. It is made and owned by a Manager. All methods are safe for
// concurrent use. Its version never goes back: when the upstream's does, the
// collection stops and the Manager makes another.
type Collection struct {
	resource *Resource
	encoding api.Encoding
}

// Resource is what the collection holds.
func (c *Collection) Resource() *Resource { return c.resource }

// Encoding is the encoding of the collection's objects.
func (c *Collection) Encoding() api.Encoding { return c.encoding }

// ListKind is the kind and apiVersion of the resource's lists (PodList, v1), as
// the upstream says them.
func (c *Collection) ListKind() (kind, apiVersion string) { panic("TODO") }

// RV is the version that the collection holds.
func (c *Collection) RV() uint64 { panic("TODO") }

// View is the current state: O(1), the same pointer while nothing changes.
func (c *Collection) View() *View { panic("TODO") }

// ViewAt is the state at exactly rv: the current one, a retained one, or one
// made by undoing history. The error is an *ExpiredError when that is no longer
// possible (or never was, between the versions around a relist), a
// *TooLargeError when rv is above the collection's version (WaitFor first).
func (c *Collection) ViewAt(rv uint64) (*View, error) { panic("TODO") }

// Retain keeps v for ViewAt, within the limits of age and bytes, so that a
// chunked list can go on from the version at which it began.
func (c *Collection) Retain(v *View) { panic("TODO") }

// Select returns the objects that f matches, in key order, and the version at
// which they are the whole answer. ok is false when no index helps: the caller
// then scans a View.
func (c *Collection) Select(f *object.Filter) (objs []*object.Object, rv uint64, ok bool) {
	panic("TODO")
}

// WaitFor returns when the collection holds rv. The error is a *TooLargeError
// after timeout, the context's error, or the reason why the collection stopped.
func (c *Collection) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	panic("TODO")
}

// HasSeenDelete reports whether the collection holds rv and no object with
// that uid at key ("" for any uid).
func (c *Collection) HasSeenDelete(key, uid string, rv uint64) bool { panic("TODO") }

// WaitDeleted returns when HasSeenDelete does; its errors are those of WaitFor.
// rv is the newest version of the object that the caller knows of (the one in
// the delete's response), 0 if none: it keeps an object that the collection has
// not seen yet from passing as deleted.
func (c *Collection) WaitDeleted(ctx context.Context, key, uid string, rv uint64, timeout time.Duration) error {
	panic("TODO")
}

// Fresh returns a version which the collection holds and which is at least as
// new as every write that the upstream acknowledged before the call. Callers
// share rounds, never one that began before they came. The error wraps
// ErrUnsupported when the source cannot tell its version.
func (c *Collection) Fresh(ctx context.Context) (uint64, error) { panic("TODO") }

// Mux fans out the collection's events.
func (c *Collection) Mux() *watchmux.Mux { panic("TODO") }

// BookmarkTemplate is the object of a bookmark as the upstream sent it, in the
// collection's encoding (protobuf: the bare message) and with whatever version
// it then had, nil before the first. It must not be modified.
func (c *Collection) BookmarkTemplate() []byte { panic("TODO") }

// State says how the collection is doing.
func (c *Collection) State() State { panic("TODO") }

// Closed is closed when the collection has stopped for good; State then has the
// reason. Its views stay readable.
func (c *Collection) Closed() <-chan struct{} { panic("TODO") }
