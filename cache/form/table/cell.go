package table

import (
	stdjson "encoding/json"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/encoding/json"
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
