package object

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// scan is one run over one object's bytes: what it found, as slices of raw where
// no escape stood in the way. Scans are pooled by their schema.
type scan struct {
	schema *Schema
	raw    []byte
	// err is a fault of the content, as opposed to one of the syntax.
	err error
	// node is where nested is in the schema's tree.
	node *jsonNode

	name, namespace, uid, rv       []byte
	creation                       int64
	labels                         []labelBytes
	values                         [][]byte // by slot
	text                           []byte   // written for values that raw holds otherwise
	listOffset, metaStart, metaEnd int
	cutter                         cutter
}

type labelBytes struct{ key, value []byte }

// scan takes a scan from the pool; release gives it back.
func (s *Schema) scan(raw []byte) *scan {
	sc, _ := s.scans.Get().(*scan)
	if sc == nil {
		sc = &scan{schema: s, values: make([][]byte, s.slots)}
	}
	sc.raw = raw
	return sc
}

// maxKept bounds the labels whose room a pooled scan keeps.
const maxKept = 256

// release forgets everything that points into raw, or into the object.
func (sc *scan) release() {
	if cap(sc.labels) > maxKept {
		return
	}
	clear(sc.labels[:cap(sc.labels)])
	clear(sc.values)
	clear(sc.cutter.pieces)
	*sc = scan{schema: sc.schema, labels: sc.labels[:0], values: sc.values, text: sc.text[:0],
		cutter: cutter{pieces: sc.cutter.pieces[:0]}}
	sc.schema.scans.Put(sc)
}

var (
	errNoName = errors.New("metadata.name is missing")
	errNoRV   = errors.New("metadata.resourceVersion is missing")
)

// object builds the Object of a finished scan. Strings that no other object is
// likely to have are cut from one backing string.
func (sc *scan) object() (*Object, error) {
	if len(sc.name) == 0 {
		return nil, errNoName
	}
	if len(sc.rv) == 0 {
		return nil, errNoRV
	}
	rv, err := parseRV(sc.rv)
	if err != nil {
		return nil, err
	}
	sc.sortLabels()
	o := &Object{
		RV: rv, CreationUnix: sc.creation,
		Raw: sc.raw, ListOffset: sc.listOffset, MetaStart: sc.metaStart, MetaEnd: sc.metaEnd,
		ID: lastID.Add(1),
	}
	sc.identity(o)
	sc.labelStrings(o)
	sc.fieldStrings(o)
	sc.cutter.cut()
	o.Namespace, o.Name = "", o.Key
	if n := len(sc.namespace); n > 0 {
		o.Namespace, o.Name = o.Key[:n], o.Key[n+1:]
	}
	return o, nil
}

func (sc *scan) identity(o *Object) {
	c := &sc.cutter
	if len(sc.namespace) > 0 {
		c.join(&o.Key, sc.namespace, sc.name)
	} else {
		c.add(&o.Key, sc.name)
	}
	c.add(&o.UID, sc.uid)
}

func (sc *scan) labelStrings(o *Object) {
	if len(sc.labels) == 0 {
		return
	}
	shared := sc.schema.strings()
	o.Labels = make(Labels, len(sc.labels))
	for i, l := range sc.labels {
		sc.cutter.share(shared, &o.Labels[i].Key, l.key)
		sc.cutter.share(shared, &o.Labels[i].Value, l.value)
	}
}

func (sc *scan) fieldStrings(o *Object) {
	specs := sc.schema.specs
	if len(specs) == 0 {
		return
	}
	shared := sc.schema.strings()
	o.Fields = make([]string, len(specs))
	for i := range specs {
		f := &specs[i]
		value := sc.value(f.slot)
		if len(value) == 0 {
			value = sc.value(f.elseSlot)
		}
		if len(value) == 0 {
			o.Fields[i] = f.kind.zero()
			continue
		}
		sc.cutter.share(shared, &o.Fields[i], value)
	}
}

func (sc *scan) value(slot int) []byte {
	if slot == noSlot {
		return nil
	}
	return sc.values[slot]
}

// sortLabels sorts by key and keeps the last of equal keys. Encoders write maps
// sorted, so this is one pass as a rule.
func (sc *scan) sortLabels() {
	l := sc.labels
	for i := 1; i < len(l); i++ {
		for k := i; k > 0 && bytes.Compare(l[k-1].key, l[k].key) > 0; k-- {
			l[k-1], l[k] = l[k], l[k-1]
		}
	}
	kept := l[:0]
	for i := range l {
		if i+1 < len(l) && bytes.Equal(l[i].key, l[i+1].key) {
			continue
		}
		kept = append(kept, l[i])
	}
	sc.labels = kept
}

// parseRV parses a resource version without converting it to a string first.
func parseRV(b []byte) (uint64, error) {
	var v uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || v > (1<<64-1-d)/10 {
			return 0, fmt.Errorf("metadata.resourceVersion: %w", &strconv.NumError{
				Func: "ParseUint", Num: string(b), Err: strconv.ErrSyntax})
		}
		v = v*10 + d
	}
	return v, nil
}

// cutter collects strings and makes them all of one allocation.
type cutter struct {
	pieces []piece
	size   int
}

// piece is one string to come: first, or first/second.
type piece struct {
	target        *string
	first, second []byte
}

func (c *cutter) add(target *string, text []byte) {
	if len(text) > 0 {
		c.pieces = append(c.pieces, piece{target: target, first: text})
		c.size += len(text)
	}
}

// join adds first + "/" + second.
func (c *cutter) join(target *string, first, second []byte) {
	c.pieces = append(c.pieces, piece{target, first, second})
	c.size += len(first) + 1 + len(second)
}

// share sets target to the shared string if there is one, else adds it.
func (c *cutter) share(t *interner, target *string, text []byte) {
	if s, ok := t.get(text); ok {
		*target = s
		return
	}
	c.add(target, text)
}

func (c *cutter) cut() {
	var all strings.Builder
	all.Grow(c.size)
	for _, p := range c.pieces {
		all.Write(p.first)
		if p.second != nil {
			all.WriteByte('/')
			all.Write(p.second)
		}
	}
	rest := all.String()
	for _, p := range c.pieces {
		n := len(p.first)
		if p.second != nil {
			n += 1 + len(p.second)
		}
		*p.target, rest = rest[:n], rest[n:]
	}
}
