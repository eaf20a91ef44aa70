package response

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

// linesWriter gives each delivery as lines in hexadecimal digits, cut anywhere.
type linesWriter struct {
	api.StreamWriter
	rng *rand.Rand
}

func (w *linesWriter) WriteFrames(frames [][]byte) error {
	var line []byte
	for part := range slices.Chunk(bytes.Join(frames, nil), MaxEvent/2) {
		line = append(hex.AppendEncode(line, part), '\n')
	}
	for len(line) > 0 {
		n := w.rng.IntN(len(line)) + 1
		cut := w.rng.IntN(n + 1)
		if err := w.StreamWriter.WriteFrames([][]byte{line[:cut], line[cut:n]}); err != nil {
			return err
		}
		line = line[n:]
	}
	return nil
}

func TestRewrittenStreamDeliversWhatItAccepts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	o := writertest.Options{Limits: []int{32 << 10, maxReusedEvent / 2, maxReusedEvent, 1 << 20}, Deliveries: 200}
	writertest.Run(t, o, func(*testing.T) writertest.Pipe {
		p := writertest.Memory()
		p.Writer = &linesWriter{&EventRewriter{
			StreamWriter: p.Writer, Rewrite: func(event []byte) ([]byte, error) { return hex.AppendDecode(nil, event) },
		}, rng}
		return p
	})
}
