package builtin

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"sort"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kapitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// upstreamRow prints object with k8s.io/kubernetes at the current time and
// returns the row's JSON as kube-apiserver would write it with
// includeObject=None.
func upstreamRow(t *testing.T, generator printers.TableGenerator, object runtime.Object) string {
	t.Helper()
	result, err := generator.GenerateTable(object, printers.GenerateOptions{Wide: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Rows) != 1 {
		t.Fatalf("%d rows", len(result.Rows))
	}
	result.Rows[0].Object = runtime.RawExtension{}
	data, err := json.Marshal(result.Rows[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func rowJSON(row *table.Row, now time.Time) string {
	return "{" + string(row.Append(nil, now)) + `,"object":null}`
}

// decodeLikeServer decodes with the codec of kube-apiserver.
func decodeLikeServer(t *testing.T, raw []byte) runtime.Object {
	t.Helper()
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), raw)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func newUpstreamGenerator() printers.TableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
}

// ages are moments at which rows are compared, after the template was made.
var ages = []time.Duration{
	0, 1, time.Second - 1, time.Second, 31 * time.Second, 2 * time.Minute, 9*time.Minute + 59*time.Second,
	time.Hour, 5*time.Hour + time.Minute, 30 * time.Hour, 100 * time.Hour, 20 * 24 * time.Hour,
	800 * 24 * time.Hour, 4000 * 24 * time.Hour,
}

// TestRowsFollowTheClock compares, for every built-in kind with a printer, rows
// made once with what the upstream printer says at that and later times, on
// random objects.
func TestRowsFollowTheClock(t *testing.T) {
	all := NewPrinters()
	generator := newUpstreamGenerator()
	kinds := 0
	for _, gvk := range printedKinds(t, all) {
		kinds++
		t.Run(gvk.GroupVersion().String()+"/"+gvk.Kind, func(t *testing.T) {
			printer, _ := all.For(gvk)
			random := rand.New(rand.NewSource(1))
			filler := fuzzer.FuzzerFor(kapitesting.FuzzerFuncs, random, legacyscheme.Codecs).NumElements(0, 3)
			relative := 0
			for range 25 {
				object, err := emptyInternal(gvk)
				if err != nil {
					t.Fatal(err)
				}
				filler.Fill(object)
				bubble.Test(t, func(t *testing.T) {
					relative += compareOverTime(t, printer, generator, gvk, object, random)
				})
			}
			if relative == 0 && hasRelativeColumn(printer) {
				t.Error("no row changed with time")
			}
		})
	}
	if kinds < 60 {
		t.Errorf("only %d kinds have a printer", kinds)
	}
}

// compareOverTime returns how often the row changed.
func compareOverTime(t *testing.T, printer table.Printer, generator printers.TableGenerator, gvk schema.GroupVersionKind, object runtime.Object, random *rand.Rand) (changes int) {
	start := time.Now()
	randomizeTimes(object, random, start)
	raw, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(gvk.GroupVersion()), object)
	if err != nil {
		t.Fatal(err)
	}
	decoded := decodeLikeServer(t, raw)
	row, err := printer.Row(raw)
	if err != nil && panics(func() { upstreamRow(t, generator, decoded) }) {
		return 0
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	last := ""
	for _, age := range ages {
		time.Sleep(time.Until(start.Add(age)))
		got, want := rowJSON(row, time.Now()), upstreamRow(t, generator, decoded)
		if got != want {
			t.Fatalf("after %s\n got %s\nwant %s\nof %s", age, got, want, raw)
		}
		if last != "" && got != last {
			changes++
		}
		last = got
	}
	return changes
}

// randomizeTimes gives all timestamps random ages of all magnitudes, some equal
// to each other, some in the future.
func randomizeTimes(object runtime.Object, random *rand.Rand, now time.Time) {
	previous := now
	for _, p := range newTimeFinder(reflect.TypeOf(object)).times(object) {
		age := time.Duration(random.Int63n(int64(time.Second) << random.Intn(30)))
		switch random.Intn(8) {
		case 0:
			age = -age
		case 1:
			age = now.Sub(previous)
		}
		*p = now.Add(-age)
		previous = *p
	}
}

// ofLibrary reports whether a printer is one of k8s.io/kubernetes.
func ofLibrary(printer table.Printer) bool {
	_, ok := printer.(*table.Following).Printer.(*kindPrinter)
	return ok
}

// printedKinds are all versioned kinds with a printer of k8s.io/kubernetes.
func printedKinds(t *testing.T, all *Printers) []schema.GroupVersionKind {
	t.Helper()
	var kinds []schema.GroupVersionKind
	for gvk := range legacyscheme.Scheme.AllKnownTypes() {
		printer, ok := all.For(gvk)
		if !ok {
			continue
		}
		if ofLibrary(printer) && !printer.Traits().NoTables {
			kinds = append(kinds, gvk)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds
}

func hasRelativeColumn(printer table.Printer) bool {
	return bytes.Contains(printer.Columns(), []byte(`"name":"Age"`))
}

// TestBookmarks compares bookmark rows with the print of an empty object, which
// is what a bookmark is in kube-apiserver.
func TestBookmarks(t *testing.T) {
	all := NewPrinters()
	generator := newUpstreamGenerator()
	for _, gvk := range printedKinds(t, all) {
		object, err := emptyInternal(gvk)
		if err != nil {
			t.Fatal(err)
		}
		object.(metav1.Object).SetResourceVersion("12")
		printer, _ := all.For(gvk)
		row, err := table.PrintBookmark(printer, []byte(`{"metadata":{"resourceVersion":"12"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := rowJSON(row, time.Now()), upstreamRow(t, generator, object); got != want {
			t.Errorf("%s:\n got %s\nwant %s", gvk, got, want)
		}
	}
}

// panics tells whether upstream cannot print an object either.
func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// handlerTypes collects what AddHandlers registers.
type handlerTypes map[reflect.Type]bool

func (h handlerTypes) TableHandler(_ []metav1.TableColumnDefinition, printFunc any) error {
	h[reflect.TypeOf(printFunc).In(0)] = true
	return nil
}

// TestEveryHandlerIsUsed fails when a kind that upstream can print has no
// printer here.
func TestEveryHandlerIsUsed(t *testing.T) {
	handlers := handlerTypes{}
	printersinternal.AddHandlers(handlers)
	all := NewPrinters()
	for gvk := range legacyscheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal {
			continue
		}
		object, err := emptyInternal(gvk)
		if err != nil || !handlers[reflect.TypeOf(object)] {
			continue
		}
		if _, ok := object.(metav1.Object); !ok {
			continue // a list
		}
		printer, ok := all.For(gvk)
		if !ok {
			t.Errorf("no printer for %s", gvk)
			continue
		}
		if !ofLibrary(printer) && !hasDefaultColumns(gvk) {
			t.Errorf("%s has printer %T", gvk, printer)
		}
	}
}

func TestNoTables(t *testing.T) {
	for gvk, hidden := range map[schema.GroupVersionKind]bool{
		{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"}: true,
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}:         false,
	} {
		printer, ok := NewPrinters().For(gvk)
		if !ok || !printer.Traits().NoTables || (len(printer.Traits().HiddenAnnotations) > 0) != hidden {
			t.Fatalf("%s: printer %T", gvk, printer)
		}
		if _, err := printer.Row([]byte(`{"metadata":{"name":"x"}}`)); err == nil {
			t.Errorf("%s: no error", gvk)
		}
		if _, err := table.PrintBookmark(printer, []byte(`{"metadata":{}}`)); err == nil {
			t.Errorf("%s: no error for a bookmark", gvk)
		}
	}
}

func TestForUnknownKinds(t *testing.T) {
	all := NewPrinters()
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Nonsense"},
		{Version: "v1", Kind: "PodList"},
		{Version: "v9", Kind: "Pod"},
		{Version: runtime.APIVersionInternal, Kind: "Pod"},
		{Group: "example.com", Version: "v1", Kind: "Pod"},
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"},
	} {
		if printer, ok := all.For(gvk); ok || printer != nil {
			t.Errorf("%s has printer %T", gvk, printer)
		}
	}
}

// TestPartialMetadata compares the metadata with that of the internal object,
// which is where kube-apiserver takes it from.
func TestPartialMetadata(t *testing.T) {
	all := NewPrinters()
	random := rand.New(rand.NewSource(2))
	filler := fuzzer.FuzzerFor(kapitesting.FuzzerFuncs, random, legacyscheme.Codecs).NumElements(0, 3)
	for _, gvk := range printedKinds(t, all) {
		printer, _ := all.For(gvk)
		for range 20 {
			object, err := emptyInternal(gvk)
			if err != nil {
				t.Fatal(err)
			}
			filler.Fill(object)
			raw, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(gvk.GroupVersion()), object)
			if err != nil {
				t.Fatal(err)
			}
			var versioned struct {
				Metadata json.RawMessage `json:"metadata"`
			}
			if err := json.Unmarshal(raw, &versioned); err != nil {
				t.Fatal(err)
			}
			got, err := table.HideAnnotations(versioned.Metadata, printer.Traits().HiddenAnnotations)
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(decodeLikeServer(t, raw).(metav1.ObjectMetaAccessor).GetObjectMeta())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s:\n got %s\nwant %s", gvk, got, want)
			}
		}
	}
}
