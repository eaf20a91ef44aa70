// Package table renders objects as server-side Tables (kind Table of
// meta.k8s.io/v1), byte for byte as kube-apiserver writes them.
//
// Printing an object is expensive (it is decoded, converted and formatted), and
// what is printed goes stale by itself: "AGE 5m", "RESTARTS 3 (10s ago)". So a
// Printer is run once per object version and yields a Row: the JSON of the
// row's cells with holes where a relative time belongs. Filling the holes for
// the moment of a request costs a copy and a few integer divisions and
// allocates nothing.
//
// The package knows the default columns (NewDefaultPrinter) and those of custom
// resources (NewCustomPrinter). Printers of the built-in types live elsewhere,
// behind the Printer interface, because they need k8s.io/kubernetes.
package table

// Printer turns objects of one resource into Rows. Implementations are safe for
// concurrent use.
type Printer interface {
	// Columns is the JSON of the columnDefinitions array. It is shared and must
	// not be changed.
	Columns() []byte

	// Row prints the JSON of one object. raw is not kept. It is meant to be
	// called once per object version and its result kept.
	//
	// An error means that the row cannot be given exactly as kube-apiserver
	// would; the request is then better forwarded than approximated.
	Row(raw []byte) (*Row, error)

	// Bookmark prints the JSON of a watch bookmark's object. kube-apiserver
	// prints bookmarks like any object, but an empty one without defaults, so
	// Row would give other cells.
	Bookmark(raw []byte) (*Row, error)

	// PartialMetadata returns the JSON of the ObjectMeta that kube-apiserver
	// puts into a PartialObjectMetadata of an object, in Tables and elsewhere.
	// raw is the JSON of the object and metadata the value of its metadata,
	// which is what is returned for most built-in resources: the result may
	// share memory with metadata.
	PartialMetadata(raw, metadata []byte) ([]byte, error)

	// Traits tells where this resource's Tables leave the common form.
	Traits() Traits
}

// Traits are the peculiarities of a resource's Tables. The zero value is what
// nearly all resources have.
type Traits struct {
	// NoTables is set when a row cannot be made from one served object, so that
	// Row and Bookmark always fail and requests for Tables are forwarded:
	// autoscaling/v1 HorizontalPodAutoscaler and StorageClass.
	NoTables bool
	// NullWhenEmpty is set when an empty list has "rows":null instead of
	// "rows":[]. Resources with the default columns and
	// CustomResourceDefinitions do this.
	NullWhenEmpty bool
	// ColumnsInEveryEvent is set when each event of a watch carries
	// columnDefinitions, not only the first one. APIService does this.
	ColumnsInEveryEvent bool
	// Sorted is set when the rows of a list (of one page of it) are ordered by
	// Row.SortKey, not by the keys of the objects. FlowSchema does this.
	Sorted bool
	// HiddenAnnotations are annotations that objects have but a
	// PartialObjectMetadata of them has not: kube-apiserver makes them up from
	// other fields when it converts an object to the version asked for, and
	// takes the partial metadata before that. PartialMetadata leaves them out;
	// protobuf.HideAnnotations does so in protobuf.
	HiddenAnnotations []string
}
