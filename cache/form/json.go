package form

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// jsonEncoding is api.JSON. Nothing in it depends on the length of what follows, so an
// event is an object's own bytes between constants.
type jsonEncoding struct{}

func (jsonEncoding) separator() string { return "," }

func (jsonEncoding) itemHead(*chunks, int) {}

func (jsonEncoding) itemSize(n int) int { return n }

func (jsonEncoding) listFrame(t listType, meta *metav1.ListMeta, n, _ int) (head, tail []byte) {
	if t.untyped {
		return customFrame(t.kind, t.apiVersion, meta)
	}
	head, tail = typedFrame(t.kind, t.apiVersion, meta)
	if n == 0 && t.null {
		return append(head[:len(head)-1], "null"...), tail[1:]
	}
	return head, tail
}

func (jsonEncoding) objectFrame(string, string, int) (head, tail []byte) { return nil, []byte("\n") }

func (jsonEncoding) partialHead(b []byte, _ int) []byte { return append(b, partialHead...) }

func (jsonEncoding) partialTail() string { return "}" }

func (jsonEncoding) partialSize(n int) int { return len(partialHead) + n + len("}") }

func (jsonEncoding) event(f *Frames, t api.EventType, _, _ string, message []byte) {
	jsonEvent.append(f, t, message)
}

func (jsonEncoding) partialEvent(f *Frames, t api.EventType, metadata []byte) {
	jsonPartialEvent.append(f, t, metadata)
}

func (jsonEncoding) errorEvent(f *Frames, status *metav1.Status) {
	body := api.EncodeStatus(status, api.StatusJSON)
	jsonEvent.append(f, api.Error, body[:len(body)-1])
}

func (jsonEncoding) around() *constants { return jsonEvent }

func (jsonEncoding) aroundPartial() *constants { return jsonPartialEvent }

func (jsonEncoding) streamType() string { return api.JSON.MediaType() }

func (jsonEncoding) delimiter() int { return 0 }
