package table

import (
	"math"
	"time"
	"unsafe"

	"github.com/kubeweir/kubeweir/encoding/json"
)

// Row is one row of a Table without its object: a template of the row's JSON
// with slots for relative times. It is immutable and safe for concurrent use.
type Row struct {
	// text is `"cells":[...]`, followed by `,"conditions":[...]` when there
	// are any, without the contents of the slots.
	text []byte
	// slots are in the order of their positions.
	slots   []slot
	sortKey string
}

// slot is a place in a row's text where the time passed since an instant goes.
// It is not a time.Time to save half of the memory.
type slot struct {
	seconds int64 // since the Unix epoch
	nanos   int32
	pos     uint32 // offset into Row.text
}

func (s slot) age(now time.Time) time.Duration {
	return now.Sub(time.Unix(s.seconds, int64(s.nanos)))
}

// Append appends the members "cells" and, if the row has any, "conditions" of
// the row's JSON object as they read at now. It allocates only to grow dst.
func (r *Row) Append(dst []byte, now time.Time) []byte {
	from := uint32(0)
	for _, s := range r.slots {
		dst = append(dst, r.text[from:s.pos]...)
		dst = appendHumanDuration(dst, s.age(now))
		from = s.pos
	}
	return append(dst, r.text[from:]...)
}

// Size is the memory that the row takes, in bytes.
func (r *Row) Size() int {
	return int(unsafe.Sizeof(Row{})) + cap(r.text) + cap(r.slots)*int(unsafe.Sizeof(slot{})) + len(r.sortKey)
}

// Cell is the JSON of a cell; times in a longer text are left out. Of a cell that says how long
// ago a moment was it has that, in seconds since 1970, and relative is set.
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

// SortKey orders the rows of resources whose Traits say Sorted: compared as
// strings, ascending. It is empty for all others.
func (r *Row) SortKey() string { return r.sortKey }

// NextChange returns the first moment after now at which the row reads
// differently, and false if it never will.
func (r *Row) NextChange(now time.Time) (time.Time, bool) {
	wait := time.Duration(math.MaxInt64)
	for _, s := range r.slots {
		wait = min(wait, untilNextText(s.age(now)))
	}
	return now.Add(wait), wait < math.MaxInt64
}
