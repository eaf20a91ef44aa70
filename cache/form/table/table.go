// Package table renders objects as server-side Tables (kind Table of meta.k8s.io/v1), byte for byte
// as kube-apiserver does.
//
// Printing an object is expensive: it is decoded, converted and formatted. Printed text also goes
// stale: "AGE 5m", "RESTARTS 3 (10s ago)". A Printer therefore runs once per object version and
// returns a Row: the JSON of the row's cells with slots for relative times. Filling the slots for a
// request costs a copy and a few integer divisions, and allocates nothing.
//
// The package has the default columns (NewDefaultPrinter) and the columns of custom resources
// (NewCustomPrinter). The printers of built-in types need k8s.io/kubernetes and live elsewhere,
// behind the Printer interface.
package table

import (
	stdjson "encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Printer converts objects of one resource to Rows. Implementations are safe for concurrent use.
type Printer interface {
	// Columns returns the JSON of the columnDefinitions array. Callers must not modify it.
	Columns() []byte

	// Row prints one object, given as JSON. It does not retain raw. Callers cache the result per
	// object version.
	//
	// An error means that kube-apiserver's row cannot be reproduced exactly; the request is then
	// forwarded.
	Row(raw []byte) (*Row, error)

	// Traits returns how this resource's Tables differ from the common form.
	Traits() Traits
}

// Traits are the peculiarities of a resource's Tables. Nearly all resources have the zero value.
type Traits struct {
	// NoTables is set if a row cannot be made from one served object. Row always fails, and
	// requests for Tables are forwarded: autoscaling/v1 HorizontalPodAutoscaler and StorageClass.
	NoTables bool
	// Bookmark is the row of every watch bookmark. kube-apiserver prints bookmarks like any object,
	// but without defaulting, so Row would return other cells. If nil, Row prints them.
	Bookmark *Row
	// NullWhenEmpty is set if an empty list has "rows":null instead of "rows":[]: resources with
	// the default columns, and CustomResourceDefinitions.
	NullWhenEmpty bool
	// ColumnsInEveryEvent is set if every event of a watch carries columnDefinitions, not only the
	// first: APIService.
	ColumnsInEveryEvent bool
	// Sorted is set if the rows of a list, or of one page, are sorted by Row.SortKey instead of by
	// key: FlowSchema.
	Sorted bool
	// HiddenAnnotations are annotations of objects that their PartialObjectMetadata lacks.
	// kube-apiserver creates them from other fields when it converts an object to the requested
	// version, and takes the partial metadata before that. PartialMetadata omits them, and so does
	// protobuf.HideAnnotations.
	HiddenAnnotations []string
}

// PrintBookmark prints the object of a watch bookmark, given as JSON.
func PrintBookmark(p Printer, raw []byte) (*Row, error) {
	if row := p.Traits().Bookmark; row != nil {
		return row, nil
	}
	return p.Row(raw)
}

// defaultPrinter prints the columns Name and Created At of resources without columns of their own
// (NewDefaultTableConvertor in k8s.io/apiserver/pkg/registry/rest). The time is absolute.
type defaultPrinter struct {
	columns []byte
}

// NewDefaultPrinter returns the printer of resources without columns of their own, such as Role.
func NewDefaultPrinter() Printer {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return defaultPrinter{columns: EncodeColumns([]metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
	})}
}

// EncodeColumns returns column definitions in the JSON form that Tables contain.
func EncodeColumns(columns []metav1.TableColumnDefinition) []byte {
	// Marshaling strings and integers cannot fail.
	data, _ := stdjson.Marshal(columns)
	return data
}

func (p defaultPrinter) Columns() []byte { return p.columns }

func (p defaultPrinter) Traits() Traits { return Traits{NullWhenEmpty: true} }

func (p defaultPrinter) Row(raw []byte) (*Row, error) {
	var object struct {
		Metadata struct {
			Name              string      `json:"name"`
			CreationTimestamp metav1.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, fmt.Errorf("decoding object metadata: %w", err)
	}
	created := object.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)
	return NewRow([]Cell{{Value: object.Metadata.Name}, {Value: created}}, nil, "")
}

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
// newline. Rows (AppendRow) are separated by commas. It uses the fields resourceVersion, continue
// and remainingItemCount of meta.
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
