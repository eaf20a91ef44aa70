package form

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

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
		w.f.addCompressed(w.watch.r.coder.AppendFrame(nil, w.watch.coding, pieces.MinCompressed, frames))
	} else {
		first := len(w.f.pieces.List)
		w.f.pieces.List = append(w.f.pieces.List, frames...)
		w.watch.encode(&w.f, first)
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

// decoded decompresses incrementally what a client receives.
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
			o := writertest.Options{Limits: []int{pieces.MinCompressed, pieces.MaxStored, chunks.Small}, Deliveries: 300}
			writertest.Run(t, o, func(t *testing.T) writertest.Pipe {
				p := writertest.Memory()
				p.Client = decoded(t, coding, p.Client)
				p.Writer = &compressedWriter{
					StreamWriter: p.Writer, rng: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // reproducible
					watch: Watch{r: &Renderer{coder: pieces.New()}, coding: coding},
				}
				return p
			})
		})
	}
}
