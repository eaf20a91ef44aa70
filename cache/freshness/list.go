package freshness

import (
	"errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// Versions are the keys and versions of the objects of a list. Once complete, they are immutable
// and may be shared.
type Versions struct {
	Meta  source.ListMeta
	Items []Version
	// Newest is the highest version in Items.
	Newest uint64
	// IsPartial says that the list has more objects.
	IsPartial bool
	// IsOvertaken says that Items is empty because the store has passed the list's version anyway.
	IsOvertaken bool
}

// Version is the key and the version of one object.
type Version struct {
	Key string
	RV  uint64
}

// MaxUnseen is how many more objects than the collection a list may have. A collection that is so
// far behind proves nothing, and the bound keeps the cache from collecting a list in vain.
const MaxUnseen = 1000

// ErrTooFarBehind says that a list has more than MaxUnseen objects that the collection does not
// have.
var ErrTooFarBehind = errors.New("the cache is too far behind the upstream")

// Add appends an object, or fails if there are limit objects already.
func (refs *Versions) Add(key string, rv uint64, limit int) error {
	if len(refs.Items) == limit {
		return ErrTooFarBehind
	}
	refs.Items = append(refs.Items, Version{key, rv})
	refs.Newest = max(refs.Newest, rv)
	return nil
}

// MatchSelection reports whether sel has exactly these objects, in this order.
func (refs *Versions) MatchSelection(sel *store.Selection) bool {
	if sel.Len() != len(refs.Items) {
		return false
	}
	same := true
	sel.Each(func(i int, o *object.Object) bool {
		same = refs.Items[i].RV == o.RV && refs.Items[i].Key == o.Key
		return same
	})
	return same
}
