package form

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/object"
)

// tables renders objects as rows of a Table. Rows are derived once per version of an object
// (package table); relative times are filled in while they are written.
type tables struct {
	base
	// rows belong to the objects of a response, rendered for the time at.
	rows []*table.Row
	at   time.Time
	// columns is set once an event of the watch has carried the column definitions.
	columns bool
}

func (f *tables) prepare(p place, objs Objects) (Objects, error) {
	// The rows of a whole list are one entry, so an unchanged list costs one lookup.
	rows, err := collect(f.r, p, p.slot(derivedRows), objs, f.row)
	if err != nil {
		return nil, err
	}
	if f.rep.IncludeObject == api.IncludeMetadata {
		if err := f.prepareMetadata(p, objs); err != nil {
			return nil, err
		}
	}
	if f.at, err = f.r.moment(p, rows); err != nil {
		return nil, err
	}
	f.rows = rows
	if f.res.Printer.Traits().Sorted && !f.inOrder {
		return f.sort(objs), nil
	}
	return objs, nil
}

// sort orders the rows by their sort keys.
func (f *tables) sort(objs Objects) Objects {
	order := make([]int, objs.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(f.rows[a].SortKey(), f.rows[b].SortKey()) })
	unsorted := make(sliceOfObjects, 0, len(order))
	objs.Each(func(_ int, o *object.Object) bool {
		unsorted = append(unsorted, o)
		return true
	})
	if f.metas != nil {
		f.metas = permuted(f.metas, order)
	}
	f.rows = permuted(f.rows, order)
	return sliceOfObjects(permuted(unsorted, order))
}

// permuted returns values in the given order.
func permuted[T any](values []T, order []int) []T {
	out := make([]T, len(order))
	for to, from := range order {
		out[to] = values[from]
	}
	return out
}

func (f *tables) moment(p place) (at time.Time, known bool) {
	if f.rows != nil {
		return f.at, true
	}
	return f.r.knownMoment(p)
}

func (f *tables) limits(first, n int) (from, until int64) {
	until = math.MaxInt64
	for _, row := range f.rows[first : first+n] {
		if next, ok := row.NextChange(f.at); ok {
			until = min(until, unixNano(next))
		}
	}
	return f.at.UnixNano(), until
}

// unixNano is t.UnixNano, clamped for times out of range.
func unixNano(t time.Time) int64 {
	if t.Year() > 2250 {
		return math.MaxInt64
	}
	return t.UnixNano()
}

func (f *tables) itemSize(i int, o *object.Object) (n int, exact bool) {
	n = len(`{"cells":[],"object":null}`) + len(o.Name)
	switch f.rep.IncludeObject {
	case api.IncludeMetadata:
		value, rest, _ := f.metadataOf(i, o)
		n += len(json.PartialHead) + len(value) + len(rest)
	case api.IncludeObjectFull:
		n += len(o.Raw)
		if f.rep.DropManagedFields {
			n -= o.Managed()
		}
	case api.IncludeNone:
	}
	return n, false
}

func (f *tables) item(w *chunks.Writer, i int, o *object.Object) {
	size, _ := f.itemSize(i, o)
	carried, _ := f.object(i, o)
	w.Append(size+f.rows[i].Size(), func(b []byte) []byte { return table.AppendRow(b, f.rows[i], f.at, carried) })
}

// object returns what the row of object i carries besides its cells. It fails only for objects that
// were not prepared.
func (f *tables) object(i int, o *object.Object) (table.Object, error) {
	switch {
	case f.rep.IncludeObject == api.IncludeNone:
		return table.Object{}, nil
	case f.rep.IncludeObject == api.IncludeMetadata:
		value, rest, err := f.metadataOf(i, o)
		return table.MetadataObject(value, rest), err
	case f.rep.DropManagedFields && o.ManagedEnd > 0:
		return table.FullObject(o.Raw[:o.ManagedStart], o.Raw[o.ManagedEnd:]), nil
	}
	return table.FullObject(o.Raw, nil), nil
}

func (f *tables) sharing() sharing {
	// Each watch receives the column definitions once.
	if f.withColumns() {
		return alone
	}
	return keptYoung
}

// withColumns reports whether the next event of the watch carries column definitions: the first one
// does.
func (f *tables) withColumns() bool {
	return !f.columns || f.res.Printer.Traits().ColumnsInEveryEvent
}

// event appends an event whose object is a Table with one row.
func (f *tables) event(fr *Frames, t api.EventType, i int, o *object.Object, now time.Time) error {
	row, err := f.row(o)
	if err != nil {
		return err
	}
	carried, err := f.object(i, o)
	if err != nil {
		return err
	}
	f.appendSingle(fr, t, &table.Single{ResourceVersion: formatRV(o.RV), Row: row, Object: carried}, now)
	return nil
}

func (f *tables) bookmark(fr *Frames, t encoding.BookmarkTemplate, rv uint64, end bool, now time.Time) error {
	raw := t.AppendObject(nil, rv, end)
	row, err := f.res.Printer.Bookmark(raw)
	if err != nil {
		return fmt.Errorf("printing bookmark: %w", err)
	}
	single := table.Single{ResourceVersion: formatRV(rv), Row: row}
	include := f.rep.IncludeObject
	switch {
	case include == api.IncludeObjectFull:
		single.Object = table.FullObject(raw, nil)
	case include == api.IncludeMetadata, end:
		value, err := f.bookmarkMetadata(t, rv, end)
		if err != nil {
			return err
		}
		single.Object = table.MetadataObject(value, nil)
	}
	f.appendSingle(fr, api.Bookmark, &single, now)
	return nil
}

func (f *tables) appendSingle(fr *Frames, t api.EventType, single *table.Single, now time.Time) {
	if f.withColumns() {
		single.Columns = f.res.Printer.Columns()
		f.columns = true
	}
	message := fr.pieces.Made(func(b []byte) []byte { return single.Append(b, now) })
	f.enc.Event(&fr.pieces, t, table.APIVersion, table.Kind, message)
}

// row returns the row of an object.
func (f *tables) row(o *object.Object) (*table.Row, error) {
	s := f.slot(derivedRow, o)
	return derived.Once(f.r.derived, &s, o.ID, func() (*table.Row, int, error) {
		row, err := f.res.Printer.Row(o.Raw)
		if err != nil {
			return nil, 0, fmt.Errorf("printing %s: %w", o.Key, err)
		}
		return row, row.Size(), nil
	})
}

// tableWindow is the interval [from, until) in which the rows of a response render the same.
type tableWindow struct{ from, until time.Time }

func (w tableWindow) contains(t time.Time) bool { return !t.Before(w.from) && t.Before(w.until) }

// knownMoment returns the moment of a response if it is known without looking at the rows.
func (r *Renderer) knownMoment(p place) (time.Time, bool) {
	s := p.slot(derivedWindow)
	value, ok := r.derived.Get(&s, p.id, func(value any) bool { return value.(tableWindow).contains(r.now()) })
	if !ok {
		return time.Time{}, false
	}
	return value.(tableWindow).from, true
}

// moment returns a time at which rows render as they do now. It stays the same for as long as they
// do, so ETags and compressed Tables stay valid.
func (r *Renderer) moment(p place, rows []*table.Row) (time.Time, error) {
	now := r.now()
	s := p.slot(derivedWindow)
	value, err := r.derived.Obtain(&s, p.id, func(value any) bool { return value.(tableWindow).contains(now) }, func(*derived.Entry[slot]) (any, int, error) {
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
