package object

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// scan is one scan of an object's bytes, with the memory to build an Object from it. Scans are
// pooled by their schema.
type scan struct {
	encoding.Scan
	schema *Schema
	cutter cutter
	key    []byte // scratch
}

// scan returns a scan from the pool. release puts it back.
func (s *Schema) scan(raw []byte) *scan {
	sc, _ := s.scans.Get().(*scan)
	if sc == nil {
		sc = &scan{schema: s, Scan: encoding.Scan{Fields: s.root, Values: make([][]byte, s.slots)}}
	}
	sc.Raw = raw
	return sc
}

// maxReused is the maximum number of labels for which a pooled scan retains memory.
const maxReused = 256

// release drops everything that points into raw or into the object.
func (sc *scan) release() {
	if cap(sc.Labels) > maxReused {
		return
	}
	sc.Reset()
	clear(sc.cutter.pieces)
	sc.cutter = cutter{pieces: sc.cutter.pieces[:0]}
	sc.schema.scans.Put(sc)
}

// object builds the Object of a finished scan. Strings that no other object is likely to have are
// slices of one backing string.
func (sc *scan) object() (*Object, error) {
	if len(sc.Name) == 0 {
		return nil, errors.New("metadata.name is missing")
	}
	if len(sc.ResourceVersion) == 0 {
		return nil, encoding.ErrNoVersion
	}
	rv, err := strconv.ParseUint(string(sc.ResourceVersion), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("metadata.resourceVersion: %w", err)
	}
	sc.sortLabels()
	o := &Object{
		RV: rv, CreationUnix: sc.Creation,
		Encoded: sc.Encoded, ListOffset: sc.ListOffset,
		ID: lastID.Add(1),
	}
	sc.key = sc.key[:0]
	if len(sc.Namespace) > 0 {
		sc.key = append(append(sc.key, sc.Namespace...), '/')
	}
	sc.key = append(sc.key, sc.Name...)
	sc.cutter.add(&o.Key, sc.key)
	sc.cutter.add(&o.UID, sc.UID)
	if len(sc.Labels) > 0 {
		shared := sc.schema.shared()
		o.Labels = make(Labels, len(sc.Labels))
		for i, l := range sc.Labels {
			sc.cutter.share(shared, &o.Labels[i].Key, l.Key)
			sc.cutter.share(shared, &o.Labels[i].Value, l.Value)
		}
	}
	sc.fieldStrings(o)
	sc.cutter.cut()
	o.uidHash = shard.Hash(o.UID)
	o.Namespace, o.Name = "", o.Key
	if n := len(sc.Namespace); n > 0 {
		o.Namespace, o.Name = o.Key[:n], o.Key[n+1:]
	}
	return o, nil
}

func (sc *scan) fieldStrings(o *Object) {
	specs := sc.schema.specs
	if len(specs) == 0 {
		return
	}
	shared := sc.schema.shared()
	o.Fields = make([]string, len(specs))
	for i := range specs {
		f := &specs[i]
		value := sc.value(f.slot)
		if len(value) == 0 {
			value = sc.value(f.elseSlot)
		}
		if len(value) == 0 {
			o.Fields[i] = f.kind.Zero()
			continue
		}
		sc.cutter.share(shared, &o.Fields[i], value)
	}
}

func (sc *scan) value(slot int) []byte {
	if slot == encoding.NoSlot {
		return nil
	}
	return sc.Values[slot]
}

// sortLabels sorts by key and keeps the last of equal keys. Encoders write sorted maps, so this is
// usually one pass.
func (sc *scan) sortLabels() {
	l := sc.Labels
	slices.SortStableFunc(l, func(a, b encoding.Label) int { return bytes.Compare(a.Key, b.Key) })
	filtered := l[:0]
	for i := range l {
		if i+1 < len(l) && bytes.Equal(l[i].Key, l[i+1].Key) {
			continue
		}
		filtered = append(filtered, l[i])
	}
	sc.Labels = filtered
}

// cutter collects strings and allocates them together.
type cutter struct {
	pieces []piece
	size   int
}

// piece is one string to be allocated.
type piece struct {
	target *string
	text   []byte
}

func (c *cutter) add(target *string, text []byte) {
	if len(text) > 0 {
		c.pieces = append(c.pieces, piece{target, text})
		c.size += len(text)
	}
}

// share sets target to the shared string if there is one, otherwise adds it.
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
		all.Write(p.text)
	}
	rest := all.String()
	for _, p := range c.pieces {
		n := len(p.text)
		*p.target, rest = rest[:n], rest[n:]
	}
}
