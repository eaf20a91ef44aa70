package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/encoding/json"
)

// apiVersion and kind of Tables.
const (
	APIVersion = "meta.k8s.io/v1"
	Kind       = "Table"
)

const tableHead = `{"kind":"` + Kind + `","apiVersion":"` + APIVersion + `","metadata":`

// Object is what a row carries besides its cells, depending on includeObject. The zero value is
// null.
//
// The bookmark that ends a watch's initial events carries its metadata even with
// includeObject=None.
type Object struct {
	// json, followed by rest if set, is the object's JSON, between head and tail.
	head, tail string
	json, rest []byte
}

// MetadataObject returns the Object for includeObject=Metadata, the default. metadata is the JSON
// of the ObjectMeta in typed order (see PartialMetadata), followed by rest if set.
func MetadataObject(metadata, rest []byte) Object {
	return Object{head: json.PartialHead, json: metadata, rest: rest, tail: json.PartialTail}
}

// FullObject returns the Object for includeObject=Object: the JSON of the whole object, followed by
// rest if set. The object must have kind and apiVersion, which items of built-in lists lack.
func FullObject(object, rest []byte) Object { return Object{json: object, rest: rest} }

func (o Object) append(dst []byte) []byte {
	if o.json == nil {
		return append(dst, "null"...)
	}
	dst = append(append(append(dst, o.head...), o.json...), o.rest...)
	return append(dst, o.tail...)
}

// appendHead appends a Table up to its column definitions; nil for none.
func appendHead(dst []byte, meta *metav1.ListMeta, columns []byte) []byte {
	dst = json.AppendListMeta(append(dst, tableHead...), meta)
	dst = append(dst, `,"columnDefinitions":`...)
	if columns == nil {
		return append(dst, "null"...)
	}
	return append(dst, columns...)
}

// Frame returns the bytes before and after the n rows of a list's Table, including the final
// newline. Rows (AppendRow) are separated by commas. Of meta, it uses resourceVersion, continue and
// remainingItemCount.
func Frame(p Printer, meta *metav1.ListMeta, n int) (head, tail []byte) {
	head = append(appendHead(nil, meta, p.Columns()), `,"rows":`...)
	switch {
	case n > 0:
		return append(head, '['), []byte("]}\n")
	case p.Traits().NullWhenEmpty:
		return head, []byte("null}\n")
	}
	return head, []byte("[]}\n")
}

// AppendRow appends one row, rendered at now.
func AppendRow(dst []byte, row *Row, now time.Time, object Object) []byte {
	dst = append(dst, '{')
	dst = row.Append(dst, now)
	dst = append(dst, `,"object":`...)
	dst = object.append(dst)
	return append(dst, '}')
}

// Single is the Table of one object: the response to a get, or the object of a watch event.
type Single struct {
	// ResourceVersion of the object.
	ResourceVersion string
	// Columns are the Printer's, or nil to omit them, as the second and later events of a watch do.
	Columns []byte
	Row     *Row
	Object  Object
}

// Append appends the Table, rendered at now, without a final newline. Gets end with one; events do
// not.
func (s *Single) Append(dst []byte, now time.Time) []byte {
	dst = appendHead(dst, &metav1.ListMeta{ResourceVersion: s.ResourceVersion}, s.Columns)
	dst = append(dst, `,"rows":[`...)
	dst = AppendRow(dst, s.Row, now, s.Object)
	return append(dst, "]}"...)
}
