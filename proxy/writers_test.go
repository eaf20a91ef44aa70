package proxy

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// startedWith starts a stream of stream's making with w and returns the writer that its source gets.
func startedWith(w api.StreamWriter, wrap func(api.Stream) api.Stream) api.StreamWriter {
	source := &writerOf{}
	wrap(source).Start(w)
	return source.w
}

// writerOf is a stream that keeps its writer.
type writerOf struct{ w api.StreamWriter }

func (s *writerOf) Start(w api.StreamWriter) { s.w = w }
func (s *writerOf) Stop()                    {}

// piecesWriter collects a delivery as a collapsed response does, and writes the copy.
type piecesWriter struct {
	api.StreamWriter
	rng *rand.Rand
}

func (w *piecesWriter) WriteFrames(frames [][]byte) error {
	p := pieces{max: 1 << 30, reserve: func(int64) bool { return true }}
	if w.rng.IntN(2) == 0 {
		p.grow(w.rng.IntN(firstPiece))
	}
	for _, f := range frames {
		if n, err := p.Write(f); err != nil || n != len(f) {
			return io.ErrShortWrite
		}
	}
	_, err := p.WriteTo(streamTo{w.StreamWriter})
	return err
}

// streamTo is an io.Writer to a stream.
type streamTo struct{ w api.StreamWriter }

func (s streamTo) Write(p []byte) (int, error) { return len(p), s.w.WriteFrames([][]byte{p}) }

func TestWritersDeliverWhatTheyAccept(t *testing.T) {
	by := usage.New(usage.Options{Processor: usage.NewProcessor()})
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	for name, wrap := range map[string]func(w api.StreamWriter) api.StreamWriter{
		"counted": func(w api.StreamWriter) api.StreamWriter {
			return startedWith(w, func(s api.Stream) api.Stream { return countStream(s, by, usage.Client{}, usage.StreamOptions{}) })
		},
		"counted, unshared": func(w api.StreamWriter) api.StreamWriter {
			return startedWith(struct{ api.StreamWriter }{w}, func(s api.Stream) api.Stream { return countStream(s, by, usage.Client{}, usage.StreamOptions{}) })
		},
		"collapsed": func(w api.StreamWriter) api.StreamWriter { return &piecesWriter{w, rng} },
	} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: []int{firstPiece, 2 * firstPiece, 32 << 10, 64 << 10, largestPiece}, Deliveries: 200}
			writertest.Run(t, o, func(*testing.T) writertest.Pipe {
				p := writertest.Memory()
				p.Writer = wrap(p.Writer)
				return p
			})
		})
	}
}

// TestPiecesGrowFromNothing: room for 0 bytes, as for an announced length of 0, does not keep a piece from being added.
func TestPiecesGrowFromNothing(t *testing.T) {
	p := pieces{max: 1 << 20, reserve: func(int64) bool { return true }}
	p.grow(0)
	if n, err := p.Write([]byte("text")); n != 4 || err != nil || len(p.all) != 2 {
		t.Errorf("%d bytes written, %v, in %d pieces", n, err, len(p.all))
	}
}
