// Package protobuf implements objects, lists, watch events and bookmarks in Kubernetes' protobuf,
// as kube-apiserver writes it: it walks messages by their lengths, with the few field numbers that
// matter.
package protobuf

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Codec implements encoding.Codec and encoding.Framing for protobuf.
type Codec struct{}

var _ encoding.Codec = Codec{}

var (
	errMalformed = errors.New("malformed protobuf")
	errWireType  = errors.New("wrong wire type of a known field")
)

// AppendMetadataHead implements encoding.Codec.
func (Codec) AppendMetadataHead(dst []byte, n int) []byte { return appendHead(dst, objectMetadata, n) }

// MetadataHeadSize implements encoding.Codec.
func (Codec) MetadataHeadSize(n int) int { return fieldSize(objectMetadata, n) - n }

// ParseStatus implements encoding.Codec.
func (Codec) ParseStatus(object []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	if err := status.Unmarshal(object); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

// ParseEnvelopedStatus parses a Status in its envelope: the body of a rejected request.
func ParseEnvelopedStatus(body []byte) (*metav1.Status, error) {
	e, err := Open(body)
	if err != nil {
		return nil, err
	}
	if e.Kind != "Status" {
		return nil, fmt.Errorf("%q of %q is not a status", e.Kind, e.APIVersion)
	}
	return Codec{}.ParseStatus(e.Raw)
}
