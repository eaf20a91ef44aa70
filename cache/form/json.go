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
	f.list = append(f.list, frameHeads[t], message, frameTail)
}

func (jsonEncoding) partialEvent(f *Frames, t api.EventType, metadata []byte) {
	f.list = append(f.list, partialHeads[t], metadata, partialTail)
}

func (jsonEncoding) errorEvent(f *Frames, status *metav1.Status) {
	body := api.EncodeStatus(status, api.StatusJSON)
	f.list = append(f.list, frameHeads[api.Error], body[:len(body)-1], frameTail)
}

func (jsonEncoding) refers() bool { return true }

func (jsonEncoding) streamType() string { return api.JSON.MediaType() }

func (jsonEncoding) delimiter() int { return 0 }
