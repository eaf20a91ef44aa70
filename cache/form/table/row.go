package table

import (
	"math"
	"time"
	"unsafe"

	"github.com/kubeweir/kubeweir/encoding/json"
)

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
