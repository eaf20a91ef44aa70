package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/encoding/json"
)

// The type of Tables.
const (
	APIVersion = "meta.k8s.io/v1"
	Kind       = "Table"
)

const tableHead = `{"kind":"` + Kind + `","apiVersion":"` + APIVersion + `","metadata":`

// Object is what a row carries beside its cells, by the request's
// includeObject. The zero value is none of it (null).
//
// Mind the bookmark that ends a watch's initial events: it carries its metadata
// with includeObject=None too.
type Object struct {
	kind objectKind
	// json and, where it is in two parts, rest are its JSON.
	json, rest []byte
}

type objectKind uint8

const (
	objectNone objectKind = iota
	objectMetadata
	objectFull
)

// MetadataObject is the object for includeObject=Metadata, the default.
// metadata is the JSON of the ObjectMeta in its typed order; for custom
// resources that is what PartialMetadata returns. rest follows it, nil if it is whole.
func MetadataObject(metadata, rest []byte) Object {
	return Object{kind: objectMetadata, json: metadata, rest: rest}
}

// FullObject is the object for includeObject=Object: the JSON of the whole
// object, which must have kind and apiVersion (items of built-in lists have
// none). rest follows it, nil if it is whole.
func FullObject(object, rest []byte) Object {
	return Object{kind: objectFull, json: object, rest: rest}
}

func (o Object) append(dst []byte) []byte {
	switch o.kind {
	case objectMetadata:
		dst = append(dst, json.PartialHead...)
		dst = append(append(dst, o.json...), o.rest...)
		return append(dst, json.PartialTail...)
	case objectFull:
		return append(append(dst, o.json...), o.rest...)
	}
	return append(dst, "null"...)
}

// Frame is what the Table of a list that p prints has before and after its n rows, the
// final newline included. Commas stand between the rows (AppendRow). Of meta it takes
// resourceVersion, continue and remainingItemCount.
func Frame(p Printer, meta *metav1.ListMeta, n int) (head, tail []byte) {
	head = append(head, tableHead...)
	head = json.AppendListMeta(head, meta)
	head = append(head, `,"columnDefinitions":`...)
	head = append(head, p.Columns()...)
	head = append(head, `,"rows":`...)
	switch {
	case n > 0:
		return append(head, '['), []byte("]}\n")
	case p.Traits().NullWhenEmpty:
		return head, []byte("null}\n")
	}
	return head, []byte("[]}\n")
}

// AppendRow appends one row as it reads at now.
func AppendRow(dst []byte, row *Row, now time.Time, object Object) []byte {
	dst = append(dst, '{')
	dst = row.Append(dst, now)
	dst = append(dst, `,"object":`...)
	dst = object.append(dst)
	return append(dst, '}')
}

// Single is the Table of one object: the response to a get, or the object of a
// watch event.
type Single struct {
	// ResourceVersion is that of the object.
	ResourceVersion string
	// Columns are the Printer's, or nil to leave them out as the second and
	// later events of a watch do.
	Columns []byte
	Row     *Row
	Object  Object
}

// Append appends the Table as it reads at now, without a final newline: a get
// ends with one, an event's object has none.
func (s *Single) Append(dst []byte, now time.Time) []byte {
	dst = append(dst, tableHead...)
	dst = json.AppendListMeta(dst, &metav1.ListMeta{ResourceVersion: s.ResourceVersion})
	dst = append(dst, `,"columnDefinitions":`...)
	if s.Columns == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, s.Columns...)
	}
	dst = append(dst, `,"rows":[`...)
	dst = AppendRow(dst, s.Row, now, s.Object)
	return append(dst, "]}"...)
}
