package query_test

import (
	stdjson "encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestQueryPages checks that the pages of a sorted list show one version, whatever changes
// meanwhile, in a small collection and in one with cached columns.
func TestQueryPages(t *testing.T) {
	for _, n := range []int{100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := newQueryBench(t)
			b.fillPhases(n)
			c := b.collection(cachetest.Pods, api.JSON)
			const sorted = "?resourceVersion=0&sortBy=-.status.containerStatuses[0].restartCount,.metadata.name&where=.status.phase=Running"
			_, want := b.list(t, c, sorted)
			if len(want) != (n+2)/3 || want[0] < want[len(want)-1] {
				t.Fatalf("%d: %v", len(want), want)
			}
			first, got := b.list(t, c, sorted+"&limit=7")
			if *first.RemainingItemCount != int64(len(want)-7) {
				t.Errorf("%d remain", *first.RemainingItemCount)
			}
			for page := first; page.Continue != ""; {
				var names []string
				b.source.Delete(cachetest.Pods, "ns-0/"+fmt.Sprintf("web-%05d", len(got)/7*12))
				b.collection(cachetest.Pods, api.JSON)
				page, names = b.list(t, c, strings.Replace(sorted, "resourceVersion=0&", "", 1)+"&limit=7&continue="+page.Continue)
				if page.ResourceVersion != first.ResourceVersion {
					t.Fatalf("version %s, then %s", first.ResourceVersion, page.ResourceVersion)
				}
				got = append(got, names...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if _, page := b.list(t, c, "?resourceVersion="+first.ResourceVersion+"&resourceVersionMatch=Exact"+sorted[len("?resourceVersion=0"):]+"&limit=5&offset=9"); !slices.Equal(page, want[9:14]) {
				t.Errorf("%v, want %v", page, want[9:14])
			}
			if list, page := b.list(t, c, sorted+"&limit=5&offset=100000"); len(page) != 0 || list.Continue != "" {
				t.Errorf("%v after the end", page)
			}
		})
	}
}

// TestQueryExpired checks that a page whose version is gone is a 410 that says to begin again.
func TestQueryExpired(t *testing.T) {
	b := newQueryBench(t)
	b.manager = cachetest.NewManager(t, b.source, cache.Limits{SnapshotBytes: 1, HistoryEvents: 1})
	t.Cleanup(b.manager.Close)
	b.fillPhases(300)
	c := b.collection(cachetest.Pods, api.JSON)
	first, _ := b.list(t, c, "?resourceVersion=0&sortBy=.metadata.name&limit=7")
	for i := range 20 {
		b.source.Update(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-0/web-%05d", i%5*4), "elsewhere"))
	}
	b.collection(cachetest.Pods, api.JSON)
	_, err := b.reader.List(t.Context(), c, listRequest(t, "?sortBy=.metadata.name&limit=7&continue="+first.Continue, api.Representation{}))
	if !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "begin it again") {
		t.Error(err)
	}
}

func TestQueryCounts(t *testing.T) {
	for _, n := range []int{30, 900} {
		b := newQueryBench(t)
		b.fillPhases(n)
		for i := range n {
			b.source.Create(cachetest.Widgets, cachetest.Widget(fmt.Sprintf("ns-%d/w-%05d", i%4, i), "red"))
		}
		pods, widgets := b.collection(cachetest.Pods, api.JSON), b.collection(cachetest.Widgets, api.JSON)
		phases := fmt.Sprintf(`"Failed":%d,"Pending":%d,"Running":%d`, n/3, n/3, n/3)
		for _, tc := range []struct {
			c           *cache.Collection
			path, wants string
			rep         api.Representation
			items       int
		}{
			{c: pods, path: "?resourceVersion=0&limit=0&countBy=.status.phase", wants: fmt.Sprintf(`"metadata":{"kubeweir":{"count":%d,"countBy":[{"path":".status.phase","without":0,"values":{%s}}]},"resourceVersion":`, n, phases)},
			{c: pods, path: "?resourceVersion=0&limit=3&countBy=.status.phase,.metadata.labels.x", wants: fmt.Sprintf(`{"path":".metadata.labels.x","without":%d,"values":{}}]},`, n), items: 3},
			{c: pods, path: "?resourceVersion=0&limit=0&countBy=.metadata.namespace&where=.status.phase=Pending,.metadata.labels.tenth=1", wants: `"without":0,"values":{"ns-`},
			{c: pods, path: "?resourceVersion=0&limit=0&countBy=.status.phase", rep: api.Representation{Transform: api.Table}, wants: phases},
			{c: pods, path: "?resourceVersion=0&limit=2&countBy=.status.phase", rep: api.Representation{Transform: api.PartialMetadata, Pretty: true}, wants: `"path": ".status.phase"`},
			{c: widgets, path: "?resourceVersion=0&limit=2&countBy=.spec.color", wants: fmt.Sprintf(`"metadata":{"kubeweir":{"count":%d,"countBy":[{"path":".spec.color","without":0,"values":{"red":%d}}]},"continue":"`, n, n)},
		} {
			resp, err := b.reader.List(t.Context(), tc.c, listRequest(t, tc.path, tc.rep))
			if err != nil {
				t.Fatal(err)
			}
			body := cachetest.Body(t, resp)
			if !stdjson.Valid(body) || !strings.Contains(string(body), tc.wants) {
				t.Errorf("%s: %.600s", tc.path, body)
			}
		}
	}
}

// TestQueryForms checks that sorted and filtered lists have their order in every form, and that
// unsupported combinations are rejected with a clear message.
func TestQueryForms(t *testing.T) {
	b := newQueryBench(t)
	b.fillPhases(600)
	c := b.collection(cachetest.Pods, api.JSON)
	const path = "?resourceVersion=0&sortBy=-.metadata.name&where=.status.phase=Pending&offset=2&limit=3"
	for name, rep := range representations() {
		if rep.Encoding == api.Protobuf && rep.Transform == api.Table {
			continue
		}
		for _, coding := range []api.Compression{api.Identity, api.Gzip} {
			req := b.transformedRequest(t, path, rep)
			req.Compression = coding
			resp, err := b.reader.List(t.Context(), c, req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			body := string(cachetest.Body(t, resp))
			at := -1
			for _, want := range []string{"web-00592", "web-00589", "web-00586"} {
				next := strings.Index(body, want)
				if next < at || next < 0 {
					t.Errorf("%s: %s is missing or out of order: %.300s", name, want, body)
				}
				at = next
			}
			if strings.Contains(body, "web-00595") || strings.Contains(body, "web-00583") {
				t.Errorf("%s: more than the page", name)
			}
		}
	}
	if resp, err := b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{Encoding: api.CBOR})); err != nil || len(cachetest.Body(t, resp)) == 0 {
		t.Error(err)
	}
	for query, rep := range map[string]api.Representation{
		"fields=.metadata.name":        {Encoding: api.Protobuf},
		"countBy=.metadata.namespace":  {Encoding: api.Protobuf, Transform: api.PartialMetadata},
		"fields=.metadata.annotations": {Transform: api.Table},
		"fields=.metadata.uid":         {Transform: api.PartialMetadata},
		"fields=.metadata.namespace":   {Encoding: api.CBOR, Transform: api.PartialMetadata},
	} {
		_, err := b.reader.List(t.Context(), c, b.transformedRequest(t, "?resourceVersion=0&"+query, rep))
		if !apierrors.IsNotAcceptable(err) || !strings.Contains(err.Error(), "ask for application/json") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestQueryTableColumns checks that lists are sorted, filtered and counted by what kubectl get
// shows, in a small collection and in one with cached columns.
func TestQueryTableColumns(t *testing.T) {
	printer, err := table.NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Color", Type: "string", JSONPath: ".spec.color"}, {Name: "Restarts", Type: "string", JSONPath: ".spec.restarts"},
		{Name: "Nominated Size", Type: "integer", JSONPath: ".spec.size"}, {Name: "Age", Type: "date", JSONPath: ".spec.began"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{40, 400} {
		b := newQueryBench(t)
		b.res[cachetest.Widgets].Printer = printer
		for i := range n {
			w := cachetest.Widget(fmt.Sprintf("ns/w-%03d", i), []string{"red", "green"}[i%2])
			spec := w.Object["spec"].(map[string]any)
			spec["size"] = int64((i * 7) % n)
			if spec["restarts"] = fmt.Sprint(i); i%3 == 0 {
				spec["restarts"] = fmt.Sprint(i, " (5m ago)")
			}
			if i > 0 {
				spec["began"] = time.Unix(1_700_000_000+int64(i)*60, 0).UTC().Format(time.RFC3339)
			}
			b.source.Create(cachetest.Widgets, w)
		}
		c := b.collection(cachetest.Widgets, api.JSON)
		b.now = time.Unix(1_700_000_000+int64(n)*60, 0)
		last := fmt.Sprintf("w-%03d", n-1)
		for query, want := range map[string][]string{
			"sortBy=-name":     {last},
			"sortBy=-Restarts": {last},
			"sortBy=Restarts":  {"w-000", "w-001", "w-002", "w-003"},
			"sortBy=AGE":       {last},
			"sortBy=-Age":      {"w-001"},
			"sortBy='nominated size'&where=Color=green":   {map[int]string{40: "w-023", 400: "w-343"}[n]},
			"sortBy=Color,-Name":                          {last},
			"where=Restarts>5,Restarts<=7,Color in (red)": {"w-006"},
			"where=!Age":                                 {"w-000"},
			"where=age<2m":                               {last},
			"where=Age<=60,name!=x":                      {last},
			"where=Age>0s,Age<3m&sortBy=Age":             {last, fmt.Sprintf("w-%03d", n-2)},
			"where=Age>100y":                             {},
			"where=Age<2020-01-01T00:00:00Z":             {},
			"where=Color<3600":                           {},
			"where=Age>=0,'nominated size'<1&sortBy=age": {},
		} {
			if _, names := b.list(t, c, fmt.Sprintf("?resourceVersion=0&limit=%d&%s", len(want), query)); !slices.Equal(names, want) {
				t.Errorf("%d: %s: %v, want %v", n, query, names, want)
			}
		}
		for query, want := range map[string]string{
			"sortBy=Colour":          `parameter sortBy: the Table of widgets has no column "colour": use a path, such as .metadata.name, or one of the columns Name, Color, Restarts, Nominated Size, Age`,
			"where=size=1":           `parameter where: the Table of widgets has no column "size"`,
			"limit=0&countBy='Nom '": `parameter countBy: the Table of widgets has no column "nom "`,
		} {
			_, err := b.reader.List(t.Context(), c, listRequest(t, "?resourceVersion=0&"+query, api.Representation{}))
			if !apierrors.IsBadRequest(err) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", query, err)
			}
		}
		resp, err := b.reader.List(t.Context(), c, listRequest(t, "?resourceVersion=0&limit=0&countBy=Color", api.Representation{}))
		if err != nil {
			t.Fatal(err)
		}
		if body := string(cachetest.Body(t, resp)); !strings.Contains(body, fmt.Sprintf(`{"path":"color","without":0,"values":{"green":%d,"red":%d}}`, n/2, n/2)) {
			t.Error(body)
		}
	}
}

// TestQueryFields checks projections in JSON and YAML, compressed or not.
func TestQueryFields(t *testing.T) {
	b := newQueryBench(t)
	b.fillPhases(600)
	b.manage()
	c := b.collection(cachetest.Pods, api.JSON)
	const path = "ns-1?resourceVersion=0&limit=1&fields=.metadata.name,.metadata.managedFields[*].manager,.spec.containers[*].image,.nothing"
	item := `{"metadata":{"name":"web-00001","managedFields":[{"manager":"\u003cm0\u003e"}]},"spec":{"containers":[{"image":"registry.example.com/app:1"}]}}`
	resp, err := b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{}))
	if err != nil {
		t.Fatal(err)
	}
	if body := string(cachetest.Body(t, resp)); !strings.Contains(body, `"items":[`+item+"]}\n") {
		t.Error(body)
	}
	resp, err = b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{DropManagedFields: true}))
	if err != nil {
		t.Fatal(err)
	}
	if body := string(cachetest.Body(t, resp)); strings.Contains(body, "manager") || !strings.Contains(body, `{"name":"web-00001"}`) {
		t.Error(body)
	}
	resp, err = b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{YAML: true}))
	if err != nil {
		t.Fatal(err)
	}
	if body := string(cachetest.Body(t, resp)); !strings.Contains(body, "- metadata:\n    managedFields:\n    - manager: <m0>\n") {
		t.Error(body)
	}
	var whole string
	for _, coding := range []api.Compression{api.Identity, api.Gzip, api.Zstd} {
		req := listRequest(t, "?resourceVersion=0&sortBy=.spec.nodeName&fields=.metadata,.spec.nodeName", api.Representation{})
		req.Compression = coding
		if resp, err = b.reader.List(t.Context(), c, req); err != nil {
			t.Fatal(err)
		}
		if body := string(cachetest.Body(t, resp)); whole == "" {
			whole = body
		} else if body != whole || resp.Header.Get("Content-Encoding") != coding.String() {
			t.Errorf("%v: the body differs, or %v", coding, resp.Header)
		}
	}
}

// TestQueryIsBounded checks that columns beyond the limit are dropped and that responses stay
// correct.
func TestQueryIsBounded(t *testing.T) {
	b := newQueryBench(t)
	b.manager = cachetest.NewManager(t, b.source, cache.Limits{QueryBytes: 40_000})
	t.Cleanup(b.manager.Close)
	b.fillPhases(1000)
	c := b.collection(cachetest.Pods, api.JSON)
	for round := range 20 {
		for _, path := range []string{".metadata.name", ".status.phase", ".spec.nodeName", fmt.Sprintf(".metadata.labels['%d']", round)} {
			if _, names := b.list(t, c, "?resourceVersion=0&limit=5&offset=100&sortBy="+path+",.metadata.name"); len(names) != 5 {
				t.Errorf("%v", names)
			}
			if s := cachetest.Status(b.manager, c); s.ColumnBytes > 40_000 {
				t.Fatalf("%d columns have %d bytes", s.Columns, s.ColumnBytes)
			}
		}
		for i := range 30 {
			b.source.Update(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%d/web-%05d", i%4, i), "elsewhere", 2000))
		}
		b.collection(cachetest.Pods, api.JSON)
		if s := cachetest.Status(b.manager, c); s.ColumnBytes > 40_000 {
			t.Fatalf("%d columns have, and pin, %d bytes", s.Columns, s.ColumnBytes)
		}
	}
	if _, err := b.reader.List(t.Context(), c, listRequest(t, "?resourceVersion=0&limit=0&countBy=.metadata.name", api.Representation{})); err != nil {
		t.Error(err)
	}
	for i := range 1001 {
		b.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("other/%d", i), ""))
	}
	b.collection(cachetest.Pods, api.JSON)
	if _, err := b.reader.List(t.Context(), c, listRequest(t, "?resourceVersion=0&limit=0&countBy=.metadata.name", api.Representation{})); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "parameter countBy: .metadata.name has more than 1000 different values") {
		t.Error(err)
	}
}

// TestQueryOfLongValues checks that reading values as large as their objects takes little memory,
// and that long strings are compared by their beginning.
func TestQueryOfLongValues(t *testing.T) {
	const objects, size = 200, 100_000
	b := newQueryBench(t)
	for i := range objects {
		pod := cachetest.Pod(fmt.Sprintf("default/web-%05d", i), "n")
		pod.Annotations = map[string]string{"big": strings.Repeat("x", size) + pod.Name}
		b.source.Create(cachetest.Pods, pod)
	}
	c := b.collection(cachetest.Pods, api.JSON)
	for path, holds := range map[string]int{".metadata.annotations": 0, ".metadata.annotations.big": objects} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, names := b.list(t, c, "?resourceVersion=0&limit=1&offset=3&fields=.metadata.name&sortBy="+path)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > objects*size/4 || len(names) != 1 {
			t.Errorf("%s: %d bytes were allocated for %v", path, allocated, names)
		}
		_, names = b.list(t, c, "?resourceVersion=0&fields=.metadata.name&where="+path)
		if len(names) != holds {
			t.Errorf("%d objects have %s", len(names), path)
		}
	}
}

// TestQueryColumnNames checks columns whose names look like paths, orders or quantities.
func TestQueryColumnNames(t *testing.T) {
	b := newQueryBench(t)
	b.fillPhases(300)
	b.res[cachetest.Pods].Printer = &renamingPrinter{Printer: table.NewDefaultPrinter(), name: "order .metadata.name false false"}
	c := b.collection(cachetest.Pods, api.JSON)
	_, want := b.list(t, c, "?resourceVersion=0&limit=1&sortBy=.metadata.name")
	if _, names := b.list(t, c, "?resourceVersion=0&limit=1&sortBy='order .metadata.name false false'"); !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// renamingPrinter gives its first column another name.
type renamingPrinter struct {
	table.Printer
	name string
}

func (p *renamingPrinter) Columns() []byte {
	return []byte(strings.Replace(string(p.Printer.Columns()), `"name":"Name"`, fmt.Sprintf(`"name":%q`, p.name), 1))
}

// TestQueryColumnsAreRenewed checks that columns nobody uses while much changes are neither dropped
// nor rebuilt from all objects, and retain no more than allowed.
func TestQueryColumnsAreRenewed(t *testing.T) {
	const limit = 400_000
	b := newQueryBench(t)
	b.manager = cachetest.NewManager(t, b.source, cache.Limits{QueryBytes: limit})
	t.Cleanup(b.manager.Close)
	printer := &cachetest.Printer{Printer: table.NewDefaultPrinter()}
	b.res[cachetest.Pods].Printer = printer
	b.fillPhases(1000)
	c := b.collection(cachetest.Pods, api.JSON)
	const query = "?resourceVersion=0&limit=3&sortBy='Created At',.metadata.name"
	b.list(t, c, query)
	changes := int64(0)
	for range 40 {
		for i := range 20 {
			b.source.Update(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%d/web-%05d", i%4, i), "elsewhere", 2000))
			changes++
		}
		b.collection(cachetest.Pods, api.JSON)
		deadline := time.Now().Add(20 * time.Second)
		for s := cachetest.Status(b.manager, c); s.Columns == 0 || s.ColumnBytes > limit*5/8; s = cachetest.Status(b.manager, c) {
			if time.Now().After(deadline) {
				t.Fatalf("%d columns have %d bytes", s.Columns, s.ColumnBytes)
			}
			runtime.Gosched()
		}
	}
	b.list(t, c, query)
	if n := printer.Rows.Load(); n < 1000 || n > 1000+changes {
		t.Errorf("%d rows printed of 1000 objects and %d changes", n, changes)
	}
}
