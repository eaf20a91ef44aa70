package usage

import (
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/writertest"
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

func TestWritersDeliverWhatTheyAccept(t *testing.T) {
	by := New(Options{})
	for name, wrap := range map[string]func(w api.StreamWriter) api.StreamWriter{
		"counted": func(w api.StreamWriter) api.StreamWriter {
			return startedWith(w, func(s api.Stream) api.Stream { return by.CountStream(s, Client{}, StreamOptions{}) })
		},
		"counted, unshared": func(w api.StreamWriter) api.StreamWriter {
			return startedWith(struct{ api.StreamWriter }{w}, func(s api.Stream) api.Stream { return by.CountStream(s, Client{}, StreamOptions{}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := writertest.Options{Limits: []int{32 << 10, 64 << 10, 1 << 20}, Deliveries: 200}
			writertest.Run(t, o, func(*testing.T) writertest.Pipe {
				p := writertest.Memory()
				p.Writer = wrap(p.Writer)
				return p
			})
		})
	}
}
