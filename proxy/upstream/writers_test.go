package upstream

import (
	"bytes"
	"io"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
)

// bodyWriter makes deliveries the body of an upstream's response.
type bodyWriter struct{ *io.PipeWriter }

func (b bodyWriter) WriteFrames(frames [][]byte) error {
	_, err := b.Write(bytes.Join(frames, nil))
	return err
}

func (b bodyWriter) Close() { _ = b.PipeWriter.Close() }
func (b bodyWriter) Abort() { _ = b.CloseWithError(io.ErrUnexpectedEOF) }

func TestStreamsPassOnWhatTheyRead(t *testing.T) {
	o := writertest.Options{Limits: []int{minStreamBuffer, 4 * minStreamBuffer, maxStreamBuffer}, Deliveries: 300}
	writertest.Run(t, o, func(*testing.T) writertest.Pipe {
		p := writertest.Memory()
		r, w := io.Pipe()
		go func(to api.StreamWriter) {
			s := &stream{body: r}
			if err := s.copy(to); err == io.EOF { //nolint:errorlint // Readers return it bare.
				to.Close()
			} else {
				to.Abort()
			}
		}(p.Writer)
		p.Writer = bodyWriter{w}
		return p
	})
}
