package form

import (
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/object"
)

// redacted renders redacted objects (object.Redacted) in another form. Objects are redacted once
// per version. The inner form only ever sees the redacted object, and its slots say so, so values
// derived for one view are never found by the other.
//
// Redacted objects are JSON, and there is no protobuf form of them: a protobuf object can have
// fields that this code does not know and cannot redact.
type redacted struct {
	Form
	// prepared says that event gets objects that prepare has redacted.
	prepared bool
}

// redact is a cached object.Redacted.
func (b *base) redact(o *object.Object) (*object.Object, error) {
	s := b.slot(derivedRedacted, o)
	return derived.Once(b.r.derived, &s, o.ID, func() (*object.Object, int, error) {
		value, err := o.Redacted(b.res.Kind == "Secret" && b.res.APIVersion == "v1")
		if err != nil {
			return nil, 0, fmt.Errorf("redacting: %w", err)
		}
		if value == o {
			return value, 0, nil
		}
		return value, cap(value.Raw), nil
	})
}

func (f *redacted) prepare(p place, objs Objects) (Objects, error) {
	common := f.common()
	of, err := collect(common.r, p, p.slot(derivedRedactedAll), objs, common.redact)
	if err != nil {
		return nil, err
	}
	f.prepared = true
	return f.Form.prepare(p, sliceOfObjects(of))
}

// sharing implements Form. The redacted objects do not belong to the collection, so frames that
// refer to them are kept.
func (f *redacted) sharing() sharing {
	if s := f.Form.sharing(); s != referring {
		return s
	}
	return kept
}

func (f *redacted) event(fr *Frames, t api.EventType, i int, o *object.Object, now time.Time) error {
	if !f.prepared {
		var err error
		if o, err = f.common().redact(o); err != nil {
			return err
		}
	}
	return f.Form.event(fr, t, i, o, now)
}
