package query_test

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// queryPaths are the paths of random queries.
var queryPaths = []string{
	".metadata.name", ".metadata.namespace", ".metadata.creationTimestamp", `.metadata.labels.app\.kubernetes\.io/name`, ".metadata.annotations.note",
	".spec.number", ".spec.float", ".spec.text", ".spec.flag", ".spec.any", ".spec.quantity", ".spec.time", ".spec.list[1].x", ".spec.list[0]",
	".status.conditions[?(@.type==\"Ready\")].status", ".spec", ".nothing.there",
}

var queryTexts = []string{"", "a", "b", "ab", "A", "é", "<ab>", "1", "10", "9", "500m", "1Gi", "true", "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "x,y"}

// randomWidget returns a custom object with random content.
func randomWidget(r *rand.Rand, key string) *unstructured.Unstructured {
	text := func() any { return queryTexts[r.IntN(len(queryTexts))] }
	anything := []func() any{
		text, func() any { return int64(r.IntN(20) - 5) }, func() any { return float64(r.IntN(8)) / 4 }, func() any { return r.IntN(2) == 0 }, func() any { return nil },
		func() any { return []any{text(), map[string]any{"x": text()}} }, func() any { return map[string]any{"type": "Ready", "x": text()} },
		func() any { return int64(9007199254740990) + int64(r.IntN(6)) },
	}
	w := cachetest.Widget(key, "red")
	spec := map[string]any{"color": "red"}
	set := func(name string, value any) {
		if r.IntN(5) > 0 {
			spec[name] = value
		}
	}
	set("number", int64(r.IntN(6)))
	set("float", float64(r.IntN(40))/8)
	set("text", text())
	set("flag", r.IntN(2) == 0)
	set("any", anything[r.IntN(len(anything))]())
	set("quantity", fmt.Sprint(r.IntN(5), []string{"", "m", "Ki", "Mi", "M", "k"}[r.IntN(6)]))
	set("time", time.Unix(1767225600+int64(r.IntN(8))*5_000_000, 0).UTC().Format(time.RFC3339))
	set("list", []any{anything[r.IntN(len(anything))](), map[string]any{"x": anything[r.IntN(len(anything))]()}})
	w.Object["spec"] = spec
	if r.IntN(3) > 0 {
		w.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Other", "status": "False"}, map[string]any{"type": "Ready", "status": text()}}}
	}
	if r.IntN(3) > 0 {
		w.SetLabels(map[string]string{"app.kubernetes.io/name": []string{"web", "db"}[r.IntN(2)]})
	}
	if r.IntN(3) > 0 {
		w.SetAnnotations(map[string]string{"note": queryTexts[r.IntN(len(queryTexts))]})
	}
	return w
}

// randomQuery is a query in the terms of the oracle.
type randomQuery struct {
	namespace string
	label     bool
	sort      []sortKey
	where     []randomCondition
	offset    int
	limit     int
	countBy   []string
	fields    bool
}

type sortKey struct {
	path       string
	descending bool
}

type randomCondition struct {
	path, op string
	values   []string
}

func newRandomQuery(r *rand.Rand) (q randomQuery) {
	path := func() string { return queryPaths[r.IntN(len(queryPaths))] }
	if r.IntN(3) == 0 {
		q.namespace = fmt.Sprint("ns-", r.IntN(3))
	}
	q.label = r.IntN(4) == 0
	for range r.IntN(4) {
		q.sort = append(q.sort, sortKey{path(), r.IntN(2) == 0})
	}
	ops := []string{"", "!", "=", "!=", "~", "!~", "<", "<=", ">", ">=", "in", "notin"}
	for range r.IntN(3) {
		c := randomCondition{path: path(), op: ops[r.IntN(len(ops))]}
		switch c.op {
		case "", "!":
		case "<", "<=", ">", ">=":
			c.values = []string{[]string{"1", "500m", "2Ki", "0.5", "2026-02-01T00:00:00Z", "9007199254740992"}[r.IntN(6)]}
		case "in", "notin":
			for range 1 + r.IntN(3) {
				c.values = append(c.values, queryTexts[r.IntN(len(queryTexts))])
			}
		default:
			c.values = []string{queryTexts[r.IntN(len(queryTexts))]}
		}
		q.where = append(q.where, c)
	}
	if r.IntN(2) == 0 {
		q.limit = 1 + r.IntN(60)
	}
	if r.IntN(3) == 0 {
		q.offset = r.IntN(100)
	}
	for range r.IntN(2) {
		q.countBy = append(q.countBy, path())
	}
	q.fields = r.IntN(4) == 0
	return q
}

func (q *randomQuery) String() string {
	parts := []string{"resourceVersion=0"}
	var sort, where []string
	for _, k := range q.sort {
		if k.descending {
			k.path = "-" + k.path
		}
		sort = append(sort, k.path)
	}
	for _, c := range q.where {
		quoted := make([]string, len(c.values))
		for i, v := range c.values {
			quoted[i] = "'" + v + "'"
		}
		switch c.op {
		case "!":
			where = append(where, "!"+c.path)
		case "in", "notin":
			where = append(where, c.path+" "+c.op+" ("+strings.Join(quoted, ",")+")")
		default:
			where = append(where, c.path+c.op+strings.Join(quoted, ""))
		}
	}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("sortBy", strings.Join(sort, ","))
	add("where", strings.Join(where, ","))
	add("countBy", strings.Join(q.countBy, ","))
	if q.limit > 0 {
		add("limit", strconv.Itoa(q.limit))
	}
	add("offset", strconv.Itoa(q.offset))
	if q.label {
		add("labelSelector", "app.kubernetes.io/name=web")
	}
	if q.fields {
		add("fields", ".metadata.name,.spec.list[*].x,.spec.any")
	}
	return q.namespace + "?" + strings.Join(parts, "&")
}

// oracle computes responses from decoded objects with client-go's JSONPath.
type oracle struct {
	t     *testing.T
	paths map[string]*jsonpath.JSONPath
}

// value returns the value at a path, nil if it cannot be compared.
func (o *oracle) value(object map[string]any, path string) any {
	p := o.paths[path]
	if p == nil {
		p = jsonpath.New(path).AllowMissingKeys(true)
		if err := p.Parse("{" + path + "}"); err != nil {
			o.t.Fatal(err)
		}
		o.paths[path] = p
	}
	results, err := p.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || !results[0][0].IsValid() {
		return nil
	}
	switch v := results[0][0].Interface().(type) {
	case bool, int64, float64, string:
		return v
	}
	return nil
}

func rankOf(v any) int {
	switch v.(type) {
	case bool:
		return 1
	case int64, float64:
		return 2
	case string:
		return 3
	}
	return 0
}

// compareDecoded orders values that are not nil.
func compareDecoded(a, b any) int {
	if c := cmp.Compare(rankOf(a), rankOf(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case bool:
		return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
	case string:
		return cmp.Compare(a, b.(string))
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	}
	return cmp.Compare(number(a), number(b))
}

func number(v any) float64 {
	if i, ok := v.(int64); ok {
		return float64(i)
	}
	return v.(float64)
}

func textOf(v any) string {
	if rankOf(v) == 2 {
		data, _ := stdjson.Marshal(v)
		return string(data)
	}
	return fmt.Sprint(v)
}

func (o *oracle) holds(v any, c randomCondition) bool {
	equals := func(text string) bool {
		if v == nil {
			return false
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && rankOf(v) == 2 {
			return number(v) == n
		}
		return textOf(v) == text
	}
	switch c.op {
	case "":
		return v != nil
	case "!":
		return v == nil
	case "=", "in":
		return slices.ContainsFunc(c.values, equals)
	case "!=", "notin":
		return !slices.ContainsFunc(c.values, equals)
	case "~":
		return v != nil && strings.Contains(textOf(v), c.values[0])
	case "!~":
		return v == nil || !strings.Contains(textOf(v), c.values[0])
	}
	order, ok := compareWith(v, c.values[0])
	switch c.op {
	case "<":
		return ok && order < 0
	case "<=":
		return ok && order <= 0
	case ">":
		return ok && order > 0
	}
	return ok && order >= 0
}

func compareWith(v any, text string) (order int, ok bool) {
	if v == nil || rankOf(v) == 1 {
		return 0, false
	}
	if want, err := time.Parse(time.RFC3339, text); err == nil {
		got, err := time.Parse(time.RFC3339, textOf(v))
		return got.Compare(want), err == nil && rankOf(v) == 3
	}
	want := resource.MustParse(text)
	if rankOf(v) == 2 {
		return cmp.Compare(number(v), want.AsApproximateFloat64()), true
	}
	got, err := resource.ParseQuantity(textOf(v))
	return got.Cmp(want), err == nil
}

// respond returns the expected objects of the page, and all objects that the query selects.
func (o *oracle) respond(q *randomQuery, objs []cachetest.Object) (page []map[string]any, all []map[string]any) {
	for _, obj := range objs {
		data, err := stdjson.Marshal(obj)
		if err != nil {
			o.t.Fatal(err)
		}
		u := new(unstructured.Unstructured)
		if err := u.UnmarshalJSON(data); err != nil {
			o.t.Fatal(err)
		}
		keep := (q.namespace == "" || u.GetNamespace() == q.namespace) && (!q.label || u.GetLabels()["app.kubernetes.io/name"] == "web")
		for _, c := range q.where {
			keep = keep && o.holds(o.value(u.Object, c.path), c)
		}
		if keep {
			all = append(all, u.Object)
		}
	}
	slices.SortStableFunc(all, func(a, b map[string]any) int {
		for _, key := range q.sort {
			x, y := o.value(a, key.path), o.value(b, key.path)
			switch {
			case x == nil && y == nil:
				continue
			case x == nil:
				return 1
			case y == nil:
				return -1
			}
			if c := compareDecoded(x, y); c != 0 && key.descending {
				return -c
			} else if c != 0 {
				return c
			}
		}
		return 0
	})
	page = all[min(q.offset, len(all)):]
	if q.limit > 0 {
		page = page[:min(q.limit, len(page))]
	}
	return page, all
}

// TestRandomQueries compares responses to random queries with the oracle's while objects are
// created, changed and deleted, several at one version too, and sometimes more between two queries
// than the history holds.
func TestRandomQueries(t *testing.T) {
	seed := soak.Seed(t)
	for n, rounds := range map[int]int{120: soak.Cases(20, 60), 700: soak.Cases(10, 25)} { // the second size uses cached columns
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), seed))
			const history = 40
			b := newLimitedQueryBench(t, cache.Limits{HistoryEvents: history})
			for i := range n {
				b.source.Create(cachetest.Widgets, randomWidget(r, fmt.Sprintf("ns-%d/w-%04d", r.IntN(3), i)))
			}
			o := &oracle{t: t, paths: map[string]*jsonpath.JSONPath{}}
			for round := range rounds {
				c := b.collection(cachetest.Widgets, api.JSON)
				if err := c.WaitFor(t.Context(), b.source.Revision(), 20*time.Second); err != nil { // also deletions
					t.Fatal(err)
				}
				q := newRandomQuery(r)
				b.checkQuery(t, c, o, &q)
				changes := r.IntN(8)
				if round%7 == 3 {
					changes += history
				}
				for range changes {
					b.changeRandomly(r, n+round)
				}
				if changes > 0 { // it is unknown which of several changes of one version is the last
					objs := b.source.Objects(cachetest.Widgets)
					b.source.Update(cachetest.Widgets, randomWidget(r, keyOf(objs[r.IntN(len(objs))])))
				}
			}
		})
	}
}

func (b *queryBench) changeRandomly(r *rand.Rand, next int) {
	objs := b.source.Objects(cachetest.Widgets)
	key := keyOf(objs[r.IntN(len(objs))])
	switch r.IntN(8) {
	case 0:
		b.source.Delete(cachetest.Widgets, key)
	case 1:
		var keys []string
		for _, i := range r.Perm(len(objs))[:2+r.IntN(3)] {
			keys = append(keys, keyOf(objs[i]))
		}
		b.source.DeleteTogether(cachetest.Widgets, keys...)
	case 2, 3, 4:
		b.source.Create(cachetest.Widgets, randomWidget(r, fmt.Sprintf("ns-%d/n-%04d-%d", r.IntN(3), next, r.Uint32())))
	default:
		b.source.Update(cachetest.Widgets, randomWidget(r, key))
	}
}

func keyOf(o cachetest.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// leftOf returns what the fields of random queries leave of an object.
func leftOf(object map[string]any) map[string]any {
	whole := object["spec"].(map[string]any)
	spec := map[string]any{}
	if v, ok := whole["any"]; ok {
		spec["any"] = v
	}
	if list, ok := whole["list"].([]any); ok {
		left := []any{}
		for _, element := range list {
			if o, ok := element.(map[string]any); ok {
				one := map[string]any{}
				if x, ok := o["x"]; ok {
					one["x"] = x
				}
				left = append(left, one)
			}
		}
		spec["list"] = left
	}
	return map[string]any{"metadata": map[string]any{"name": object["metadata"].(map[string]any)["name"]}, "spec": spec}
}

func (b *queryBench) checkQuery(t *testing.T, c *cache.Collection, o *oracle, q *randomQuery) {
	t.Helper()
	path := q.String()
	page, all := o.respond(q, b.source.Objects(cachetest.Widgets))
	resp, err := b.reader.List(t.Context(), c, listRequest(t, path, api.Representation{}))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var list struct {
		Metadata struct {
			metav1.ListMeta
			Kubeweir struct {
				Count   int
				CountBy []struct {
					Path    string
					Without int
					Values  map[string]int
				}
			}
		}
		Items []map[string]any
	}
	body := cachetest.Body(t, resp)
	b.checkQueryInCBOR(t, c, path, body)
	decoder := stdjson.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var got, want []string
	for _, item := range list.Items {
		got = append(got, item["metadata"].(map[string]any)["name"].(string))
	}
	for i := 0; q.fields && i < min(len(page), len(list.Items)); i++ {
		got, _ := stdjson.Marshal(list.Items[i])
		if want, _ := stdjson.Marshal(leftOf(page[i])); string(got) != string(want) {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
	for _, object := range page {
		want = append(want, object["metadata"].(map[string]any)["name"].(string))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %v\nwant %v", path, got, want)
	}
	remaining := int64(max(0, len(all)-q.offset-len(page)))
	if (list.Metadata.Continue != "") != (remaining > 0) || remaining > 0 && *list.Metadata.RemainingItemCount != remaining {
		t.Errorf("%s: %+v, want %d remaining", path, list.Metadata.ListMeta, remaining)
	}
	for i, path := range q.countBy {
		counted := list.Metadata.Kubeweir.CountBy[i]
		values, without := map[string]int{}, 0
		for _, object := range all {
			if v := o.value(object, path); v != nil {
				values[textOf(v)]++
			} else {
				without++
			}
		}
		if list.Metadata.Kubeweir.Count != len(all) || counted.Without != without || fmt.Sprint(counted.Values) != fmt.Sprint(values) {
			t.Errorf("%s: %+v, want %v and %d without", q, counted, values, without)
		}
	}
}
