package json

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

func TestEventsReject(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"NEW","object":{}}`:        "unknown type",
		`{"type":"ADDED"}`:                  "lacks",
		`{"object":{}}`:                     "lacks",
		`{"type":"ADDED","object":"x"}`:     "an object that is an object",
		`[]`:                                "want a watch event",
		`{"type":"ADDED","object":{"a":]}}`: "malformed JSON",
		`{"type":"ADDED","object":{"a":"` + big(2000) + `"}}`:  "larger than the limit of 1000 bytes",
		`{"type":"ADDED","object":{"a":[` + big(2000) + `1]}}`: "larger than the limit of 1000 bytes",
	} {
		_, err := Codec{}.NewEvents(strings.NewReader(body), 1000).Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: error %v, want one about %q", body, err, want)
		}
	}
}

func big(n int) string { return strings.Repeat("1,", n/2) }

// TestLargeEventsDoNotKeepMemory checks that an idle watch has a small buffer after a large event.
func TestLargeEventsDoNotKeepMemory(t *testing.T) {
	large := &encodingtest.PodList(1, 0).Items[0]
	large.Annotations["x"] = strings.Repeat("y", 4*encoding.KeepBuffer)
	frame := encodingtest.Frame(t, api.JSON, "ADDED", large)
	small := encodingtest.Frame(t, api.JSON, "ADDED", encodingtest.Pod(1))
	w := Codec{}.NewEvents(bytes.NewReader(append(frame, small...)), 64*encoding.KeepBuffer).(*events)
	for range 2 {
		if _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.buf) > encoding.KeepBuffer {
		t.Errorf("a buffer of %d bytes is retained", len(w.buf))
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(append(encodingtest.Frame(f, api.JSON, "ADDED", encodingtest.Pod(1)), `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}`...), uint8(7))
	f.Add([]byte(`{"object":{"a":"\\"},"type":"DELETED"}`), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		events := Codec{}.NewEvents(&encodingtest.Portions{B: body, N: int(portion) + 1}, 4096)
		decoder := json.NewDecoder(bytes.NewReader(body))
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			var want struct {
				Type   string          `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if err := decoder.Decode(&want); err != nil {
				return
			}
			// encoding/json ignores the case of keys, and the last one counts.
			if want.Type == e.Type.String() && !bytes.Equal(want.Object, e.Object) && bytes.Count(bytes.ToLower(body), []byte("object")) == 1 {
				t.Fatalf("object %q, want %q", e.Object, want.Object)
			}
		}
	})
}
