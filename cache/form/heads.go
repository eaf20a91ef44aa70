package form

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// What JSON has around the bytes of objects.

const partialHead = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`

// jsonEvent is around the object of an event.
var jsonEvent = &constants{
	heads: [...][]byte{
		api.Added:    []byte(`{"type":"ADDED","object":`),
		api.Modified: []byte(`{"type":"MODIFIED","object":`),
		api.Deleted:  []byte(`{"type":"DELETED","object":`),
		api.Bookmark: []byte(`{"type":"BOOKMARK","object":`),
		api.Error:    []byte(`{"type":"ERROR","object":`),
	},
	tail: []byte("}\n"),
}

// jsonPartialEvent is around the metadata in an event whose object is nothing else.
var jsonPartialEvent = &constants{
	heads: [...][]byte{
		api.Added:    []byte(`{"type":"ADDED","object":` + partialHead),
		api.Modified: []byte(`{"type":"MODIFIED","object":` + partialHead),
		api.Deleted:  []byte(`{"type":"DELETED","object":` + partialHead),
		api.Bookmark: []byte(`{"type":"BOOKMARK","object":` + partialHead),
		api.Error:    nil,
	},
	tail: []byte("}}\n"),
}

// typedFrame is the frame of a list that has a Go type upstream.
func typedFrame(kind, apiVersion string, meta *metav1.ListMeta) (head, tail []byte) {
	head = append(head, `{"kind":"`...)
	head = append(head, kind...)
	head = append(head, `","apiVersion":"`...)
	head = append(head, apiVersion...)
	head = append(head, `","metadata":{`...)
	head = append(head, `"resourceVersion":"`...)
	head = append(append(head, meta.ResourceVersion...), '"')
	if meta.Continue != "" {
		head = append(head, `,"continue":"`...)
		head = append(append(head, meta.Continue...), '"')
	}
	if meta.RemainingItemCount != nil {
		head = fmt.Appendf(head, `,"remainingItemCount":%d`, *meta.RemainingItemCount)
	}
	if meta.ShardInfo != nil {
		head = fmt.Appendf(head, `,"shardInfo":{"selector":"%s"}`, meta.ShardInfo.Selector) // nothing in it needs an escape
	}
	return append(head, `},"items":[`...), []byte("]}\n")
}

// customFrame is the frame of a list that upstream keeps untyped: sorted keys,
// and continue even when it is empty.
func customFrame(kind, apiVersion string, meta *metav1.ListMeta) (head, tail []byte) {
	head = append(head, `{"apiVersion":"`...)
	head = append(head, apiVersion...)
	head = append(head, `","items":[`...)
	tail = append(tail, `],"kind":"`...)
	tail = append(tail, kind...)
	tail = append(tail, `","metadata":{"continue":"`...)
	tail = append(append(tail, meta.Continue...), '"')
	if meta.RemainingItemCount != nil {
		tail = fmt.Appendf(tail, `,"remainingItemCount":%d`, *meta.RemainingItemCount)
	}
	tail = append(tail, `,"resourceVersion":"`...)
	tail = append(tail, meta.ResourceVersion...)
	return head, append(tail, "\"}}\n"...)
}
