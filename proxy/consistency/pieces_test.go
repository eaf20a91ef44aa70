package consistency

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

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

// TestPiecesGrowFromNothing: room for 0 bytes, as for an announced length of 0, does not keep a piece from being added.
func TestPiecesGrowFromNothing(t *testing.T) {
	p := pieces{max: 1 << 20, reserve: func(int64) bool { return true }}
	p.grow(0)
	if n, err := p.Write([]byte("text")); n != 4 || err != nil || len(p.all) != 2 {
		t.Errorf("%d bytes written, %v, in %d pieces", n, err, len(p.all))
	}
}

func TestPiecesDeliverWhatTheyAccept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	o := writertest.Options{Limits: []int{firstPiece, 2 * firstPiece, largestPiece}, Deliveries: 200}
	writertest.Run(t, o, func(*testing.T) writertest.Pipe {
		p := writertest.Memory()
		p.Writer = &piecesWriter{p.Writer, rng}
		return p
	})
}
