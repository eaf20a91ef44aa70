package form

import (
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestEventsAllocateNothing checks that events made of an object's own bytes, and message headers,
// are assembled in reused memory.
func TestEventsAllocateNothing(t *testing.T) {
	message := func(dst []byte, size int) []byte { return append(dst, byte(size)) }
	o := decode(t, api.JSON, samplePod("7"))
	event := watchmux.Delivery{Event: &watchmux.Event{}, Type: api.Added, Object: o, RV: 7}
	for _, test := range []struct {
		rep     api.Representation
		message func([]byte, int) []byte
		pieces  int
		shared  *byte // start of the last piece but one
	}{
		{api.Representation{}, nil, 3, &o.Raw[0]},
		{api.Representation{}, message, 4, &o.Raw[0]},
		{api.Representation{Transform: api.PartialMetadata}, message, 4, &o.Metadata()[0]},
		{api.Representation{DropManagedFields: true}, message, 5, &o.Raw[o.ManagedEnd]},
		{api.Representation{Transform: api.PartialMetadata, DropManagedFields: true}, nil, 4, &o.Raw[o.ManagedEnd]},
	} {
		r := &Renderer{}
		w, ok := r.Watch(Collection{Resource: &Resource{APIVersion: "v1", Kind: "Pod"}}, test.rep, test.message)
		if !ok {
			t.Fatal("not servable")
		}
		var f Frames
		deliver := func() {
			w.Begin(&f)
			for range 100 {
				if err := w.Event(&f, event); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := testing.AllocsPerRun(10, deliver); n != 0 {
			t.Errorf("%+v: %v allocations for 100 events", test.rep, n)
		}
		if n := len(f.List()); n != 100*test.pieces || &f.List()[test.pieces-2][0] != test.shared {
			t.Errorf("%+v: %d pieces; the object's bytes are shared: %v", test.rep, n, &f.List()[test.pieces-2][0] == test.shared)
		}
	}
}
