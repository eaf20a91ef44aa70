package encoding_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

func pod(rv string) encodingtest.Object {
	pod := encodingtest.PodList(1, 300).Items[0]
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.ResourceVersion = rv
	return &pod
}

func TestEvents(t *testing.T) {
	events := []struct {
		typ    string
		object encodingtest.Object
	}{
		{"ADDED", pod("1")}, {"MODIFIED", pod("2")}, {"BOOKMARK", bookmark("3", true)},
		{"DELETED", pod("4")}, {"BOOKMARK", bookmark("5", false)}, {"ERROR", status()},
	}
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		var body []byte
		for _, e := range events {
			body = append(body, encodingtest.Frame(t, enc, e.typ, e.object)...)
		}
		for name, r := range encodingtest.Readers(body) {
			t.Run(name, func(t *testing.T) {
				got := codec.NewEvents(r, testLimit)
				for i, want := range events {
					e, err := got.Next()
					if err != nil {
						t.Fatalf("event %d: %v", i, err)
					}
					if e.Type.String() != want.typ {
						t.Errorf("event %d is %s", i, e.Type)
					}
					encodingtest.Same(t, want.typ, e.Object, encodingtest.Raw(t, enc, want.object))
				}
				if _, err := got.Next(); err != io.EOF {
					t.Errorf("at the end: %v", err)
				}
			})
		}
	})
}

func TestTruncatedEvents(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		one := bytes.TrimSuffix(encodingtest.Frame(t, enc, "ADDED", pod("1")), []byte("\n"))
		for i := 1; i < len(one); i++ {
			if _, err := codec.NewEvents(bytes.NewReader(one[:i]), testLimit).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	})
}

// TestLargeEvents: an event above the limit is rejected, one below it is read, and so is the small
// one after it.
func TestLargeEvents(t *testing.T) {
	large := encodingtest.PodList(1, 0).Items[0]
	large.Annotations["x"] = strings.Repeat("y", 4*encoding.KeepBuffer)
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		body := append(encodingtest.Frame(t, enc, "ADDED", &large), encodingtest.Frame(t, enc, "BOOKMARK", bookmark("2", false))...)
		if _, err := codec.NewEvents(bytes.NewReader(body), encoding.KeepBuffer).Next(); !errors.Is(err, encoding.ErrTooLarge) {
			t.Errorf("above the limit: %v", err)
		}
		events := codec.NewEvents(bytes.NewReader(body), 64*encoding.KeepBuffer)
		for range 2 {
			if _, err := events.Next(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	for enc, codec := range codecs {
		b.Run(enc.String(), func(b *testing.B) {
			pod := &encodingtest.RealisticPods(1).Items[0]
			pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			event := encodingtest.Frame(b, enc, "MODIFIED", pod)
			events := codec.NewEvents(&endless{event: event}, testLimit)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless repeats one event.
type endless struct {
	event []byte
	at    int
}

func (r *endless) Read(p []byte) (int, error) {
	n := copy(p, r.event[r.at:])
	r.at = (r.at + n) % len(r.event)
	return n, nil
}
