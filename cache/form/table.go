package form

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/object"
)

// tables renders objects as rows of a Table. Rows are derived once per version of an object
// (package table); relative times are filled in while they are written.
type tables struct {
	partials
	// rows belong to the objects of a response, rendered for the time at.
	rows []*table.Row
	at   time.Time
	// columns is set once an event of the watch has carried the column definitions.
	columns bool
}

func (f *tables) prepare(p place, objs Objects) (Objects, error) {
	var err error
	if f.res.Printer.Traits().Sorted && !f.inOrder {
		if objs, err = f.sorted(objs); err != nil {
			return nil, err
		}
	}
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
	// The moment stays the same for as long as the rows do, so ETags and compressed Tables stay
	// valid.
	now, s := f.r.now(), p.slot(derivedWindow)
	usable := func(value any) bool { return value.(window).contains(now.UnixNano()) }
	value, err := f.r.derived.Obtain(&s, p.id, usable, func(*derived.Entry[slot]) (any, int, error) {
		w := windowOf(rows, now)
		return w, int(unsafe.Sizeof(w)), nil
	})
	if err != nil {
		return nil, err
	}
	f.rows, f.at = rows, time.Unix(0, value.(window).from)
	return objs, nil
}

// sorted returns objs in the order of their rows' sort keys.
func (f *tables) sorted(objs Objects) (Objects, error) {
	var failed error
	keys := make(map[*object.Object]string, objs.Len())
	out := make(sliceOfObjects, 0, objs.Len())
	objs.Each(func(_ int, o *object.Object) bool {
		row, err := f.row(o)
		if failed = err; err == nil {
			keys[o], out = row.SortKey(), append(out, o)
		}
		return err == nil
	})
	slices.SortStableFunc(out, func(a, b *object.Object) int { return strings.Compare(keys[a], keys[b]) })
	return out, failed
}

func (f *tables) moment(p place) (at time.Time, known bool) {
	if f.rows != nil {
		return f.at, true
	}
	s := p.slot(derivedWindow)
	value, ok := f.r.derived.Get(&s, p.id, func(value any) bool { return value.(window).contains(f.r.now().UnixNano()) })
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(0, value.(window).from), true
}

func (f *tables) limits(first, n int) window { return windowOf(f.rows[first:first+n], f.at) }

// windowOf returns the window in which rows render as they do at the time from, with which it
// begins.
func windowOf(rows []*table.Row, from time.Time) window {
	w := window{from.UnixNano(), math.MaxInt64}
	for _, row := range rows {
		if next, ok := row.NextChange(from); ok && next.Year() <= 2250 { // later ones are out of range
			w.until = min(w.until, next.UnixNano())
		}
	}
	return w
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
	return cachedBriefly
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
	row, err := table.PrintBookmark(f.res.Printer, raw)
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
