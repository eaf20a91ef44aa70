package consistency

import (
	"bytes"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// maxObserved bounds the bytes of a write's response that are read ahead to learn its version: more
// than the 3 MiB that kube-apiserver accepts as a request.
const maxObserved = 4 << 20

// content is what responses to writes of a subresource say about its object.
type content int

const (
	containsNothing content = iota // it was written, or not
	containsVersion                // they are the storage's own
	noWrite                        // nothing of it is written
)

// contentOf returns what kube-apiserver's responses say about a subresource; "" is the object itself.
// Responses of proxied servers and of kubelets say nothing.
func contentOf(subresource string) content {
	switch subresource {
	case "", "status", "scale", "binding", "eviction", "ephemeralcontainers", "resize", "approval", "finalize":
		return containsVersion
	case "proxy", "exec", "attach", "portforward", "log", "token":
		return noWrite
	}
	return containsNothing
}

// ObserveWrite records the effect of a forwarded write before its client sees the response and can
// read again.
func (s *Session) ObserveWrite(info *api.RequestInfo, resp *api.Response) *api.Response {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	contains := contentOf(info.Subresource)
	switch {
	case contains == noWrite, rejected(info, resp.Status):
		return resp
	case contains == containsNothing, resp.Status < 200 || resp.Status >= 300, info.Verb == "deletecollection":
		s.write(gvr, (*writes).wroteUnknown)
		return resp
	case resp.BodyTo == nil:
		s.write(gvr, effect(info, resp.Body))
		return resp
	}
	body := &observedBody{from: resp.BodyTo}
	body.seen = func(response []byte, whole bool) {
		if whole {
			s.write(gvr, effect(info, response))
		} else {
			s.write(gvr, (*writes).wroteUnknown)
		}
	}
	resp.BodyTo = body
	done := resp.Done
	resp.Done = func(n int64, err error) {
		body.report(false) // no-op after the first call
		if done != nil {
			done(n, err)
		}
	}
	return resp
}

// rejected reports whether a response says that nothing was written.
func rejected(info *api.RequestInfo, status int) bool {
	switch {
	case status < 400 || status >= 500:
		return false
	case status == api.StatusClientLeft:
		return false // the client left; the request may have been sent
	case info.Verb == "deletecollection":
		return false // it ends at the first object that is rejected
	case info.Verb == "delete" && status == 409:
		return false // the object may have been marked as being deleted before
	case info.Subresource == "eviction" && status == 409:
		return false // the pod is given a condition before
	}
	return true
}

// observedBody holds a response back until it is complete or too large, and reports it before the
// first byte is sent.
type observedBody struct {
	from io.WriterTo
	to   io.Writer
	held []byte
	// seen is called once, by tell.
	seen func(response []byte, whole bool)
	n    int64
}

// WriteTo implements io.WriterTo.
func (b *observedBody) WriteTo(w io.Writer) (int64, error) {
	b.to = w
	_, err := b.from.WriteTo(b)
	if err != nil {
		return b.n, err
	}
	b.report(true)
	return b.n, b.flush()
}

// Write implements io.Writer for the body that is read.
func (b *observedBody) Write(p []byte) (int, error) {
	if b.seen != nil && len(b.held)+len(p) <= maxObserved {
		b.held = append(b.held, p...)
		return len(p), nil
	}
	b.report(false)
	if err := b.flush(); err != nil {
		return 0, err
	}
	n, err := b.to.Write(p)
	b.n += int64(n)
	return n, err
}

func (b *observedBody) report(whole bool) {
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

// writeResponse is the part of the response to a write that names its effect.
type writeResponse struct {
	Kind     string                `json:"kind"`
	Metadata writeResponseMeta     `json:"metadata"`
	Details  *metav1.StatusDetails `json:"details"`
}

type writeResponseMeta struct {
	ResourceVersion            string       `json:"resourceVersion"`
	DeletionTimestamp          *metav1.Time `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64       `json:"deletionGracePeriodSeconds"`
	Finalizers                 []string     `json:"finalizers"`
}

// leaves reports whether an update with this response may have deleted the object, by removing the
// last finalizer of an object that is being deleted. The response then has the version before the
// deletion (ShouldDeleteDuringUpdate and deleteWithoutFinalizers in
// k8s.io/apiserver/pkg/registry/generic/registry). A Table does not show it.
func (a *writeResponse) leaves() bool {
	m := &a.Metadata
	return a.Kind == "Table" || m.DeletionTimestamp != nil && len(m.Finalizers) == 0 &&
		(m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0)
}

// effect returns what a write did according to its complete response.
func effect(info *api.RequestInfo, body []byte) func(*writes) {
	a, err := readResponse(body)
	if err != nil {
		return (*writes).wroteUnknown
	}
	version, err := api.ParseResourceVersion(a.Metadata.ResourceVersion)
	switch {
	case err == nil && version > 0:
		return func(w *writes) {
			// Also for a deletion: the object in its response has the version of the
			// deletion (k8s.io/apiserver/pkg/storage/etcd3/store.go).
			w.wrote(version)
			if info.Verb != "delete" && a.leaves() {
				w.wroteUnknown()
			}
		}
	case info.Verb == "delete" && info.Subresource == "" && a.Kind == "Status" && a.Details != nil && a.Details.UID != "":
		d := deletion{objectKey(info), string(a.Details.UID)}
		return func(w *writes) { w.wroteDeletion(d) }
	}
	return (*writes).wroteUnknown
}

func readResponse(body []byte) (writeResponse, error) {
	var a writeResponse
	if bytes.HasPrefix(body, []byte(cbor.SelfDescribed)) {
		var object any
		err := direct.Unmarshal(body, &object)
		if err == nil {
			body, err = json.Marshal(object)
		}
		if err != nil {
			return a, err
		}
	}
	if !protobuf.IsEnvelope(body) {
		err := json.Unmarshal(body, &a)
		return a, err
	}
	e, err := protobuf.Open(body)
	if err != nil {
		return a, err
	}
	if e.Kind == "Status" {
		var status metav1.Status
		err := status.Unmarshal(e.Raw)
		return writeResponse{Kind: e.Kind, Details: status.Details}, err
	}
	var o metav1.PartialObjectMetadata // metadata is the first field of every object
	if err := o.Unmarshal(e.Raw); err != nil {
		return a, err
	}
	a.Metadata = writeResponseMeta{o.ResourceVersion, o.DeletionTimestamp, o.DeletionGracePeriodSeconds, o.Finalizers}
	return a, nil
}

// objectKey returns the key of the object that info names in the cache.
func objectKey(info *api.RequestInfo) string {
	if info.Namespace == "" || info.Resource == "namespaces" {
		return info.Name // the path of a namespace names it as its own
	}
	return info.Namespace + "/" + info.Name
}
