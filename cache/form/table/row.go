package table

import (
	stdjson "encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Cell is the content of one cell: a fixed JSON value, or text with relative times.
type Cell struct {
	// Value is the fixed value: a string, number, boolean or nil. It is ignored if Text is set.
	Value any
	// Text is the text in pieces.
	Text []Piece
}

// Piece is a part of a cell's text: the time elapsed since Since or, if Since is zero, Static.
type Piece struct {
	Static string
	Since  time.Time
}

// Age returns a cell that shows the time since t, or "<unknown>" for the zero time.
func Age(t time.Time) Cell {
	if t.IsZero() {
		return Cell{Value: "<unknown>"}
	}
	return Cell{Text: []Piece{{Since: t}}}
}

// NewRow returns the row with the given cells and conditions. sortKey is empty for resources whose
// lists are in key order.
func NewRow(cells []Cell, conditions []metav1.TableRowCondition, sortKey string) (*Row, error) {
	b := rowBuilder{text: make([]byte, 0, 256)}
	b.raw(`"cells":[`)
	for i, c := range cells {
		if i > 0 {
			b.raw(",")
		}
		b.cell(c)
	}
	b.raw("]")
	if len(conditions) > 0 {
		b.raw(`,"conditions":`)
		b.value(conditions)
	}
	if b.err == nil && len(b.text) > math.MaxUint32 {
		b.err = fmt.Errorf("row of %d bytes is too large", len(b.text))
	}
	if b.err != nil {
		return nil, b.err
	}
	// Rows live as long as their objects, so they have no spare capacity.
	text := append(make([]byte, 0, len(b.text)), b.text...)
	return &Row{text: text, slots: append(make([]slot, 0, len(b.slots)), b.slots...), sortKey: sortKey}, nil
}

// Row is one row of a Table without its object: a template of the row's JSON with slots for
// relative times. It is immutable and safe for concurrent use.
type Row struct {
	// text is `"cells":[...]`, followed by `,"conditions":[...]` if there are any, without the
	// contents of the slots.
	text []byte
	// slots are ordered by position.
	slots   []slot
	sortKey string
}

// slot is a position in a row's text at which the time elapsed since an instant is inserted. It is
// half the size of a time.Time.
type slot struct {
	seconds int64 // since the Unix epoch
	nanos   int32
	pos     uint32 // offset in Row.text
}

func (s slot) age(now time.Time) time.Duration {
	return now.Sub(time.Unix(s.seconds, int64(s.nanos)))
}

// Append appends the members "cells" and, if the row has any, "conditions" of the row's JSON
// object, rendered at now. It allocates only to grow dst.
func (r *Row) Append(dst []byte, now time.Time) []byte {
	from := uint32(0)
	for _, s := range r.slots {
		dst = append(dst, r.text[from:s.pos]...)
		dst = appendHumanDuration(dst, s.age(now))
		from = s.pos
	}
	return append(dst, r.text[from:]...)
}

// Size returns the memory use of the row, in bytes.
func (r *Row) Size() int {
	return int(unsafe.Sizeof(Row{})) + cap(r.text) + cap(r.slots)*int(unsafe.Sizeof(slot{})) + len(r.sortKey)
}

// Cell returns the JSON of cell i without the relative times in its text. If the cell consists of
// one relative time, relative is true and moment is that time, in Unix seconds.
func (r *Row) Cell(i int) (token []byte, moment int64, relative bool) {
	token = json.Lookup(r.text[len(`"cells":`):], []json.Step{{Kind: json.Element, Index: i}})
	if string(token) != `""` {
		return token, 0, false
	}
	inside := uint32(cap(r.text) - cap(token) + 1)
	for _, s := range r.slots {
		if s.pos == inside {
			return nil, s.seconds, true
		}
	}
	return token, 0, false
}

// SortKey returns the key by which rows are sorted, ascending, if the resource's Traits say Sorted;
// otherwise "".
func (r *Row) SortKey() string { return r.sortKey }

// NextChange returns the first time after now at which the row renders differently, or false if it
// never will.
func (r *Row) NextChange(now time.Time) (time.Time, bool) {
	wait := time.Duration(math.MaxInt64)
	for _, s := range r.slots {
		wait = min(wait, untilNextText(s.age(now)))
	}
	return now.Add(wait), wait < math.MaxInt64
}

// rowBuilder collects the text and slots of a row. It keeps the first error.
type rowBuilder struct {
	text  []byte
	slots []slot
	err   error
}

func (b *rowBuilder) raw(s string) { b.text = append(b.text, s...) }

func (b *rowBuilder) value(v any) {
	if s, ok := v.(string); ok {
		b.raw(`"`)
		b.text = json.AppendText(b.text, s)
		b.raw(`"`)
		return
	}
	data, err := stdjson.Marshal(v)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("encoding cell: %w", err)
	}
	b.text = append(b.text, data...)
}

func (b *rowBuilder) cell(c Cell) {
	if c.Text == nil {
		b.value(c.Value)
		return
	}
	b.raw(`"`)
	for _, p := range c.Text {
		if p.Since.IsZero() {
			b.text = json.AppendText(b.text, p.Static)
			continue
		}
		b.slots = append(b.slots, slot{
			seconds: p.Since.Unix(),
			nanos:   int32(p.Since.Nanosecond()),
			pos:     uint32(len(b.text)),
		})
	}
	b.raw(`"`)
}

// invalidDuration is the text of a time in the future, escaped for JSON.
const invalidDuration = `\u003cinvalid\u003e`

const (
	day  = 24 * time.Hour
	year = 365 * day
)

type span struct {
	below        time.Duration
	large, small time.Duration // small is 0 for one unit
	units        string
}

// spans are the units in which ages below a bound are shown. The second one is left out if it is
// zero.
var spans = [...]span{
	{2 * time.Minute, time.Second, 0, "s"},
	{10 * time.Minute, time.Minute, time.Second, "ms"},
	{3 * time.Hour, time.Minute, 0, "m"},
	{8 * time.Hour, time.Hour, time.Minute, "hm"},
	{2 * day, time.Hour, 0, "h"},
	{8 * day, day, time.Hour, "dh"},
	{2 * year, day, 0, "d"},
	{8 * year, year, day, "yd"},
	{math.MaxInt64, year, 0, "y"},
}

// spanOf returns the span in which d is shown.
func spanOf(d time.Duration) *span {
	i := 0
	for d >= spans[i].below && i < len(spans)-1 {
		i++
	}
	return &spans[i]
}

// appendHumanDuration appends HumanDuration(d) of k8s.io/apimachinery/pkg/util/duration, escaped
// for JSON.
func appendHumanDuration(dst []byte, d time.Duration) []byte {
	// Truncation matters: times less than two seconds in the future count as now.
	switch seconds := d / time.Second; {
	case seconds < -1:
		return append(dst, invalidDuration...)
	case seconds < 0:
		return append(dst, "0s"...)
	}
	span := spanOf(d)
	dst = append(strconv.AppendInt(dst, int64(d/span.large), 10), span.units[0])
	if span.small > 0 {
		if rest := d % span.large / span.small; rest > 0 {
			dst = append(strconv.AppendInt(dst, int64(rest), 10), span.units[1])
		}
	}
	return dst
}

// untilNextText returns how long the text of an age that is now d stays the same.
func untilNextText(d time.Duration) time.Duration {
	switch {
	case d == math.MinInt64:
		return math.MaxInt64
	case d <= -2*time.Second:
		// "<invalid>" ends when the truncated seconds reach -1.
		return -2*time.Second + 1 - d
	case d < time.Second:
		return time.Second - d
	}
	step := spanOf(d).large
	if small := spanOf(d).small; small > 0 {
		step = small
	}
	return step - d%step
}
