package form

import (
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// redacted renders redacted objects (object.Redacted) in another form. Objects are redacted once
// per version. The inner form only ever sees the redacted object, and has a Resource of its own, so
// values derived for one view are never found by the other.
//
// Redacted objects are JSON, and there is no protobuf form of them: a protobuf object can have
// fields that this code does not know and cannot redact.
type redacted struct {
	Form
	// objs are the objects of a response in the order in which they are written.
	objs []*object.Object
}

// redactedOne returns the Resource under which forms of redacted objects cache derived values.
func (r *Resource) redactedOne() *Resource {
	if r.isRedacted {
		return r
	}
	if r.redacted.Load() == nil {
		r.redacted.CompareAndSwap(nil, &Resource{APIVersion: r.APIVersion, Kind: r.Kind, Custom: r.Custom, Printer: r.Printer, isRedacted: true})
	}
	return r.redacted.Load()
}

// redact is a cached object.Redacted.
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

// sharing implements Form. The redacted objects do not belong to the collection, so frames that
// refer to them are kept.
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
