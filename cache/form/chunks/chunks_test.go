package chunks

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

// writes records the sizes of writes.
type writes struct{ sizes []int }

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return len(p), nil
}

func TestChunks(t *testing.T) {
	var out bytes.Buffer
	var sizes writes
	var want bytes.Buffer
	c := Writer{w: writerPair{&out, &sizes}, Buf: make([]byte, 0, 100)}
	put := func(s string) {
		want.WriteString(s)
		switch len(s) % 3 {
		case 0:
			c.Copy([]byte(s))
		case 1:
			c.CopyString(s)
		default:
			c.Append(len(s), func(b []byte) []byte { return append(b, s...) })
		}
	}
	for n := range 60 {
		put(strings.Repeat(string(rune('a'+n%26)), n))
	}
	put(strings.Repeat("long", 300))
	c.Copy(bytes.Repeat([]byte("x"), 1000))
	want.Write(bytes.Repeat([]byte("x"), 1000))
	c.Flush()
	if c.Err != nil || c.Written != int64(want.Len()) || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("wrote %d of %d: %v", c.Written, want.Len(), c.Err)
	}
	if len(sizes.sizes) > 40 {
		t.Errorf("%d writes: %v", len(sizes.sizes), sizes.sizes)
	}
}

type writerPair struct {
	a *bytes.Buffer
	b *writes
}

func (p writerPair) Write(b []byte) (int, error) {
	_, _ = p.b.Write(b)
	return p.a.Write(b)
}

// listWriter accepts bytes in pieces.
type listWriter struct {
	bytes.Buffer
	lists int
}

func (w *listWriter) WritePieces(pieces [][]byte) (int, error) {
	w.lists++
	n := 0
	for _, p := range pieces {
		n += len(p)
		w.Write(p)
	}
	return n, nil
}

// TestChunksInPieces checks that copied and referred bytes keep their order.
func TestChunksInPieces(t *testing.T) {
	var out listWriter
	var want bytes.Buffer
	c := To(&out, make([]byte, 0, 3000))
	for n := range 500 {
		p := bytes.Repeat([]byte{byte('a' + n%26)}, n*7%2500)
		want.Write(p)
		switch n % 4 {
		case 0:
			c.Copy(p)
		case 1:
			c.CopyString(string(p))
		case 2:
			c.Append(len(p), func(b []byte) []byte { return append(b, p...) })
		default:
			c.Refer(p)
		}
	}
	for range 2 * Size / 2000 {
		c.Refer(want.Bytes()[:2000])
		want.Write(want.Bytes()[:2000])
	}
	c.Flush()
	if c.Err != nil || c.Written != int64(want.Len()) || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("wrote %d of %d: %v", c.Written, want.Len(), c.Err)
	}
	if out.lists == 0 {
		t.Error("nothing was written in pieces")
	}
}

// TestBuffersShrink checks that bodies hold little memory each while many are being written.
func TestBuffersShrink(t *testing.T) {
	p := NewPool()
	var all []*Writer
	for range budget / Size {
		all = append(all, p.Get(nil, true))
	}
	large := all[len(all)-1]
	small := p.Get(nil, true)
	if cap(large.Buf) != Size || cap(small.Buf) != Small {
		t.Errorf("the last large one has %d bytes, the next %d", cap(large.Buf), cap(small.Buf))
	}
	large.Copy(make([]byte, 2*Size)) // grows
	for _, c := range append(all, small) {
		p.Put(c)
	}
	if held := p.held.Load(); held != 0 {
		t.Errorf("%d bytes are left over", held)
	}
	if c := p.Get(nil, true); cap(c.Buf) != Size {
		t.Errorf("then %d bytes", cap(c.Buf))
	}
}

// framesTo is an io.Writer and api.PiecesWriter that writes to a stream.
type framesTo struct{ w api.StreamWriter }

func (f framesTo) Write(p []byte) (int, error) { return f.WritePieces([][]byte{p}) }

func (f framesTo) WritePieces(pieces [][]byte) (n int, err error) {
	if err := f.w.WriteFrames(pieces); err != nil {
		return 0, err
	}
	for _, p := range pieces {
		n += len(p)
	}
	return n, nil
}

// chunksWriter writes deliveries through chunks with all of its methods.
type chunksWriter struct {
	api.StreamWriter
	c   Writer
	rng *rand.Rand
}

func (w *chunksWriter) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		switch w.rng.IntN(4) {
		case 0:
			w.c.Copy(f)
		case 1:
			w.c.Refer(append([]byte(nil), f...)) // bytes that never change
		case 2:
			w.c.CopyString(string(f[:min(len(f), Small)]))
			w.c.Copy(f[min(len(f), Small):])
		case 3:
			w.c.Append(len(f), func(b []byte) []byte { return append(b, f...) })
		}
	}
	return w.c.Err
}

func (w *chunksWriter) Close() {
	w.c.Flush()
	w.StreamWriter.Close()
}

func TestChunksWriteAllBytes(t *testing.T) {
	for name, toPieces := range map[string]bool{"to a writer": false, "to a writer of pieces": true} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: []int{leastPiece, Small, Size}, Deliveries: 500, Held: true}
			writertest.Run(t, o, func(*testing.T) writertest.Pipe {
				p := writertest.Memory()
				var dst io.Writer = framesTo{p.Writer}
				if !toPieces {
					dst = struct{ io.Writer }{dst}
				}
				p.Writer = &chunksWriter{p.Writer, To(dst, make([]byte, 0, Small)), rand.New(rand.NewPCG(1, 2))} //nolint:gosec // reproducible
				return p
			})
		})
	}
}

// failingOnce fails its second write.
type failingOnce struct{ writes int }

var errOnce = errors.New("the second write fails")

func (f *failingOnce) Write(p []byte) (int, error) {
	if f.writes++; f.writes == 2 {
		return 0, errOnce
	}
	return len(p), nil
}

// TestChunksWriteNothingAfterAnError checks that nothing follows a failed write, because a body
// with a gap would look complete.
func TestChunksWriteNothingAfterAnError(t *testing.T) {
	dst := &failingOnce{}
	c := To(dst, make([]byte, 0, Small))
	c.Copy(make([]byte, Small))
	for range 5 {
		c.Copy(make([]byte, 3*Small))
		c.CopyString("x")
	}
	c.Flush()
	if !errors.Is(c.Err, errOnce) || dst.writes != 2 {
		t.Errorf("%d writes, error %v", dst.writes, c.Err)
	}
}
