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
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
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

	// Bookmark prints the object of a watch bookmark, given as JSON. kube-apiserver prints
	// bookmarks like any object, but without defaulting, so Row would return other cells.
	Bookmark(raw []byte) (*Row, error)

	// Traits returns how this resource's Tables differ from the common form.
	Traits() Traits
}

// Traits are the peculiarities of a resource's Tables. Nearly all resources have the zero value.
type Traits struct {
	// NoTables is set if a row cannot be made from one served object. Row and Bookmark always fail,
	// and requests for Tables are forwarded: autoscaling/v1 HorizontalPodAutoscaler and
	// StorageClass.
	NoTables bool
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
	data, _ := json.Marshal(columns)
	return data
}

func (p defaultPrinter) Columns() []byte { return p.columns }

func (p defaultPrinter) Traits() Traits { return Traits{NullWhenEmpty: true} }

func (p defaultPrinter) Bookmark(raw []byte) (*Row, error) { return p.Row(raw) }

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
