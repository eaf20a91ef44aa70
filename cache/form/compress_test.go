package form

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestCompressedStream concatenates the parts of streams in any order, with and without events
// shared with other watches.
func TestCompressedStream(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		w := &Watch{r: &Renderer{coder: pieces.New()}, coding: coding}
		var f Frames
		var want, got []byte
		send := func() {
			for _, piece := range f.List() {
				got = append(got, piece...)
			}
			w.Sent(&f)
		}
		for range 60 {
			w.Begin(&f)
			sent := len(want)
			for range random.IntN(3) {
				texts := make([][]byte, random.IntN(4))
				for i := range texts {
					texts[i] = bytes.Repeat([]byte{byte('a' + random.IntN(26))}, random.IntN(3)*random.IntN(50_000))
					want = append(want, texts[i]...)
				}
				if random.IntN(2) == 0 {
					f.addCompressed(w.r.coder.AppendFrame(nil, coding, pieces.MinCompressed, texts))
					continue
				}
				first := len(f.pieces.List)
				f.pieces.List = append(f.pieces.List, texts...)
				w.encode(&f, first)
			}
			if random.IntN(4) > 0 { // otherwise it is dropped unsent
				send()
			} else {
				want = want[:sent]
			}
		}
		w.End(&f)
		send()
		if text := decompress(t, coding, got); text != string(want) {
			t.Errorf("%v: %d bytes, want %d", coding, len(text), len(want))
		}
	}
}

// pieceBench makes lists of objects without a collection.
type pieceBench struct {
	r      *Renderer
	schema *object.Schema
	objs   []*object.Object
	next   uint64
}

func newPieceBench(n int) *pieceBench {
	r := &Renderer{coder: pieces.New(), writers: chunks.NewPool(), metrics: newMetrics()}
	b := &pieceBench{r: r, schema: object.SchemaFor(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}), next: 1}
	for i := range n {
		b.objs = append(b.objs, b.object(fmt.Sprintf("name-%05d", i), 2000))
	}
	return b
}

func (b *pieceBench) object(name string, size int) *object.Object {
	b.next++
	raw := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":"%d"},"data":{"a":"%s"}}`,
		name, b.next, strings.Repeat(name, size/len(name)))
	o, err := b.schema.Decode(api.JSON, []byte(raw))
	if err != nil {
		panic(err)
	}
	return o
}

// items returns f as the form of the items of a list.
func items(f Form) Form {
	if f.common().rep.Pretty {
		return indented(f)
	}
	return f
}

func (b *pieceBench) compress(f Form, coding api.Compression, old []piece) *compressed {
	moment, _ := f.moment(place{})
	c := compressor{coder: b.r.coder, form: items(f), objs: sliceOfObjects(b.objs), text: &chunks.Writer{}, coding: coding, moment: moment.UnixNano(), old: old}
	return c.build()
}

// text returns the items before compression.
func (b *pieceBench) text(f Form) string {
	var c chunks.Writer
	for i, o := range b.objs {
		if i > 0 {
			c.CopyString(f.separator())
		}
		f.item(&c, i, o)
	}
	return string(c.Buf)
}

func (b *pieceBench) check(t *testing.T, f Form, coding api.Compression, z *compressed) {
	t.Helper()
	f = items(f)
	before, after := b.r.coder.Enclose(coding, []byte("HEAD["), []byte("]TAIL"), z.raw, z.crc)
	body := &compressedBody{r: b.r, coding: coding, before: before, after: after, separator: b.r.coder.Literal(coding, f.separator()), items: z}
	var out bytes.Buffer
	if n, err := body.WriteTo(&out); err != nil || n != int64(len(before)+len(after))+z.size {
		t.Fatalf("wrote %d, want %d: %v", n, int64(len(before)+len(after))+z.size, err)
	}
	want := "HEAD[" + b.text(f) + "]TAIL"
	if got := decompress(t, coding, out.Bytes()); got != want {
		t.Fatalf("%v: %d bytes, want %d", coding, len(got), len(want))
	}
}

func decompress(t *testing.T, coding api.Compression, data []byte) string {
	t.Helper()
	var r io.Reader
	var err error
	if coding == api.Gzip {
		r, err = gzip.NewReader(bytes.NewReader(data))
	} else {
		r, err = zstd.NewReader(bytes.NewReader(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// made counts the pieces of z that are not among old.
func made(z *compressed, old []piece) int {
	known := map[*byte]bool{}
	for i := range old {
		known[&old[i].data[0]] = true
	}
	n := 0
	for i := range z.pieces {
		if !known[&z.pieces[i].data[0]] {
			n++
		}
	}
	return n
}

// TestPiecesAreReused changes lists at random: the result must decode to the list, and only the
// runs around a change may be compressed again.
func TestPiecesAreReused(t *testing.T) {
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		for _, rep := range []api.Representation{{}, {Pretty: true}, {Encoding: api.Protobuf}} {
			b := newPieceBench(600)
			f := b.r.For(&Resource{}, rep.Encoding, rep)
			rnd := rand.New(rand.NewPCG(1, 2))
			z := b.compress(f, coding, nil)
			b.check(t, f, coding, z)
			total := len(z.pieces)
			for range soak.Cases(4, 15) {
				old := z.pieces
				i := rnd.IntN(len(b.objs))
				switch rnd.IntN(3) {
				case 0:
					b.objs[i] = b.object(b.objs[i].Name, 2000)
				case 1:
					b.objs = append(b.objs[:i:i], b.objs[i+1:]...)
				default:
					o := b.object(b.objs[i].Name+"-new", 1800)
					b.objs = append(b.objs[:i+1:i+1], append([]*object.Object{o}, b.objs[i+1:]...)...)
				}
				z = b.compress(f, coding, old)
				b.check(t, f, coding, z)
				// A change touches one run. Adding or removing the end of a run, or moving an end
				// determined by size, touches a few.
				if n := made(z, old); n > 6 {
					t.Errorf("%v %+v: %d of %d pieces made again", coding, rep, n, total)
				}
			}
			b.objs = nil
			b.check(t, f, coding, b.compress(f, coding, z.pieces))
		}
	}
}

// TestRunsReferToTheOneBefore checks that what objects have in common is sent once in gzip, and
// that only a change of the objects that the next run is compressed behind affects that run too.
func TestRunsReferToTheOneBefore(t *testing.T) {
	const common = 10_000
	rnd := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, common)
	for i := range text {
		text[i] = byte('a' + rnd.IntN(26))
	}
	for coding, touched := range map[api.Compression][2]int{api.Gzip: {2, 1}, api.Zstd: {1, 1}} {
		b := newPieceBench(0)
		version := func(i int) *object.Object { return b.object(fmt.Sprintf("%s-%05d", text, i), 0) }
		for i := range 200 {
			b.objs = append(b.objs, version(i))
		}
		f := b.r.For(&Resource{}, api.JSON, api.Representation{})
		z := b.compress(f, coding, nil)
		b.check(t, f, coding, z)
		if len(z.pieces) < 5 || len(z.pieces[0].ids) < 2 {
			t.Fatalf("%d runs, the first of %d", len(z.pieces), len(z.pieces[0].ids))
		}
		if most := int64(3 * common); coding == api.Gzip && z.size > most {
			t.Errorf("%d bytes in %d runs, want at most %d", z.size, len(z.pieces), most)
		}
		for i, changed := range []int{len(z.pieces[0].ids) - 1, 0} {
			b.objs[changed] = version(changed)
			old := z.pieces
			z = b.compress(f, coding, old)
			b.check(t, f, coding, z)
			if n := made(z, old); n != touched[i] {
				t.Errorf("%v, object %d: %d runs made again, want %d", coding, changed, n, touched[i])
			}
		}
	}
}

// TestRunIsRecompressedWhenEarlierAgesChange checks that a run whose ages stay the same is
// compressed again if those of the preceding objects change.
func TestRunIsRecompressedWhenEarlierAgesChange(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	b := newPieceBench(300)
	f := b.r.For(&Resource{Printer: table.NewDefaultPrinter()}, api.JSON, api.Representation{Transform: api.Table, IncludeObject: api.IncludeObjectFull}).(*tables)
	f.at = start
	rows := func(young map[int]bool) {
		f.rows = f.rows[:0]
		for i := range b.objs {
			created := start.Add(-72 * time.Hour)
			if young[i] {
				created = start.Add(-9 * time.Second)
			}
			row, err := table.NewRow([]table.Cell{{Value: b.objs[i].Name}, table.Age(created)}, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			f.rows = append(f.rows, row)
		}
	}
	rows(nil)
	z := b.compress(f, api.Gzip, nil)
	young, at := map[int]bool{}, 0
	for i := range z.pieces { // the last of every other run
		if at += len(z.pieces[i].ids); i%2 == 0 {
			young[at-1] = true
		}
	}
	if len(z.pieces) < 4 {
		t.Fatalf("%d runs", len(z.pieces))
	}
	rows(young)
	z = b.compress(f, api.Gzip, nil)
	f.at = start.Add(time.Second) // 9s, 10s: the preceding ages have changed
	z = b.compress(f, api.Gzip, z.pieces)
	b.check(t, f, api.Gzip, z)
}

// TestTablePiecesExpire checks that pieces of Tables are rebuilt when one of their times renders
// differently.
func TestTablePiecesExpire(t *testing.T) {
	b := newPieceBench(300)
	start := time.Unix(1_700_000_000, 0)
	rep := api.Representation{Transform: api.Table, IncludeObject: api.IncludeObjectFull}
	f := b.r.For(&Resource{Printer: table.NewDefaultPrinter()}, api.JSON, rep).(*tables)
	f.at = start
	for i := range b.objs {
		// The first hundred are young, so their ages change every second.
		created := start.Add(-72 * time.Hour)
		if i < 100 {
			created = start.Add(-10 * time.Second)
		}
		row, err := table.NewRow([]table.Cell{{Value: b.objs[i].Name}, table.Age(created)}, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		f.rows = append(f.rows, row)
	}
	z := b.compress(f, api.Gzip, nil)
	b.check(t, f, api.Gzip, z)
	if !z.contains(start.UnixNano()) || z.contains(start.Add(time.Second).UnixNano()) || z.contains(start.Add(-time.Second).UnixNano()) {
		t.Errorf("usable until %v", time.Unix(0, z.until))
	}
	old := z.pieces
	f.at = start.Add(time.Second)
	z = b.compress(f, api.Gzip, old)
	b.check(t, f, api.Gzip, z)
	if n, total := made(z, old), len(z.pieces); n == 0 || n > total/3+2 {
		t.Errorf("%d of %d pieces made again", n, total)
	}
	if n := made(b.compress(f, api.Gzip, z.pieces), z.pieces); n != 0 {
		t.Errorf("%d pieces made again at the same moment", n)
	}
}

func BenchmarkCompressChange(b *testing.B) {
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		b.Run(coding.String(), func(b *testing.B) {
			p := newPieceBench(5000)
			f := p.r.For(&Resource{}, api.JSON, api.Representation{})
			z := p.compress(f, coding, nil)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 777) % len(p.objs)
				p.objs[i] = p.object(p.objs[i].Name, 2000)
				z = p.compress(f, coding, z.pieces)
			}
		})
	}
}
