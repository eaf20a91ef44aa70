package object

import (
	"fmt"

	"github.com/kubeweir/kubeweir/api"
)

// AtRV returns o as if it had been written at rv: the same object with another
// resourceVersion in its bytes, under an ID of its own. A watch sends it when an
// object leaves the watcher's selector: the state that still matched, with the
// version of the change. o stays as it is.
func (o *Object) AtRV(enc api.Encoding, rv uint64) (*Object, error) {
	if o.RV == rv {
		return o, nil
	}
	stamped, err := Codec(enc).Stamp(o.Encoded, rv)
	if err != nil {
		return nil, fmt.Errorf("restamping %s: %w", o.Key, err)
	}
	c := *o
	c.RV, c.ID, c.Encoded = rv, lastID.Add(1), stamped
	return &c, nil
}
