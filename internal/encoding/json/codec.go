// Package json implements objects, lists, watch events and bookmarks in JSON, as kube-apiserver
// writes it.
//
// JSON is skipped in two ways here, because one function cannot serve both purposes at the same
// speed. skipValue (skip.go) walks a complete object in memory and checks the whole grammar: such
// objects are stored, and served to clients. stream (stream.go) finds where the objects of a body
// end while it arrives, and may have to stop at any byte. It only checks brackets and the ends of
// strings, because each object that it finds is then scanned in the first way. Both share the
// definitions in skip.go (white space, the maximum depth).
package json

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Codec implements encoding.Codec and encoding.Framing for JSON.
type Codec struct{}

var _ encoding.Codec = Codec{}

// AppendMetadataHead implements encoding.Codec. Nothing depends on lengths.
func (Codec) AppendMetadataHead(dst []byte, _ int) []byte { return dst }

// MetadataHeadSize implements encoding.Codec.
func (Codec) MetadataHeadSize(int) int { return 0 }

// ParseStatus implements encoding.Codec.
func (Codec) ParseStatus(object []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	if err := json.Unmarshal(object, status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

// quote returns s as a JSON string.
func quote(s string) string { return string(appendQuoted(nil, s)) }

func appendQuoted(dst []byte, s string) []byte { return append(AppendText(append(dst, '"'), s), '"') }

// AppendText appends s as encoding/json writes it, including HTML escapes, without the quotes.
func AppendText(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// Every string can be encoded, so the error is always nil.
			data, _ := json.Marshal(s)
			return append(dst, data[1:len(data)-1]...)
		}
	}
	return append(dst, s...)
}
