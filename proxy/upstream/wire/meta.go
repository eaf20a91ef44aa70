package wire

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

func (m *ListMeta) take(from *metav1.ListMeta) {
	m.ResourceVersion, m.Continue, m.RemainingItemCount = from.ResourceVersion, from.Continue, from.RemainingItemCount
}

// BookmarkMeta is what a bookmark says.
type BookmarkMeta struct {
	ResourceVersion uint64
	// InitialEventsEnd is true for the bookmark that ends a streaming list.
	InitialEventsEnd bool
}

// ParseBookmark reads the object of a BOOKMARK event.
func ParseBookmark(enc api.Encoding, object []byte) (BookmarkMeta, error) {
	version, annotations, err := objectMeta(enc, object)
	if err != nil {
		return BookmarkMeta{}, fmt.Errorf("bookmark: %w", err)
	}
	rv, err := api.ParseResourceVersion(version)
	if err != nil || rv == 0 {
		// Going on from version 0 would mean the present state, not this place.
		return BookmarkMeta{}, fmt.Errorf("bookmark has the resourceVersion %q", version)
	}
	return BookmarkMeta{rv, annotations[metav1.InitialEventsAnnotationKey] == "true"}, nil
}

func objectMeta(enc api.Encoding, object []byte) (version string, annotations map[string]string, err error) {
	if enc == api.Protobuf {
		return protobufMeta(object)
	}
	var o struct {
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(object, &o)
	return o.Metadata.ResourceVersion, o.Metadata.Annotations, err
}

func protobufMeta(object []byte) (version string, annotations map[string]string, err error) {
	annotations = make(map[string]string)
	err = fields(object, func(num protowire.Number, content []byte) error {
		if num != objectMetadata {
			return nil
		}
		return fields(content, func(num protowire.Number, content []byte) error {
			switch num {
			case objectMetaResourceVersion:
				version = string(content)
			case objectMetaAnnotations:
				return addEntry(annotations, content)
			}
			return nil
		})
	})
	return version, annotations, err
}

func addEntry(m map[string]string, entry []byte) error {
	var key, value string
	err := fields(entry, func(num protowire.Number, content []byte) error {
		switch num {
		case mapKey:
			key = string(content)
		case mapValue:
			value = string(content)
		}
		return nil
	})
	m[key] = value
	return err
}

// ParseStatus reads the object of an ERROR event.
func ParseStatus(enc api.Encoding, object []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	var err error
	if enc == api.Protobuf {
		err = status.Unmarshal(object)
	} else {
		err = json.Unmarshal(object, status)
	}
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return status, nil
}

// ParseEnvelopedStatus reads a Status in its protobuf envelope, as the body of a
// refused request carries it.
func ParseEnvelopedStatus(body []byte) (*metav1.Status, error) {
	t, message, err := openEnvelope(body)
	if err != nil {
		return nil, err
	}
	if t.kind != "Status" {
		return nil, fmt.Errorf("%q of %q is not a status", t.kind, t.apiVersion)
	}
	return ParseStatus(api.Protobuf, message)
}
