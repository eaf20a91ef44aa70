package consistency

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

// boundedWriter collects a delivery as a collapsed response does, and writes the copy.
type boundedWriter struct {
	api.StreamWriter
	rng *rand.Rand
}

func (w *boundedWriter) WriteFrames(frames [][]byte) error {
	p := bounded{max: 1 << 30, reserve: func(int64) bool { return true }}
	if w.rng.IntN(2) == 0 {
		_ = p.grow(int64(w.rng.IntN(firstPiece)))
	}
	for _, f := range frames {
		if n, err := p.Write(f); err != nil || n != len(f) {
			return io.ErrShortWrite
		}
	}
	return w.StreamWriter.WriteFrames([][]byte{p.bytes})
}

// TestBoundedGrowsFromNothing: room for 0 bytes, as for an announced length of 0, does not keep bytes from being added.
func TestBoundedGrowsFromNothing(t *testing.T) {
	p := bounded{max: 1 << 20, reserve: func(int64) bool { return true }}
	_ = p.grow(0)
	if n, err := p.Write([]byte("text")); n != 4 || err != nil || string(p.bytes) != "text" {
		t.Errorf("%d bytes written, %v: %q", n, err, p.bytes)
	}
}

func TestBoundedDeliversWhatItAccepts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	o := writertest.Options{Limits: []int{firstPiece, 2 * firstPiece, 1 << 20}, Deliveries: 200}
	writertest.Run(t, o, func(*testing.T) writertest.Pipe {
		p := writertest.Memory()
		p.Writer = &boundedWriter{p.Writer, rng}
		return p
	})
}
