package proxy

import (
	"bytes"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// maxObserved bounds how much of a write's answer is read ahead to learn its
// version, in bytes: above the 3 MiB that kube-apiserver takes as a request.
const maxObserved = 4 << 20

// observeWrite records in the session what a forwarded write did, before its
// client sees the answer and can read again.
func (s *session) observeWrite(info *api.RequestInfo, resp *api.Response) *api.Response {
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch {
	case resp.Status >= 400 && resp.Status < 500:
		return resp // refused: nothing was written
	case resp.Status < 200 || resp.Status >= 300:
		s.wroteUnknown(gr)
		return resp
	case info.Verb == "deletecollection":
		s.wroteUnknown(gr)
		return resp
	}
	if resp.BodyTo == nil {
		s.record(gr, info, resp.Body)
		return resp
	}
	body := &observedBody{from: resp.BodyTo}
	body.seen = func(answer []byte, whole bool) {
		if whole {
			s.record(gr, info, answer)
		} else {
			s.wroteUnknown(gr)
		}
	}
	resp.BodyTo = body
	done := resp.Done
	resp.Done = func(n int64, err error) {
		body.tell(false) // unless it was told before
		if done != nil {
			done(n, err)
		}
	}
	return resp
}

// observedBody holds an answer back until it is whole, or too large to be, and
// tells what it was before the first byte goes out.
type observedBody struct {
	from io.WriterTo
	to   io.Writer
	held []byte
	// seen is called once, by tell.
	seen func(answer []byte, whole bool)
	n    int64
}

// WriteTo implements io.WriterTo.
func (b *observedBody) WriteTo(w io.Writer) (int64, error) {
	b.to = w
	_, err := b.from.WriteTo(b)
	if err != nil {
		return b.n, err
	}
	b.tell(true)
	return b.n, b.flush()
}

// Write takes the next bytes of the answer.
func (b *observedBody) Write(p []byte) (int, error) {
	if b.seen != nil && len(b.held)+len(p) <= maxObserved {
		b.held = append(b.held, p...)
		return len(p), nil
	}
	b.tell(false)
	if err := b.flush(); err != nil {
		return 0, err
	}
	n, err := b.to.Write(p)
	b.n += int64(n)
	return n, err
}

func (b *observedBody) tell(whole bool) {
	if b.seen != nil {
		b.seen(b.held, whole)
		b.seen = nil
	}
}

func (b *observedBody) flush() error {
	if len(b.held) == 0 {
		return nil
	}
	n, err := b.to.Write(b.held)
	b.n += int64(n)
	b.held = nil
	return err
}

// answered is the part of a write's answer that tells what it did.
type answered struct {
	Kind     string                `json:"kind"`
	Metadata answeredMeta          `json:"metadata"`
	Details  *metav1.StatusDetails `json:"details"`
}

type answeredMeta struct {
	ResourceVersion            string       `json:"resourceVersion"`
	DeletionTimestamp          *metav1.Time `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64       `json:"deletionGracePeriodSeconds"`
	Finalizers                 []string     `json:"finalizers"`
}

// leaves says that an update which was answered so may have deleted the object:
// the last finalizer of an object that is being deleted was taken away. The answer
// carries the version from before then (ShouldDeleteDuringUpdate and
// deleteWithoutFinalizers in k8s.io/apiserver/pkg/registry/generic/registry). A
// Table does not show it.
func (a *answered) leaves() bool {
	m := &a.Metadata
	return a.Kind == "Table" || m.DeletionTimestamp != nil && len(m.Finalizers) == 0 &&
		(m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0)
}

func (s *session) record(gr schema.GroupResource, info *api.RequestInfo, body []byte) {
	a, err := readAnswer(body)
	if err != nil {
		s.wroteUnknown(gr)
		return
	}
	version, err := api.ParseResourceVersion(a.Metadata.ResourceVersion)
	switch {
	case err == nil && version > 0:
		// Also a deletion's: the object in its answer carries the version of
		// the deletion (k8s.io/apiserver/pkg/storage/etcd3/store.go).
		s.wrote(gr, version)
		if info.Verb != "delete" && a.leaves() {
			s.wroteUnknown(gr)
		}
	case info.Verb == "delete" && info.Subresource == "" && a.Kind == "Status" && a.Details != nil && a.Details.UID != "":
		s.deleted(gr, objectKey(info.Namespace, info.Name), string(a.Details.UID))
	default:
		s.wroteUnknown(gr)
	}
}

func readAnswer(body []byte) (answered, error) {
	var a answered
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		err := json.Unmarshal(body, &a)
		return a, err
	}
	_, kind, raw, err := object.ParseProtobufObject(body)
	if err != nil {
		return a, err
	}
	if kind == "Status" {
		var status metav1.Status
		err := status.Unmarshal(raw)
		return answered{Kind: kind, Details: status.Details}, err
	}
	var o metav1.PartialObjectMetadata // metadata is the first field of every object
	if err := o.Unmarshal(raw); err != nil {
		return a, err
	}
	a.Metadata = answeredMeta{o.ResourceVersion, o.DeletionTimestamp, o.DeletionGracePeriodSeconds, o.Finalizers}
	return a, nil
}

// objectKey is the key under which the cache holds an object.
func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
