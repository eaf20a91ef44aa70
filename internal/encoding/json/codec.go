// Package json knows how objects, lists, watch events and bookmarks look in JSON, as
// kube-apiserver writes it.
//
// JSON is skipped in two ways here, because two things are wanted that one function
// cannot give at the same speed. skipValue (skip.go) walks a whole object in memory
// and checks the grammar to the last byte: what passes is kept, and served to others.
// stream (stream.go) finds where the objects of a body end while it arrives, and may
// have to stop at any byte; it checks brackets and the ends of strings only, for each
// object that it finds is scanned in the other way afterwards. What both know of JSON
// (white space, the greatest depth) stands once, in skip.go.
package json

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Codec reads JSON.
type Codec struct{}

var _ encoding.Codec = Codec{}

// AppendMetadataHead implements encoding.Codec: nothing depends on lengths.
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

// quote writes s as a JSON string.
func quote(s string) string { return string(appendQuoted(nil, s)) }

func appendQuoted(dst []byte, s string) []byte { return append(AppendText(append(dst, '"'), s), '"') }

// AppendText appends s as encoding/json writes it, HTML escapes
// included, without the quotes.
func AppendText(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// A string always has an encoding, so the error is always nil.
			data, _ := json.Marshal(s)
			return append(dst, data[1:len(data)-1]...)
		}
	}
	return append(dst, s...)
}
