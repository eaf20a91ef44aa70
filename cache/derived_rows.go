package cache

import (
	"encoding/json"
	"fmt"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// rows returns the rows of objs in their order; p is their place. Those of a
// whole list are kept together, so that an unchanged list costs one lookup.
func (r *Reader) rows(p *place, objs objectSet) ([]*table.Row, error) {
	return collect(r, p, derivedRows, p.slot(derivedRows), objs, r.tableRow)
}

// metadata returns the metadata of objects in the given encoding, in their
// order, where it is not what stands in them.
func (r *Reader) metadata(p *place, enc api.Encoding, objs objectSet) ([][]byte, error) {
	s := p.slot(derivedMetas)
	s.rep.Encoding = enc
	return collect(r, p, derivedMetas, s, objs, func(res *Resource, o *object.Object) ([]byte, error) {
		return r.derivedMetadata(res, enc, o)
	})
}

// collect calls one for each object, or takes the results from the slot s.
func collect[T any](r *Reader, p *place, kind derivedKind, s slot, objs objectSet, one func(*Resource, *object.Object) (T, error)) ([]T, error) {
	all := func() ([]T, error) {
		var failed error
		values := make([]T, objs.len())
		objs.each(func(i int, o *object.Object) {
			if failed == nil {
				values[i], failed = one(s.resource, o)
			}
		})
		return values, failed
	}
	// What is collected keeps its parts alive beyond the budget. As that of pages
	// and selectors is not kept, it is two generations of each namespace at most.
	if s.single || s.limit > 0 || s.key != "" {
		return all()
	}
	value, err := r.derived.obtain(&s, p.id, nil, func(*derivedEntry) (any, int, error) {
		values, err := all()
		var element T
		return values, len(values) * int(unsafe.Sizeof(element)), err
	})
	if err != nil {
		return nil, err
	}
	return value.([]T), nil
}

// tableRow returns the row of an object.
func (r *Reader) tableRow(res *Resource, o *object.Object) (*table.Row, error) {
	s := slot{kind: derivedRow, resource: res, key: o.Key}
	if value, ok := r.derived.get(&s, o.ID); ok {
		return value.(*table.Row), nil
	}
	value, err := r.derived.obtain(&s, o.ID, nil, func(*derivedEntry) (any, int, error) {
		row, err := res.Printer.Row(o.Raw)
		if err != nil {
			return nil, 0, fmt.Errorf("printing %s: %w", o.Key, err)
		}
		return row, row.Size(), nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*table.Row), nil
}

// objectMetadata returns the metadata of an object of c in the given encoding,
// as it stands in a PartialObjectMetadata.
func (r *Reader) objectMetadata(c *Collection, enc api.Encoding, o *object.Object) ([]byte, error) {
	if c.Resource().ownMetadata() {
		return o.Metadata(), nil
	}
	return r.derivedMetadata(c.Resource(), enc, o)
}

// ownMetadata reports whether the metadata of objects is, as it stands, that of
// their PartialObjectMetadata.
func (r *Resource) ownMetadata() bool {
	return !r.Custom && len(r.hiddenAnnotations()) == 0
}

// hiddenAnnotations are those that upstream leaves out of the metadata.
func (r *Resource) hiddenAnnotations() []string {
	if r.Printer == nil {
		return nil
	}
	return r.Printer.Traits().HiddenAnnotations
}

// derivedMetadata returns the metadata of an object as upstream makes it: that
// of a custom resource has sorted keys where upstream gives them in the order of
// ObjectMeta, that of some built-in ones annotations which upstream hides.
func (r *Reader) derivedMetadata(res *Resource, enc api.Encoding, o *object.Object) ([]byte, error) {
	s := slot{kind: derivedMetadata, rep: api.Representation{Encoding: enc}, resource: res, key: o.Key}
	if value, ok := r.derived.get(&s, o.ID); ok {
		return value.([]byte), nil
	}
	value, err := r.derived.obtain(&s, o.ID, nil, func(*derivedEntry) (any, int, error) {
		metadata, err := makeMetadata(res, enc, o)
		if err != nil {
			return nil, 0, fmt.Errorf("metadata of %s: %w", o.Key, err)
		}
		return metadata, len(metadata), nil
	})
	if err != nil {
		return nil, err
	}
	return value.([]byte), nil
}

func makeMetadata(res *Resource, enc api.Encoding, o *object.Object) ([]byte, error) {
	switch {
	case !res.Custom && enc == api.Protobuf:
		return table.HideProtobufAnnotations(o.Metadata(), res.hiddenAnnotations())
	case !res.Custom:
		return table.HideAnnotations(o.Metadata(), res.hiddenAnnotations())
	}
	metadata, err := table.PartialMetadata(o.Raw)
	if err == nil && enc == api.Protobuf {
		metadata, err = protobufMetadata(metadata)
	}
	return metadata, err
}

// protobufMetadata turns the JSON of an ObjectMeta into protobuf.
func protobufMetadata(data []byte) ([]byte, error) {
	var typed metav1.ObjectMeta
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	return typed.Marshal()
}

// tableWindow is when the rows of a response read the same: from from on, before
// until.
type tableWindow struct{ from, until time.Time }

func (w tableWindow) contains(t time.Time) bool { return !t.Before(w.from) && t.Before(w.until) }

// knownMoment is the moment of a response's form (see moment) when it is known
// without looking at the rows. Forms other than tables have none.
func (r *Reader) knownMoment(rep api.Representation, p *place) (time.Time, bool) {
	if rep.Transform != api.Table {
		return time.Time{}, true
	}
	s := p.slot(derivedWindow)
	value, ok := r.derived.get(&s, p.id)
	if !ok || !value.(tableWindow).contains(r.now()) {
		return time.Time{}, false
	}
	return value.(tableWindow).from, true
}

// moment returns a moment at which rows read as they do now, the same one for as
// long as they do: it makes ETags, and compressed tables, last.
func (r *Reader) moment(p *place, rows []*table.Row) (time.Time, error) {
	now := r.now()
	s := p.slot(derivedWindow)
	value, err := r.derived.obtain(&s, p.id, func(value any) bool { return value.(tableWindow).contains(now) }, func(*derivedEntry) (any, int, error) {
		w := tableWindow{from: now, until: now.Add(1 << 62)}
		for _, row := range rows {
			if next, ok := row.NextChange(now); ok && next.Before(w.until) {
				w.until = next
			}
		}
		return w, int(unsafe.Sizeof(w)), nil
	})
	if err != nil {
		return time.Time{}, err
	}
	return value.(tableWindow).from, nil
}
