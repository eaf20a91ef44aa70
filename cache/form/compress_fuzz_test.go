package form

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// FuzzReusedPieces changes a list, two bytes of input per step, and compresses it each time with
// the previous pieces. The text must be that of the objects, whatever was added or removed, exceeds
// the window, aged or was reordered.
func FuzzReusedPieces(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7})
	f.Add([]byte{4, 1, 4, 2, 4, 3, 0, 2, 1, 2, 0, 1})
	f.Add([]byte{5, 9, 0, 0, 5, 9, 0, 200, 6, 1, 6, 3, 1, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 40 {
			return
		}
		for _, rep := range []api.Representation{{}, {Pretty: true}, {Encoding: api.Protobuf}, {Transform: api.Table, IncludeObject: api.IncludeObjectFull}} {
			changed := newChangedList(rep)
			for _, events := range []bool{false, true} {
				if events && (rep.Pretty || rep.Transform == api.Table) {
					continue
				}
				var gzip, zstd *compressed
				for i := 0; i+1 < len(data); i += 2 {
					changed.step(data[i], int(data[i+1]))
					gzip = changed.check(t, events, api.Gzip, gzip)
					if i%8 == 0 {
						zstd = changed.check(t, events, api.Zstd, zstd)
					}
				}
			}
		}
	})
}

// changedList is a list of objects of all sizes.
type changedList struct {
	*pieceBench
	rep     api.Representation
	res     *Resource
	created map[*object.Object]time.Time
	at      time.Time
	random  *rand.Rand
}

func newChangedList(rep api.Representation) *changedList {
	l := &changedList{
		pieceBench: newPieceBench(0), rep: rep, res: &Resource{Printer: table.NewDefaultPrinter()},
		created: map[*object.Object]time.Time{}, at: time.Unix(1_700_000_000, 0), random: rand.New(rand.NewPCG(1, 2)),
	}
	for i := range 150 {
		l.objs = append(l.objs, l.make(fmt.Sprintf("name-%03d", i), 20*i))
	}
	l.objs = append(l.objs, l.make("name-150", 40<<10))
	return l
}

// make returns an object that has parts in common with others.
func (l *changedList) make(name string, size int) *object.Object {
	var text strings.Builder
	for text.Len() < size {
		text.WriteString(strings.Repeat(string(rune('a'+l.random.IntN(4))), 1+l.random.IntN(300)))
		text.WriteString(name[:l.random.IntN(len(name))])
	}
	o := l.object(name, 0)
	raw := bytes.Replace(o.Raw, []byte(`"a":"`), []byte(`"a":"`+text.String()), 1)
	o, err := l.schema.Decode(api.JSON, raw)
	if err != nil {
		panic(err)
	}
	l.created[o] = l.at.Add(-time.Duration(l.random.IntN(200)) * time.Second)
	return o
}

func (l *changedList) step(what byte, where int) {
	i := 0
	if n := len(l.objs); n > 0 {
		i = where * n / 256
	}
	insert := func(o *object.Object) {
		l.objs = append(l.objs[:i:i], append([]*object.Object{o}, l.objs[i:]...)...)
	}
	switch {
	case what%8 == 4:
		insert(l.make(fmt.Sprintf("name-%03d-%d", i, l.next), pieces.MaxKnown+where*100))
	case what%8 == 5:
		l.at = l.at.Add(time.Duration(where) * time.Second)
	case len(l.objs) == 0 || what%8 == 2:
		insert(l.make(fmt.Sprintf("name-%03d-%d", i, l.next), where*10))
	case what%8 == 0:
		l.objs[i] = l.make(l.objs[i].Name, where*20)
	case what%8 == 1:
		l.objs = append(l.objs[:i:i], l.objs[i+1:]...)
	case what%8 == 3:
		l.objs = append(l.objs[i:len(l.objs):len(l.objs)], l.objs[:i]...)
	case what%8 == 6: // a different selection
		l.objs = append(l.objs[:i:i], l.objs[min(len(l.objs), i+where/8):]...)
	default:
		j := l.random.IntN(len(l.objs))
		objs := append([]*object.Object(nil), l.objs...)
		objs[i], objs[j] = objs[j], objs[i]
		l.objs = objs
	}
}

// check compresses the list with the pieces of old.
func (l *changedList) check(t *testing.T, events bool, coding api.Compression, old *compressed) *compressed {
	t.Helper()
	f := l.r.For(l.res, l.rep.Encoding, l.rep)
	if tables, ok := f.(*tables); ok {
		tables.at = l.at
		for _, o := range l.objs {
			row, err := table.NewRow([]table.Cell{{Value: o.Name}, table.Age(l.created[o])}, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			tables.rows = append(tables.rows, row)
		}
	}
	if f = items(f); events {
		f = &initialEvents{Form: f}
	}
	c := compressor{coder: l.r.coder, form: f, objs: sliceOfObjects(l.objs), text: &chunks.Writer{}, coding: coding, moment: l.at.UnixNano()}
	if old != nil {
		c.old = old.pieces
	}
	z := c.build()
	before, after := l.r.coder.Enclose(coding, []byte("HEAD["), []byte("]TAIL"), z.raw, z.crc)
	body := &compressedBody{r: l.r, rep: l.rep, coding: coding, before: before, after: after, separator: l.r.coder.Literal(coding, f.separator()), items: z}
	var out bytes.Buffer
	if n, err := body.WriteTo(&out); err != nil || n != int64(len(before)+len(after))+z.size {
		t.Fatalf("wrote %d, want %d: %v", n, int64(len(before)+len(after))+z.size, err)
	}
	if got, want := decompress(t, coding, out.Bytes()), "HEAD["+l.text(f)+"]TAIL"; got != want {
		t.Fatalf("%v, %+v: %d bytes, want %d", coding, l.rep, len(got), len(want))
	}
	return z
}
