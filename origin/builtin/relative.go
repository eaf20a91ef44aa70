package builtin

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeweir/kubeweir/cache/form/table"
)

// errUnpredictable is returned for rows with a cell that depends on the current
// time in a way that could not be made out.
var errUnpredictable = errors.New("cell depends on the time of printing in an unknown way")

// The printers of k8s.io/kubernetes read the clock themselves and return text.
// To learn which text is the age of which timestamp, the object is printed
// again with every timestamp replaced, twice, by two known ages ("marks") whose
// texts are told apart easily: a cell that has the text of a timestamp's first
// mark in one print where it has that of its second mark in the other, and is
// equal elsewhere, is the age of that timestamp.
//
// Marks keep the order of the timestamps, and equal timestamps get equal marks,
// so that comparisons ("the last restart") come out as before. Zero times stay
// zero. The distances between first marks differ from those between second
// marks, so that a cell that shows the distance of two timestamps (the DURATION
// of a finished job) differs between the prints without being an age; such
// cells keep their original text if that does not change when all timestamps
// are moved together.

// mark is a pair of ages that stands for a timestamp. Their texts differ, and
// neither is the beginning of the other.
type mark struct {
	age  [2]time.Duration
	text [2]string
}

// newMarks returns all marks there can be, the youngest first. They lie between
// 2 and 8 years, where ages read like "2y123d", and in the middle of a day, so
// that printing may take its time.
func newMarks() []mark {
	const days = 24 * time.Hour
	var marks []mark
	for first, second := 731, 733; second < 8*365; first, second = first+1, second+2 {
		// Whole years read "3y", with which "3y5d" begins.
		if first%365 == 0 {
			first, second = first+1, second+1
		}
		if second%365 == 0 {
			second++
		}
		var m mark
		for i, n := range []int{first, second} {
			m.age[i] = time.Duration(n)*days + 12*time.Hour
			m.text[i] = duration.HumanDuration(m.age[i])
		}
		marks = append(marks, m)
	}
	return marks
}

// template prints an object and turns the result into table cells.
type template struct {
	marks []mark
	// print prints the object as it is at the moment.
	print func() (metav1.TableRow, error)
	// times are the object's timestamps; print sees changes to them.
	times []*time.Time
	// originals are the values of times, instants the distinct ones among
	// them, latest first.
	originals []time.Time
	instants  []time.Time
}

// cells prints the object and returns its cells and conditions. The object's
// timestamps are changed in the course of it.
func (t *template) cells() ([]table.Cell, []metav1.TableRowCondition, error) {
	actual, err := t.print()
	if err != nil {
		return nil, nil, err
	}
	if err := t.remember(); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	var marked [2]metav1.TableRow
	for side := range marked {
		t.set(func(i int, _ time.Time) time.Time { return now.Add(-t.marks[i].age[side]) })
		if marked[side], err = t.print(); err != nil {
			return nil, nil, err
		}
		if len(marked[side].Cells) != len(actual.Cells) {
			return nil, nil, errUnpredictable
		}
	}
	cells := make([]table.Cell, len(actual.Cells))
	for i, value := range actual.Cells {
		a, b := marked[0].Cells[i], marked[1].Cells[i]
		switch same := equalCells(a, b); {
		case same && equalCells(a, value):
			cells[i] = table.Cell{Value: value}
			continue
		case !same:
			if pieces, ok := t.align(a, b); ok {
				cells[i] = table.Cell{Text: pieces}
				continue
			}
		}
		if err := t.checkStatic(i, value); err != nil {
			return nil, nil, err
		}
		cells[i] = table.Cell{Value: value}
	}
	return cells, actual.Conditions, nil
}

// remember keeps the original timestamps.
func (t *template) remember() error {
	t.originals = make([]time.Time, len(t.times))
	for i, p := range t.times {
		t.originals[i] = *p
	}
	t.instants = slices.Clone(t.originals)
	slices.SortFunc(t.instants, func(a, b time.Time) int { return b.Compare(a) })
	t.instants = slices.CompactFunc(t.instants, time.Time.Equal)
	if len(t.instants) > len(t.marks) {
		return fmt.Errorf("%d different timestamps: %w", len(t.instants), errUnpredictable)
	}
	return nil
}

// set changes every timestamp to what value returns for it, given its index in
// instants and its original.
func (t *template) set(value func(i int, original time.Time) time.Time) {
	for i, p := range t.times {
		original := t.originals[i]
		k, _ := slices.BinarySearchFunc(t.instants, original, func(a, b time.Time) int { return b.Compare(a) })
		*p = value(k, original)
	}
}

// align takes a cell as printed with the first and with the second marks. It
// returns the cell in pieces if the two differ in marks only.
func (t *template) align(first, second any) ([]table.Piece, bool) {
	a, ok := first.(string)
	if !ok {
		return nil, false
	}
	b, ok := second.(string)
	if !ok {
		return nil, false
	}
	var pieces []table.Piece
	static := 0 // where in a the text after the last mark began
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		k := t.markAt(a[i:], b[j:])
		if k < 0 {
			if a[i] != b[j] {
				return nil, false
			}
			i, j = i+1, j+1
			continue
		}
		if static < i {
			pieces = append(pieces, table.Piece{Static: a[static:i]})
		}
		pieces = append(pieces, table.Piece{Since: t.instants[k]})
		i, j = i+len(t.marks[k].text[0]), j+len(t.marks[k].text[1])
		static = i
	}
	if i < len(a) || j < len(b) {
		return nil, false
	}
	if static < len(a) {
		pieces = append(pieces, table.Piece{Static: a[static:]})
	}
	return pieces, true
}

// markAt returns which instant's marks a and b begin with, or -1.
func (t *template) markAt(a, b string) int {
	for k := range t.instants {
		m := &t.marks[k]
		if strings.HasPrefix(a, m.text[0]) && strings.HasPrefix(b, m.text[1]) {
			return k
		}
	}
	return -1
}

// checkStatic fails unless cell i still prints as value when all timestamps are
// moved into the past together.
func (t *template) checkStatic(i int, value any) error {
	const shift = 3 * 365 * 24 * time.Hour
	t.set(func(_ int, original time.Time) time.Time { return original.Add(-shift) })
	row, err := t.print()
	if err != nil {
		return err
	}
	if len(row.Cells) <= i || !equalCells(row.Cells[i], value) {
		return fmt.Errorf("cell %d: %w", i, errUnpredictable)
	}
	return nil
}

func equalCells(a, b any) bool {
	if s, ok := a.(string); ok {
		other, ok := b.(string)
		return ok && s == other
	}
	return reflect.DeepEqual(a, b)
}
