package protobuf

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

const testLimit = 1 << 20

func TestEventsReject(t *testing.T) {
	frame := func(event *metav1.WatchEvent) []byte { return encodingtest.FrameOf(t, api.Protobuf, event) }
	for name, tt := range map[string]struct {
		body []byte
		want string
	}{
		"too large":    {binary.BigEndian.AppendUint32(nil, 1<<31), "larger than the limit"},
		"no envelope":  {frame(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte("{}")}}), "magic"},
		"no object":    {frame(&metav1.WatchEvent{Type: "ADDED"}), "lacks"},
		"unknown type": {frame(&metav1.WatchEvent{Type: "NEW"}), "unknown type"},
		"garbage":      {[]byte{0, 0, 0, 2, 0xff, 0xff}, "malformed protobuf"},
	} {
		_, err := Codec{}.NewEvents(bytes.NewReader(tt.body), 1000).Next()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, tt.want)
		}
	}
}

// TestLargeEventsDoNotKeepMemory checks that an idle watch has a small buffer after a large event.
func TestLargeEventsDoNotKeepMemory(t *testing.T) {
	large := &encodingtest.PodList(1, 0).Items[0]
	large.Annotations["x"] = strings.Repeat("y", 4*encoding.KeepBuffer)
	w := Codec{}.NewEvents(bytes.NewReader(encodingtest.Frame(t, api.Protobuf, "ADDED", large)), 64*encoding.KeepBuffer).(*events)
	if _, err := w.Next(); err != nil {
		t.Fatal(err)
	}
	if len(w.buf) > encoding.KeepBuffer {
		t.Errorf("a buffer of %d bytes is retained", len(w.buf))
	}
}

func TestOpenRejects(t *testing.T) {
	for name, body := range map[string]string{
		"no magic":       "\x0a\x00",
		"truncated":      "k8s\x00\x0a\x09\x0a",
		"inner encoding": "k8s\x00\x12\x00\x1a\x04gzip",
		"inner type":     "k8s\x00\x12\x00\x22\x04json",
	} {
		if _, err := Open([]byte(body)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzEvents(f *testing.F) {
	status := &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonExpired, Code: 410}
	f.Add(append(encodingtest.Frame(f, api.Protobuf, "ADDED", encodingtest.Pod(1)), encodingtest.Frame(f, api.Protobuf, "ERROR", status)...), uint8(7))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		events := Codec{}.NewEvents(&encodingtest.Portions{B: body, N: int(portion) + 1}, 4096)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			_, _ = Codec{}.ParseBookmark(e.Object)
			_, _ = Codec{}.ParseStatus(e.Object)
		}
	})
}

func FuzzReadList(f *testing.F) {
	f.Add(encodingtest.Body(f, api.Protobuf, encodingtest.PodList(2, 50)), uint8(3))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		items := 0
		_, err := Codec{}.ReadList(&encodingtest.Portions{B: body, N: int(portion) + 1}, encoding.ReadOptions{Limit: 4096}, func([]byte) error {
			items++
			return nil
		})
		if err != nil {
			return
		}
		e, err := Open(body)
		if err != nil {
			return // the whole envelope repeats a field; the streaming reader does not
		}
		var want corev1.PodList
		if want.Unmarshal(e.Raw) == nil && len(want.Items) != items {
			t.Fatalf("%d items, want %d", items, len(want.Items))
		}
	})
}
