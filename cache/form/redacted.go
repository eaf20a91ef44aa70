package form

import (
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// redacted is another form of redacted objects (object.Redacted), made once for each
// version. The form has nothing else to make its bytes of: whichever object it is told of,
// the redacted one is what the form below sees. Its Resource is another as well, so that
// nothing that is derived for one view is found by the other.
//
// Redacted objects are JSON, so no other form is in protobuf either: an object in protobuf
// has fields that this code does not know, and cannot tell.
type redacted struct {
	Form
	// objs are those of a response, in the order in which they are written.
	objs []*object.Object
}

// redactedOne is the Resource under which forms of redacted objects keep what they derive.
func (r *Resource) redactedOne() *Resource {
	if r.isRedacted {
		return r
	}
	if r.redacted.Load() == nil {
		r.redacted.CompareAndSwap(nil, &Resource{APIVersion: r.APIVersion, Kind: r.Kind, Custom: r.Custom, Printer: r.Printer, isRedacted: true})
	}
	return r.redacted.Load()
}

// redact is object.Redacted, done once for each version of an object.
func (r *Renderer) redact(res *Resource, o *object.Object) (*object.Object, error) {
	s := slot{kind: derivedRedacted, resource: res, key: o.Key}
	if value, ok := r.derived.get(&s, o.ID); ok {
		return value.(*object.Object), nil
	}
	value, err := r.derived.obtain(&s, o.ID, nil, func(*derivedEntry) (any, int, error) {
		value, err := o.Redacted(res.Kind == "Secret" && res.APIVersion == "v1")
		if err != nil {
			return nil, 0, fmt.Errorf("redacting: %w", err)
		}
		if value == o {
			return value, 0, nil
		}
		return value, cap(value.Raw), nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*object.Object), nil
}

func (f *redacted) prepare(p place, objs Objects) (Objects, error) {
	common := f.common()
	of, err := collect(common.r, p, p.slot(derivedRedactedAll), objs, common.r.redact)
	if err != nil {
		return nil, err
	}
	prepared, err := f.Form.prepare(p, sliceOfObjects(of))
	if err != nil {
		return nil, err
	}
	f.objs = make([]*object.Object, 0, len(of))
	prepared.Each(func(_ int, o *object.Object) bool {
		f.objs = append(f.objs, o)
		return true
	})
	return prepared, nil
}

func (f *redacted) itemSize(i int, _ *object.Object) (n int, exact bool) {
	return f.Form.itemSize(i, f.objs[i])
}

func (f *redacted) item(w *chunks, i int, _ *object.Object) { f.Form.item(w, i, f.objs[i]) }

func (f *redacted) singleFrame(*object.Object) (head, tail []byte) {
	return f.Form.singleFrame(f.objs[0])
}

func (f *redacted) singleSize(*object.Object) (n int, exact bool) {
	return f.Form.singleSize(f.objs[0])
}

func (f *redacted) single(w *chunks, _ *object.Object) { f.Form.single(w, f.objs[0]) }

func (f *redacted) verbatim(*object.Object) []byte { return f.Form.verbatim(f.objs[0]) }

// sharing: the objects of events are not the collection's, so what refers to them is kept.
func (f *redacted) sharing() sharing {
	if s := f.Form.sharing(); s != referring {
		return s
	}
	return kept
}

func (f *redacted) event(fr *Frames, t api.EventType, i int, o *object.Object, now time.Time) error {
	if f.objs != nil {
		return f.Form.event(fr, t, i, f.objs[i], now)
	}
	common := f.common()
	o, err := common.r.redact(common.res, o)
	if err != nil {
		return err
	}
	return f.Form.event(fr, t, i, o, now)
}
