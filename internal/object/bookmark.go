package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"

	"github.com/kubeweir/kubeweir/internal/api"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BookmarkTemplate renders bookmark objects for one collection and encoding.
// kube-apiserver encodes an empty object of the kind, with its required fields,
// so the template is learned from a bookmark of the upstream (ParseBookmark);
// until one came, NewBookmarkTemplate stands in. A BookmarkTemplate is immutable
// and safe for concurrent use.
type BookmarkTemplate struct {
	enc api.Encoding
	// head and tail surround the metadata in the object's bytes; in protobuf they
	// are whole fields.
	head, tail []byte
	// json are the metadata's bytes around the version: without and with the
	// annotation that ends the initial events.
	json [2]struct{ before, after []byte }
	// meta is the ObjectMeta learned, marked whether it had that annotation.
	meta   []byte
	marked bool
}

// initialEventsEnd is the annotations value of the bookmark after the initial
// events (KEP-3157).
const initialEventsEnd = `{"` + metav1.InitialEventsAnnotationKey + `":"true"}`

var (
	errNotBookmark = errors.New("not a bookmark: it has a name")
	errSplit       = errors.New("metadata is not one field")
)

// NewBookmarkTemplate returns a template that has the type and the metadata only.
// sorted says that the JSON has sorted keys, as custom resources have.
func NewBookmarkTemplate(enc api.Encoding, apiVersion, kind string, sorted bool) *BookmarkTemplate {
	if enc == api.Protobuf {
		return &BookmarkTemplate{enc: enc}
	}
	first, second := `"kind":`+quote(kind), `"apiVersion":`+quote(apiVersion)
	if sorted {
		first, second = second, first
	}
	t := &BookmarkTemplate{
		enc:  api.JSON,
		head: []byte("{" + first + "," + second + `,"metadata":`),
		tail: []byte("}"),
	}
	t.renderForms([]jsonPair{{key: "resourceVersion"}}, sorted)
	return t
}

// quote writes s as a JSON string.
func quote(s string) string {
	b, _ := json.Marshal(s) // of a string, it cannot fail
	return string(b)
}

// ParseBookmark reads the object of an upstream bookmark, in the form of
// Object.Raw: what it says, and a template to render others. raw is kept.
func ParseBookmark(enc api.Encoding, raw []byte) (t *BookmarkTemplate, rv uint64, end bool, err error) {
	if enc == api.Protobuf {
		t, rv, end, err = parseProtobufBookmark(raw)
	} else {
		t, rv, end, err = parseJSONBookmark(raw)
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("parse %s bookmark: %w", enc, err)
	}
	return t, rv, end, nil
}

// AppendObject appends the bookmark's object for rv in the form of Object.Raw.
// end adds the annotation that ends the initial events.
func (t *BookmarkTemplate) AppendObject(dst []byte, rv uint64, end bool) []byte {
	dst = append(dst, t.head...)
	if t.enc == api.Protobuf {
		dst = appendBytesField(dst, numMetadata, t.AppendMetadata(nil, rv, end))
	} else {
		dst = t.AppendMetadata(dst, rv, end)
	}
	return append(dst, t.tail...)
}

// AppendMetadata appends the value of metadata alone, for AppendPartialJSON and
// AppendPartialProtobuf.
func (t *BookmarkTemplate) AppendMetadata(dst []byte, rv uint64, end bool) []byte {
	if t.enc == api.Protobuf {
		return append(dst, t.protobufMeta(rv, end)...)
	}
	form := &t.json[0]
	if end {
		form = &t.json[1]
	}
	dst = append(dst, form.before...)
	dst = strconv.AppendUint(dst, rv, 10)
	return append(dst, form.after...)
}

func parseJSONBookmark(raw []byte) (t *BookmarkTemplate, rv uint64, end bool, err error) {
	if end, err := SkipJSON(raw, 0); err != nil || end != len(raw) {
		return nil, 0, false, errors.Join(errNotObject, err)
	}
	start, stop := jsonMember(raw, "metadata")
	if start < 0 || raw[start] != '{' {
		return nil, 0, false, errNoMetadata
	}
	t = &BookmarkTemplate{enc: api.JSON, head: raw[:start], tail: raw[stop:]}
	meta := raw[start:stop]
	var members []jsonPair
	eachMember(meta, func(key []byte, s, e int) {
		members = append(members, jsonPair{string(key), meta[s:e]})
	})
	at := -1
	for i, m := range members {
		switch m.key {
		case "name":
			err = errNotBookmark
		case "resourceVersion":
			at = i
		case "annotations":
			t.marked = marksEnd(m.value)
		}
	}
	if err != nil {
		return nil, 0, false, err
	}
	if at < 0 || members[at].value[0] != '"' {
		return nil, 0, false, errNoRV
	}
	text := members[at].value
	if rv, err = parseRV(text[1 : len(text)-1]); err != nil {
		return nil, 0, false, err
	}
	sorted := bytes.HasPrefix(raw, []byte(`{"apiVersion":`))
	t.renderForms(members, sorted)
	return t, rv, t.marked, nil
}

type jsonPair struct {
	key   string
	value []byte
}

// marksEnd reports whether annotations hold the end of the initial events.
func marksEnd(annotations []byte) bool {
	start, end := jsonMember(annotations, metav1.InitialEventsAnnotationKey)
	return start >= 0 && string(annotations[start:end]) == `"true"`
}

// renderForms prepares the metadata with and without the annotation.
func (t *BookmarkTemplate) renderForms(members []jsonPair, sorted bool) {
	var plain []jsonPair
	marked := members
	for _, m := range members {
		if m.key != "annotations" {
			plain = append(plain, m)
		}
	}
	if !t.marked {
		marked = append(plain[:len(plain):len(plain)], jsonPair{"annotations", []byte(initialEventsEnd)})
		if sorted {
			sort.SliceStable(marked, func(i, j int) bool { return marked[i].key < marked[j].key })
		}
	}
	for i, pairs := range [][]jsonPair{plain, marked} {
		out := &t.json[i].before
		*out = append(*out, '{')
		for n, m := range pairs {
			if n > 0 {
				*out = append(*out, ',')
			}
			*out = append(append(*out, quote(m.key)...), ':')
			if m.key == "resourceVersion" {
				*out = append(*out, '"')
				out = &t.json[i].after
				*out = append(*out, '"')
				continue
			}
			*out = append(*out, m.value...)
		}
		*out = append(*out, '}')
	}
}

func parseProtobufBookmark(raw []byte) (t *BookmarkTemplate, rv uint64, end bool, err error) {
	t = &BookmarkTemplate{enc: api.Protobuf}
	var text []byte
	fields := 0
	err = walk(raw, func(f protoField) error {
		if f.num != numMetadata {
			return nil
		}
		fields++
		t.meta = f.bytes
		t.tail = raw[f.end:]
		return walk(f.bytes, func(f protoField) error {
			switch f.num {
			case numMetaName:
				if len(f.bytes) > 0 {
					return errNotBookmark
				}
			case numMetaRV:
				text = f.bytes
			case numMetaAnnotations:
				var sc scan
				if err := sc.protoLabel(f.bytes); err != nil {
					return err
				}
				if string(sc.labels[0].key) == metav1.InitialEventsAnnotationKey {
					t.marked = string(sc.labels[0].value) == "true"
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, 0, false, err
	}
	head, ok := metadataHead(raw, t)
	if fields != 1 || !ok {
		return nil, 0, false, errSplit
	}
	t.head = raw[:head]
	if len(text) == 0 {
		return nil, 0, false, errNoRV
	}
	rv, err = parseRV(text)
	return t, rv, t.marked, err
}

// metadataHead is where the metadata field, with its tag, begins.
func metadataHead(raw []byte, t *BookmarkTemplate) (int, bool) {
	start := len(raw) - len(t.tail) - bytesFieldSize(numMetadata, len(t.meta))
	return start, start >= 0 && raw[start] == numMetadata<<3|byte(protowire.BytesType)
}

func (t *BookmarkTemplate) protobufMeta(rv uint64, end bool) []byte {
	var annotation []byte
	if end && !t.marked {
		annotation = appendStringField(nil, numMapKey, metav1.InitialEventsAnnotationKey)
		annotation = appendStringField(annotation, numMapValue, "true")
	}
	return rewriteMeta(t.meta, strconv.AppendUint(nil, rv, 10), annotation, func(n protowire.Number) bool {
		return n != numMetaAnnotations || end
	})
}
