package backfill

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// singly is how many objects are requested one by one, because that costs the upstream less than a
// list of all.
const singly = 16

// resolve finds the unknown previous states of the events above rv. These are the first events of
// their objects in the history, and the history reaches back to rv, so that the previous state of
// each is that at rv.
func (b *Backfiller) resolve(ctx context.Context, rv uint64) error {
	mux := b.Store.Mux()
	wanted := make(map[string]*watchmux.Event) // by key
	unknown, _ := mux.Unresolved(rv)
	for _, e := range unknown {
		if e.Type == api.Modified { // the last state of a deleted object is in its event
			wanted[e.Object.Key] = e
		}
	}
	prev := make(map[*watchmux.Event]*object.Object)
	_, room := mux.Room()
	visit := func(raw []byte) error {
		o, err := b.Feed.Decode(raw)
		if err != nil {
			return err
		}
		e := wanted[o.Key]
		if e == nil {
			return nil
		}
		if o.RV > rv || o.UID != e.Object.UID {
			return fmt.Errorf("%w: %s is at %d in a list at %d", store.ErrNotJoined, o.Key, o.RV, rv)
		}
		if room -= int64(len(o.Raw)); room < 0 {
			return watchmux.ErrNoRoom
		}
		prev[e] = o
		return nil
	}
	err := b.listAt(ctx, rv, wanted, visit)
	switch {
	case source.IsExpired(err):
		return fmt.Errorf("%w: %v", errNoStates, err)
	case err != nil:
		return err
	case len(prev) < len(wanted):
		return fmt.Errorf("%w: %d of %d changed objects did not exist at %d", store.ErrNotJoined, len(wanted)-len(prev), len(wanted), rv)
	}
	return mux.ResolvePrev(prev)
}

// listAt lists objects at exactly rv: those that are wanted, perhaps all.
func (b *Backfiller) listAt(ctx context.Context, rv uint64, wanted map[string]*watchmux.Event, visit func([]byte) error) error {
	list := func(opts source.ListOptions) (source.ListMeta, error) {
		if opts.Continue == "" {
			opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(rv, 10), "Exact"
		}
		return b.Feed.Source.List(ctx, b.Feed.Resource, b.Feed.Encoding, opts, visit)
	}
	if len(wanted) <= singly {
		for _, e := range wanted {
			name := fields.OneTermEqualSelector("metadata.name", e.Object.Name).String()
			if _, err := list(source.ListOptions{Namespace: e.Object.Namespace, FieldSelector: name}); err != nil {
				return err
			}
		}
		return nil
	}
	opts := source.ListOptions{Limit: reflector.DefaultPageSize}
	for {
		meta, err := list(opts)
		if err != nil || meta.Continue == "" {
			return err
		}
		opts.Continue = meta.Continue
	}
}
