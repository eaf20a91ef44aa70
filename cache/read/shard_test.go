package read_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/sharding"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

func shardQuery(selector string) string { return "&shardSelector=" + url.QueryEscape(selector) }

// withUID gives a pod a random uid.
func withUID(pod *corev1.Pod, random *rand.Rand) *corev1.Pod {
	pod.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", random.Uint32(), random.Uint64()&(1<<48-1)))
	return pod
}

// shardWorld compares pages of shards with what kube-apiserver's watch cache returns for the same
// objects.
type shardWorld struct {
	*readBench
	t      *testing.T
	random *rand.Rand
	c      *cache.Collection
}

func newShardWorld(t *testing.T, n int) *shardWorld {
	w := &shardWorld{readBench: newReadBench(t), t: t, random: rand.New(rand.NewPCG(uint64(n), 7))}
	for i := range n {
		w.source.Create(cachetest.Pods, withUID(cachetest.Pod(fmt.Sprintf("ns-%02d/pod-%04d", i%13, i), fmt.Sprintf("node-%d", i%5), fmt.Sprintf("tenth=%d", i%10)), w.random))
	}
	w.c = w.collection(cachetest.Pods, api.JSON)
	return w
}

// randomShard returns a selector of one or more ranges.
func (w *shardWorld) randomShard() string {
	field := []string{"uid", "uid", "namespace"}[w.random.IntN(3)]
	var parts []string
	for range 1 + w.random.IntN(3) {
		n := uint64(1 + w.random.IntN(60))
		parts = append(parts, cachetest.ShardOf(field, w.random.Uint64N(n), n))
	}
	return strings.Join(parts, " || ")
}

// shardPage is one request in the terms of the oracle.
type shardPage struct {
	namespace, label, shard, token string
	limit                          int
	rv                             uint64 // exact version, 0 for the latest
}

// want returns what kube-apiserver's watch cache returns (cacher.GetList).
func (w *shardWorld) want(p shardPage) (names []string, meta metav1.ListMeta) {
	rv := p.rv
	if rv == 0 {
		rv = w.c.RV()
	}
	start := ""
	if p.token != "" {
		token, err := api.DecodeContinue(p.token)
		if err != nil {
			w.t.Fatal(err)
		}
		start, rv = token.Start, uint64(token.ResourceVersion)
	}
	selector, err := sharding.Parse(p.shard)
	if err != nil {
		w.t.Fatal(err)
	}
	byLabel, err := labels.Parse(p.label)
	if err != nil {
		w.t.Fatal(err)
	}
	prefix := ""
	if p.namespace != "" {
		prefix = p.namespace + "/"
	}
	var items []cachetest.Object
	for _, o := range w.source.ObjectsAt(cachetest.Pods, rv) {
		if key := o.GetNamespace() + "/" + o.GetName(); strings.HasPrefix(key, prefix) && key >= prefix+start {
			items = append(items, o)
		}
	}
	more := false
	for i, o := range items {
		if matches, _ := selector.Matches(o); matches && byLabel.Matches(labels.Set(o.GetLabels())) {
			names = append(names, o.GetName())
			if p.limit > 0 && len(names) == p.limit {
				more = i < len(items)-1
				start = strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), prefix) + "\x00"
				break
			}
		}
	}
	meta.ResourceVersion = strconv.FormatUint(rv, 10)
	meta.ShardInfo = &metav1.ShardInfo{Selector: selector.String()}
	if more {
		meta.Continue = api.ContinueToken{ResourceVersion: int64(rv), Start: start}.Encode()
	}
	return names, meta
}

// check reads a page, compares it and returns the token of the next one.
func (w *shardWorld) check(p shardPage) string {
	w.t.Helper()
	query := "?labelSelector=" + url.QueryEscape(p.label) + shardQuery(p.shard)
	if p.limit > 0 {
		query += fmt.Sprintf("&limit=%d", p.limit)
	}
	switch {
	case p.token != "":
		query += "&continue=" + p.token
	case p.rv > 0:
		query += fmt.Sprintf("&resourceVersion=%d&resourceVersionMatch=Exact", p.rv)
	}
	req := cachetest.ReadRequest(w.t, p.namespace+query, api.Representation{})
	req.MostRecent = true
	resp, err := w.reader.List(w.t.Context(), w.c, req)
	if err != nil {
		w.t.Fatalf("%+v: %v", p, err)
	}
	body := cachetest.Body(w.t, resp)
	var got struct {
		Metadata metav1.ListMeta
		Items    []struct{ Metadata metav1.ObjectMeta }
	}
	if err := stdjson.Unmarshal(body, &got); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, i := range got.Items {
		names = append(names, i.Metadata.Name)
	}
	wantNames, wantMeta := w.want(p)
	gotMeta, _ := stdjson.Marshal(got.Metadata)
	want, _ := stdjson.Marshal(wantMeta)
	if !slices.Equal(names, wantNames) || !bytes.Equal(gotMeta, want) {
		w.t.Fatalf("%+v:\n got %v %s\nwant %v %s", p, names, gotMeta, wantNames, want)
	}
	return wantMeta.Continue
}

// TestListShard reads random shards, whole and in pages, in all scopes and at past versions, before
// an index exists, with one, and while objects change.
func TestListShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newShardWorld(t, 700)
		synctest.Wait()
		for round := range soak.Cases(80, 4000) {
			if i := round % 700; round%3 == 0 {
				key := fmt.Sprintf("ns-%02d/pod-%04d", i%13, i)
				if round%2 == 0 {
					w.source.Update(cachetest.Pods, cachetest.Pod(key, "moved", fmt.Sprintf("tenth=%d", round%10)))
				} else {
					w.source.Delete(cachetest.Pods, key)
					w.source.Create(cachetest.Pods, withUID(cachetest.Pod(key, "again"), w.random)) // with another uid
				}
				synctest.Wait()
			}
			p := shardPage{shard: w.randomShard()}
			if w.random.IntN(3) == 0 {
				p.namespace = fmt.Sprintf("ns-%02d", w.random.IntN(14))
			}
			if w.random.IntN(4) == 0 {
				p.label = "tenth in (1,4)"
			}
			if round > 20 && w.random.IntN(4) == 0 {
				p.rv = w.c.RV() - uint64(w.random.IntN(5))
			}
			if w.random.IntN(2) == 0 {
				p.limit = 1 + w.random.IntN(80)
			}
			for p.token = w.check(p); p.token != ""; p.token = w.check(p) {
			}
		}
		if n := cachetest.Status(w.manager, w.c).Indexes; n < 2 {
			t.Errorf("%d indexes", n)
		}
		if broken := w.c.CheckInvariants(); broken != "" {
			t.Error(broken)
		}
	})
}

// TestShardIndexIsBuiltAndDropped checks that the first sharded read of a large collection creates
// an index, and that it is dropped after a long time without one.
func TestShardIndexIsBuiltAndDropped(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 300 {
			s.Create(cachetest.Pods, withUID(cachetest.Pod(fmt.Sprintf("a/%d", i), ""), random))
		}
		c := cachetest.PodCollection(t, m)
		reader := cachetest.NewReader(t, read.Options{})
		read := func(query string) {
			t.Helper()
			if _, err := reader.List(t.Context(), c, cachetest.ReadRequest(t, "?resourceVersion=0"+query, api.Representation{})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		expect := func(want int) {
			t.Helper()
			if n := cachetest.Status(m, c).Indexes; n != want {
				t.Errorf("%d indexes, want %d", n, want)
			}
			if broken := c.CheckInvariants(); broken != "" {
				t.Error(broken)
			}
		}
		read("")
		read(shardQuery(cachetest.ShardOf("uid", 1, 5))) // visiting all objects costs less
		expect(0)
		read(shardQuery(cachetest.ShardOf("uid", 0, 8)))
		expect(1)
		read(shardQuery(cachetest.ShardOf("uid", 3, 8)))
		expect(1)
		read(shardQuery(cachetest.ShardOf("namespace", 0, 8)))
		expect(2)
		for range 60 {
			cachetest.PodCollection(t, m)
			time.Sleep(15 * time.Second)
			read(shardQuery(cachetest.ShardOf("uid", 0, 8)))
		}
		expect(1)
		for range 60 {
			cachetest.PodCollection(t, m)
			time.Sleep(15 * time.Second)
		}
		expect(0)
	})
}

// TestShardForms checks what a list says about its shard in each form, and the bytes of a protobuf
// list.
func TestShardForms(t *testing.T) {
	b := newReadBench(t)
	b.fill(40, 900)
	selector := cachetest.ShardOf("uid", 1, 2)
	parsed, err := sharding.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	for name, rep := range representations() {
		if rep.Transform == api.Table && rep.Encoding == api.Protobuf {
			continue
		}
		c := b.collection(cachetest.Pods, rep.Encoding)
		objs := filterObjects(b.source.Objects(cachetest.Pods), func(o cachetest.Object) bool {
			matches, _ := parsed.Matches(o)
			return matches
		})
		req := cachetest.ReadRequest(t, "?resourceVersion=0"+shardQuery(selector), rep)
		resp, err := b.reader.List(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		body := cachetest.Body(t, resp)
		if rep.Transform == api.Table {
			if bytes.Contains(body, []byte("shardInfo")) || bytes.Count(body, []byte(`"cells"`)) != len(objs) {
				t.Errorf("%s: %.300s", name, body)
			}
			continue
		}
		meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(c.RV(), 10)}
		if rep.Transform == api.NoTransform {
			meta.ShardInfo = &metav1.ShardInfo{Selector: selector}
		}
		if want := expected(t, c.Resource(), objs, meta, rep); !bytes.Equal(body, want) {
			t.Errorf("%s:\n got %.400q\nwant %.400q", name, body, want)
		}
	}
	widgets := b.collection(cachetest.Widgets, api.JSON)
	resp, err := b.reader.List(t.Context(), widgets, cachetest.ReadRequest(t, "?resourceVersion=0"+shardQuery(cachetest.ShardOf("uid", 0, 1)), api.Representation{}))
	if err != nil {
		t.Fatal(err)
	}
	if body := cachetest.Body(t, resp); bytes.Contains(body, []byte("shardInfo")) || bytes.Count(body, []byte(`"kind":"Widget"`)) != 4 {
		t.Errorf("%.400s", body) // lists without a Go type do not have it
	}
}

// TestInvalidShardSelectorsAreRejected checks that invalid selectors get upstream's message before
// anything else is examined.
func TestInvalidShardSelectorsAreRejected(t *testing.T) {
	b := newReadBench(t)
	b.fill(10, 600)
	c := b.collection(cachetest.Pods, api.JSON)
	for _, selector := range []string{"x", " ", "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')"} {
		_, want := sharding.Parse(selector)
		_, err := b.reader.List(t.Context(), c, cachetest.ReadRequest(t, "?resourceVersion=99999"+shardQuery(selector), api.Representation{}))
		if status := api.StatusOf(err); err == nil || status.Code != 500 || status.Reason != "" || status.Message != "invalid shard selector: "+want.Error() {
			t.Errorf("%q: %+v", selector, err)
		}
	}
}

// TestShardsAddUp checks that n shards are the whole list, each with its part of the bytes.
func TestShardsAddUp(t *testing.T) {
	const n, objects = 8, 4000
	b := newReadBench(t)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range objects {
		b.source.Create(cachetest.Pods, withUID(cachetest.Pod(fmt.Sprintf("ns-%d/pod-%05d", i%7, i), "node"), random))
	}
	c := b.collection(cachetest.Pods, api.JSON)
	names := map[string]bool{}
	for i := range uint64(n) {
		resp, err := b.reader.List(t.Context(), c, cachetest.ReadRequest(t, "?resourceVersion=0"+shardQuery(cachetest.ShardOf("uid", i, n)), api.Representation{}))
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.PodList
		if err := stdjson.Unmarshal(cachetest.Body(t, resp), &list); err != nil {
			t.Fatal(err)
		}
		for _, pod := range list.Items {
			if names[pod.Name] {
				t.Errorf("%s is in two shards", pod.Name)
			}
			names[pod.Name] = true
			if hash := "0x" + apisharding.HashField(string(pod.UID)); fmt.Sprintf("%x", i*2) != hash[2:3] && fmt.Sprintf("%x", i*2+1) != hash[2:3] {
				t.Errorf("%s is in shard %d", hash, i)
			}
		}
	}
	if len(names) != objects {
		t.Errorf("%d objects in all shards", len(names))
	}
}

// BenchmarkListShard reads 8 shards of 5,000 pods, and one full list for comparison.
func BenchmarkListShard(b *testing.B) {
	r, random := newReadBench(b), rand.New(rand.NewPCG(5, 6))
	for i := range 5000 {
		r.source.Create(cachetest.Pods, withUID(cachetest.BigPod(fmt.Sprintf("ns-%02d/web-%05d", i%20, i), fmt.Sprintf("node-%03d", i%200), 6000, "app=web"), random))
	}
	c := r.collection(cachetest.Pods, api.JSON)
	var all int64
	list := func(b *testing.B, query string) int64 {
		resp, err := r.reader.List(context.Background(), c, cachetest.ReadRequest(b, "?resourceVersion=0"+query, api.Representation{}))
		if err != nil {
			b.Fatal(err)
		}
		return drain(b, resp)
	}
	b.Run("full", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			all = list(b, "")
		}
	})
	const n = 8
	var shards [n]string
	for i := range shards {
		shards[i] = shardQuery(cachetest.ShardOf("uid", uint64(i), n))
	}
	for list(b, shards[0]); cachetest.Status(r.manager, c).Indexes == 0; {
		time.Sleep(time.Millisecond) // built in the background
	}
	r.source.Update(cachetest.Pods, cachetest.BigPod("ns-00/web-00000", "node-000", 6000, "app=web"))
	r.collection(cachetest.Pods, api.JSON)
	b.Run("8 shards", func(b *testing.B) {
		b.ReportAllocs()
		most := int64(0)
		for b.Loop() {
			for _, shard := range shards {
				most = max(most, list(b, shard))
			}
		}
		b.ReportMetric(float64(most)/float64(all), "largest/full")
	})
}
