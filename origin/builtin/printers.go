package builtin

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
)

// Printers returns the table printers of the built-in types. It is safe for concurrent use. Create
// one per process: the first use builds the column definitions of all types.
type Printers struct {
	shared func() sharedPrinting

	mu struct {
		sync.Mutex
		// kinds holds the printers made so far; nil for kinds without one.
		kinds map[schema.GroupVersionKind]table.Printer
	}
}

// sharedPrinting is the state that all printers share.
type sharedPrinting struct {
	generator printers.TableGenerator
	marks     []mark
	plain     table.Printer
}

// NewPrinters returns Printers that build what they need on first use.
func NewPrinters() *Printers {
	p := &Printers{shared: sync.OnceValue(func() sharedPrinting {
		return sharedPrinting{
			generator: printers.NewTableGenerator().With(printersinternal.AddHandlers),
			marks:     newMarks(),
			plain:     table.NewDefaultPrinter(),
		}
	})}
	p.mu.kinds = map[schema.GroupVersionKind]table.Printer{}
	return p
}

// For returns the printer that kube-apiserver v1.37 uses for lists and objects
// of kind gvk, for servers of any release, and false for kinds that it does not have
// built in. The kinds of
// custom resources and of aggregated API servers are not known here.
func (p *Printers) For(gvk schema.GroupVersionKind) (table.Printer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	printer, ok := p.mu.kinds[gvk]
	if !ok {
		if printer = p.build(gvk); printer != nil {
			printer = table.NewFollowing(printer, groups.Version)
		}
		p.mu.kinds[gvk] = printer
	}
	return printer, printer != nil
}

// build returns nil for kinds without a printer.
func (p *Printers) build(gvk schema.GroupVersionKind) table.Printer {
	if hasDefaultColumns(gvk) {
		return p.shared().plain
	}
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: apiServiceGroup, Kind: "APIService"}:
		return newAPIServicePrinter()
	case schema.GroupKind{Group: definitionGroup, Kind: "CustomResourceDefinition"}:
		return newDefinitionPrinter()
	}
	if gvk.Version == runtime.APIVersionInternal || !legacyscheme.Scheme.Recognizes(gvk) {
		return nil
	}
	printer, err := newKindPrinter(gvk, p.shared())
	if err != nil {
		// The kind is not one that can be listed, such as a review.
		return nil
	}
	return printer
}

// hasDefaultColumns reports whether kube-apiserver prints the resource with the default columns.
// CSIStorageCapacity has a printer in k8s.io/kubernetes, but its storage does not use it.
func hasDefaultColumns(gvk schema.GroupVersionKind) bool {
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: "", Kind: "LimitRange"},
		schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"},
		schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
		schema.GroupKind{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:
		return true
	}
	return false
}

// kindPrinter prints one kind with the printers of k8s.io/kubernetes.
type kindPrinter struct {
	gvk     schema.GroupVersionKind
	shared  sharedPrinting
	finder  *timeFinder
	columns []byte
	traits  table.Traits
}

func newKindPrinter(gvk schema.GroupVersionKind, shared sharedPrinting) (*kindPrinter, error) {
	empty, err := emptyInternal(gvk)
	if err != nil {
		return nil, err
	}
	if _, ok := empty.(metav1.Object); !ok {
		return nil, fmt.Errorf("%s is a list, or has no metadata", gvk.Kind)
	}
	p := &kindPrinter{gvk: gvk, shared: shared}
	result, err := shared.generator.GenerateTable(empty, printers.GenerateOptions{Wide: true})
	if err != nil {
		return nil, err
	}
	p.columns = table.EncodeColumns(result.ColumnDefinitions)
	p.finder = newTimeFinder(reflect.TypeOf(empty))
	_, p.traits.Sorted = empty.(*flowcontrol.FlowSchema)
	p.traits.HiddenAnnotations = hiddenAnnotations(gvk)
	if p.traits.NoTables = hasNoRows(gvk); p.traits.NoTables {
		return p, nil
	}
	// No printer shows what bookmarks contain, their version and an annotation.
	p.traits.Bookmark, err = p.row(empty)
	return p, err
}

// hasNoRows reports whether a row of gvk shows more than the served object has.
// autoscaling/v1 keeps the CPU metric apart from the others, which loses the order
// of metrics that TARGETS shows. Of StorageClasses, a list marks the default one by
// comparing all of its items.
func hasNoRows(gvk schema.GroupVersionKind) bool {
	return gvk == schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"} ||
		gvk.GroupKind() == schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
}

var errNoTables = errors.New("a row shows more than the served object has")

// emptyInternal returns a new object of the internal type of gvk, without the
// defaults of its version.
func emptyInternal(gvk schema.GroupVersionKind) (runtime.Object, error) {
	versioned, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(versioned, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, err
	}
	// Conversion may have filled in something.
	return reflect.New(reflect.TypeOf(internal).Elem()).Interface().(runtime.Object), nil
}

func (p *kindPrinter) Columns() []byte { return p.columns }

func (p *kindPrinter) Traits() table.Traits { return p.traits }

func (p *kindPrinter) Row(raw []byte) (*table.Row, error) {
	if p.traits.NoTables {
		return nil, fmt.Errorf("printing %s: %w", p.gvk, errNoTables)
	}
	object, err := decodeInternal(p.gvk, raw)
	if err != nil {
		return nil, err
	}
	return p.row(object)
}

func (p *kindPrinter) row(object runtime.Object) (*table.Row, error) {
	t := template{
		marks: p.shared.marks,
		times: p.finder.times(object),
		print: func() (metav1.TableRow, error) { return p.print(object) },
	}
	cells, conditions, err := t.cells()
	if err != nil {
		return nil, fmt.Errorf("printing %s: %w", p.gvk.Kind, err)
	}
	row, err := table.NewRow(cells, conditions, sortKey(object))
	if err != nil {
		return nil, fmt.Errorf("printing %s: %w", p.gvk.Kind, err)
	}
	return row, nil
}

// print prints object once, with all columns as kube-apiserver does: clients
// choose by their priority. Some printers panic on objects that validation would
// have refused; kube-apiserver fails such a request, and only it.
func (p *kindPrinter) print(object runtime.Object) (row metav1.TableRow, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("printer panicked: %v", r)
		}
	}()
	result, err := p.shared.generator.GenerateTable(object, printers.GenerateOptions{Wide: true, NoHeaders: true})
	if err != nil {
		return metav1.TableRow{}, err
	}
	if len(result.Rows) != 1 {
		return metav1.TableRow{}, fmt.Errorf("%d rows for one object", len(result.Rows))
	}
	return result.Rows[0], nil
}

// sortKey orders FlowSchemas as their printer orders lists of them: by matching
// precedence, then by name.
func sortKey(object runtime.Object) string {
	fs, ok := object.(*flowcontrol.FlowSchema)
	if !ok {
		return ""
	}
	// Flipping the sign bit orders signed numbers as unsigned ones.
	return fmt.Sprintf("%08x%s", uint32(fs.Spec.MatchingPrecedence)^1<<31, fs.Name)
}
