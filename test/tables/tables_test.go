// Package tables compares the Tables of packages cache/form/table and origin/builtin, made from
// kube-apiserver's JSON, with kube-apiserver's own, byte for byte.
package tables

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/origin/builtin"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/steady"
)

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io"

var includeObjects = []string{"", "None", "Metadata", "Object"}

// env is a kube-apiserver full of objects.
type env struct {
	config   *rest.Config
	client   *http.Client
	printers *builtin.Printers
}

// A resource can be listed and watched.
type resource struct {
	path    string // path of the list in all namespaces
	gvk     schema.GroupVersionKind
	custom  bool
	printer table.Printer
}

func TestTables(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	cluster, err := realkube.Start(ctx, realkube.Options{
		// Every version of every built-in resource.
		FeatureGates: map[string]bool{"AllAlpha": true, "AllBeta": true},
		ExtraArgs:    []string{"--runtime-config=api/all=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &env{config: cluster.AdminConfig(), printers: builtin.NewPrinters()}
	if e.client, err = rest.HTTPClientFor(e.config); err != nil {
		t.Fatal(err)
	}
	createObjects(ctx, t, e.config)
	resources := e.discover(ctx, t)
	if len(resources) < 60 {
		t.Errorf("only %d resources found", len(resources))
	}
	for _, r := range resources {
		t.Run(strings.TrimPrefix(r.path, "/"), func(t *testing.T) {
			t.Run("list", func(t *testing.T) { e.compareLists(ctx, t, r) })
			t.Run("get", func(t *testing.T) { e.compareGets(ctx, t, r) })
			t.Run("watch", func(t *testing.T) { e.compareWatches(ctx, t, r) })
		})
	}
}

// get returns the body of a successful response.
func (e *env) get(ctx context.Context, t *testing.T, path string, query url.Values, accept string) []byte {
	t.Helper()
	body := e.open(ctx, t, path, query, accept)
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (e *env) open(ctx context.Context, t *testing.T, path string, query url.Values, accept string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.config.Host+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.Fatalf("GET %s?%s: %s: %s", path, query.Encode(), resp.Status, data)
	}
	return resp.Body
}

func (e *env) getJSON(ctx context.Context, t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	if err := json.Unmarshal(e.get(ctx, t, path, query, "application/json"), into); err != nil {
		t.Fatal(err)
	}
}

// discover finds all resources that can be listed and watched, with a printer for each.
func (e *env) discover(ctx context.Context, t *testing.T) []resource {
	t.Helper()
	var groups metav1.APIGroupList
	e.getJSON(ctx, t, "/apis", nil, &groups)
	roots := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if g.Name != "nobody.example.com" {
				roots = append(roots, "/apis/"+v.GroupVersion)
			}
		}
	}
	custom := e.customPrinters(ctx, t)
	var found []resource
	for _, root := range roots {
		var list metav1.APIResourceList
		e.getJSON(ctx, t, root, nil, &list)
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			res := resource{path: root + "/" + r.Name, gvk: gv.WithKind(r.Kind)}
			if res.printer, res.custom = custom[gv.WithResource(r.Name)]; !res.custom {
				printer, ok := e.printers.For(res.gvk)
				if !ok {
					t.Errorf("no printer for %s", res.gvk)
					continue
				}
				res.printer = printer
			}
			if res.printer.Traits().NoTables {
				t.Logf("no Tables for %s", res.gvk)
				continue
			}
			found = append(found, res)
		}
	}
	return found
}

func (e *env) customPrinters(ctx context.Context, t *testing.T) map[schema.GroupVersionResource]table.Printer {
	t.Helper()
	var crds apiextensionsv1.CustomResourceDefinitionList
	e.getJSON(ctx, t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", nil, &crds)
	printers := map[schema.GroupVersionResource]table.Printer{}
	for _, crd := range crds.Items {
		for _, v := range crd.Spec.Versions {
			printer, err := table.NewCustomPrinter(v.AdditionalPrinterColumns)
			if err != nil {
				t.Fatal(err)
			}
			printers[schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}] = printer
		}
	}
	return printers
}

// object returns the object of a row from its JSON in a list or event.
func (r *resource) object(t *testing.T, raw []byte, include string) table.Object {
	t.Helper()
	switch include {
	case "None":
		return table.Object{}
	case "Object":
		if !r.custom && !bytes.HasPrefix(raw, []byte(`{"kind":`)) {
			apiVersion, kind := r.gvk.ToAPIVersionAndKind()
			raw = append(fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind, apiVersion), raw[1:]...)
		}
		return table.FullObject(raw, nil)
	}
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	metadata, err := table.HideAnnotations(object.Metadata, r.printer.Traits().HiddenAnnotations)
	if r.custom {
		metadata, err = table.PartialMetadata(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return table.MetadataObject(metadata, nil)
}

func (r *resource) row(t *testing.T, raw []byte) *table.Row {
	t.Helper()
	row, err := r.printer.Row(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return row
}

type rawList struct {
	Metadata metav1.ListMeta   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// table returns the Table of a list, with ages as of now.
func (r *resource) table(t *testing.T, list *rawList, include string, now time.Time) []byte {
	t.Helper()
	type line struct {
		row    *table.Row
		object table.Object
	}
	var lines []line
	for _, raw := range list.Items {
		lines = append(lines, line{r.row(t, raw), r.object(t, raw, include)})
	}
	if r.printer.Traits().Sorted {
		sort.SliceStable(lines, func(i, j int) bool { return lines[i].row.SortKey() < lines[j].row.SortKey() })
	}
	out, tail := table.Frame(r.printer, &list.Metadata, len(lines))
	for i, l := range lines {
		if i > 0 {
			out = append(out, ',')
		}
		out = table.AppendRow(out, l.row, now, l.object)
	}
	return append(out, tail...)
}

// compareLists compares whole lists and pages, at an exact version so that both responses have the
// same state.
func (e *env) compareLists(ctx context.Context, t *testing.T, r resource) {
	var current rawList
	e.getJSON(ctx, t, r.path, url.Values{"limit": {"1"}}, &current)
	exact := url.Values{"resourceVersion": {current.Metadata.ResourceVersion}, "resourceVersionMatch": {"Exact"}}
	paged := url.Values{"limit": {"2"}}
	empty := url.Values{"labelSelector": {"nobody=has-this"}}
	for _, extra := range []url.Values{{}, paged, empty} {
		for _, include := range includeObjects {
			query := merge(exact, extra)
			var list rawList
			e.getJSON(ctx, t, r.path, query, &list)
			withInclude(query, include)
			same(t,
				func() []byte { return e.get(ctx, t, r.path, query, tableAccept) },
				func() []byte { return r.table(t, &list, include, time.Now()) })
		}
	}
}

// compareGets compares the Table of the first object.
func (e *env) compareGets(ctx context.Context, t *testing.T, r resource) {
	var list rawList
	e.getJSON(ctx, t, r.path, nil, &list)
	if len(list.Items) == 0 {
		t.Log("there are no objects")
		return
	}
	var first metav1.PartialObjectMetadata
	if err := json.Unmarshal(list.Items[0], &first); err != nil {
		t.Fatal(err)
	}
	path := r.path
	if first.Namespace != "" {
		i := strings.LastIndexByte(path, '/')
		path = path[:i] + "/namespaces/" + first.Namespace + path[i:]
	}
	path += "/" + first.Name
	for _, include := range includeObjects {
		query := withInclude(url.Values{}, include)
		same(t, func() []byte { return e.get(ctx, t, path, query, tableAccept) }, func() []byte {
			raw := bytes.TrimSpace(e.get(ctx, t, path, nil, "application/json"))
			if err := json.Unmarshal(raw, &first); err != nil {
				t.Fatal(err)
			}
			single := table.Single{
				ResourceVersion: first.ResourceVersion, Columns: r.printer.Columns(),
				Row: r.row(t, raw), Object: r.object(t, raw, include),
			}
			return append(single.Append(nil, time.Now()), '\n')
		})
	}
}

// compareWatches compares the events of a watch up to the bookmark that ends the initial ones.
func (e *env) compareWatches(ctx context.Context, t *testing.T, r resource) {
	for _, include := range includeObjects {
		query := url.Values{
			"watch": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"},
		}
		same(t,
			func() []byte {
				return bytes.Join(e.initialEvents(ctx, t, r.path, withInclude(merge(query), include), tableAccept), nil)
			},
			func() []byte {
				return r.events(t, e.initialEvents(ctx, t, r.path, query, "application/json"), include, time.Now())
			})
	}
}

// events converts the lines of a JSON watch into those of a Table watch.
func (r *resource) events(t *testing.T, plain [][]byte, include string, now time.Time) []byte {
	t.Helper()
	var out []byte
	for i, line := range plain {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		var partial metav1.PartialObjectMetadata
		if err := json.Unmarshal(event.Object, &partial); err != nil {
			t.Fatal(err)
		}
		single := table.Single{ResourceVersion: partial.ResourceVersion}
		if i == 0 || r.printer.Traits().ColumnsInEveryEvent {
			single.Columns = r.printer.Columns()
		}
		objectAs := include
		if event.Type == "BOOKMARK" {
			var err error
			if single.Row, err = table.PrintBookmark(r.printer, event.Object); err != nil {
				t.Fatal(err)
			}
			if include == "None" {
				objectAs = "Metadata"
			}
		} else {
			single.Row = r.row(t, event.Object)
		}
		single.Object = r.object(t, event.Object, objectAs)
		out = append(out, `{"type":"`+event.Type+`","object":`...)
		out = single.Append(out, now)
		out = append(out, "}\n"...)
	}
	return out
}

// initialEvents reads the lines of a watch up to and including the first bookmark.
func (e *env) initialEvents(ctx context.Context, t *testing.T, path string, query url.Values, accept string) [][]byte {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := e.open(ctx, t, path, query, accept)
	defer body.Close()
	reader := bufio.NewReader(body)
	var lines [][]byte
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
		if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			return lines
		}
	}
}

// same fails the test if our response differs from kube-apiserver's.
func same(t *testing.T, kubeAPIServer, ours func() []byte) {
	t.Helper()
	if want, got, same := steady.Compare(kubeAPIServer, ours, bytes.Equal); !same {
		t.Errorf("differs from kube-apiserver: %s", difference(got, want))
	}
}

// difference shows the first difference between two texts.
func difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	cut := func(b []byte) []byte { return b[max(0, i-150):min(len(b), i+200)] }
	return fmt.Sprintf("at byte %d\n got …%s\nwant …%s", i, cut(got), cut(want))
}

func merge(all ...url.Values) url.Values {
	out := url.Values{}
	for _, v := range all {
		for k, s := range v {
			out[k] = s
		}
	}
	return out
}

func withInclude(query url.Values, include string) url.Values {
	if include != "" {
		query.Set("includeObject", include)
	}
	return query
}
