package form

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

// framesTo is an io.Writer and api.PiecesWriter to a stream.
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

// chunksWriter writes deliveries through chunks, by all of its methods.
type chunksWriter struct {
	api.StreamWriter
	c   chunks
	rng *rand.Rand
}

func (w *chunksWriter) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		switch w.rng.IntN(4) {
		case 0:
			w.c.write(f)
		case 1:
			w.c.refer(append([]byte(nil), f...)) // bytes that never change
		case 2:
			w.c.writeString(string(f[:min(len(f), smallChunk)]))
			w.c.write(f[min(len(f), smallChunk):])
		case 3:
			w.c.append(len(f), func(b []byte) []byte { return append(b, f...) })
		}
	}
	return w.c.err
}

func (w *chunksWriter) Close() {
	w.c.flush()
	w.StreamWriter.Close()
}

func TestChunksWriteWhatTheyAreGiven(t *testing.T) {
	for name, toPieces := range map[string]bool{"to a writer": false, "to a writer of pieces": true} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: []int{leastPiece, smallChunk, chunkSize}, Deliveries: 500, Held: true}
			writertest.Run(t, o, func(*testing.T) writertest.Pipe {
				p := writertest.Memory()
				var dst io.Writer = framesTo{p.Writer}
				if !toPieces {
					dst = struct{ io.Writer }{dst}
				}
				p.Writer = &chunksWriter{p.Writer, chunksTo(dst, make([]byte, 0, smallChunk)), rand.New(rand.NewPCG(1, 2))} //nolint:gosec // reproducible
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

// TestChunksWriteNothingAfterAnError: a body with a gap would look complete.
func TestChunksWriteNothingAfterAnError(t *testing.T) {
	dst := &failingOnce{}
	c := chunksTo(dst, make([]byte, 0, smallChunk))
	c.write(make([]byte, smallChunk))
	for range 5 {
		c.write(make([]byte, 3*smallChunk))
		c.writeString("x")
	}
	c.flush()
	if !errors.Is(c.err, errOnce) || dst.writes != 2 {
		t.Errorf("%d writes, error %v", dst.writes, c.err)
	}
}

// compressedWriter compresses deliveries as the events of a watch.
type compressedWriter struct {
	api.StreamWriter
	watch Watch
	f     Frames
	rng   *rand.Rand
}

func (w *compressedWriter) WriteFrames(frames [][]byte) error {
	w.watch.Begin(&w.f)
	if w.rng.IntN(2) == 0 {
		shared := w.watch.r.coder.appendFrame(nil, w.watch.coding, frames)
		w.f.pieces.List = append(w.f.pieces.List, shared.data())
		w.watch.count(&w.f, shared.crc(), shared.shift(), shared.length())
	} else {
		first := len(w.f.pieces.List)
		w.f.pieces.List = append(w.f.pieces.List, frames...)
		w.watch.encodeFrom(&w.f, first)
	}
	if err := w.StreamWriter.WriteFrames(w.f.List()); err != nil {
		return err
	}
	w.watch.Sent(&w.f)
	return nil
}

func (w *compressedWriter) Close() {
	w.watch.End(&w.f)
	_ = w.StreamWriter.WriteFrames(w.f.List())
	w.StreamWriter.Close()
}

// decoded decompresses what a client receives as it comes.
func decoded(t *testing.T, coding api.Compression, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { _ = pw.CloseWithError(decodeTo(coding, r, pw)) })
	t.Cleanup(func() { _ = pr.Close(); wg.Wait() })
	return pr
}

func decodeTo(coding api.Compression, r io.Reader, to io.Writer) error {
	var decoder io.Reader
	if coding == api.Gzip {
		members, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		members.Multistream(false)
		decoder = members
	} else {
		frames, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer frames.Close()
		decoder = frames
	}
	_, err := io.Copy(to, decoder)
	return err
}

func TestCompressedWatchesDeliverWhatTheyAccept(t *testing.T) {
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		t.Run(fmt.Sprint(coding), func(t *testing.T) {
			o := writertest.Options{Limits: []int{minCompressed, maxStored, smallChunk}, Deliveries: 300}
			writertest.Run(t, o, func(t *testing.T) writertest.Pipe {
				p := writertest.Memory()
				p.Client = decoded(t, coding, p.Client)
				p.Writer = &compressedWriter{
					StreamWriter: p.Writer, rng: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // reproducible
					watch: Watch{r: &Renderer{coder: newCoder()}, coding: coding},
				}
				return p
			})
		})
	}
}
