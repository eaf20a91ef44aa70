package watch_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// coalescedSecret is in every object, where a redacted view does not show it.
const coalescedSecret = "c0nfidential"

// TestRandomCoalescingWatches checks coalescing watches in random forms, with random selectors,
// views and rates. Each ends with the state of an unlimited watch, has sent the same additions and
// deletions in the same order, with ascending versions, and has never sent a secret if it is
// redacted. A list with a query shows the same state.
func TestRandomCoalescingWatches(t *testing.T) {
	for _, seed := range soak.Seeds(t, 2, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { randomCoalescedWatches(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

// coalescedPair is a coalescing watch and the same one without a delivery interval.
type coalescedPair struct {
	rep              api.Representation
	selector         string
	pace             watch.Pace
	coalesced, plain *openWatch
	state            map[string]uint64 // at the end
}

func randomCoalescedWatches(t *testing.T, r *rand.Rand) {
	b := newWatchBench(t, cache.Limits{HistoryEvents: 5000})
	present := map[string]bool{}
	write := func() {
		key := fmt.Sprintf("default/p%d", r.IntN(1+r.IntN(40))) // some change much more often
		pod := cachetest.Pod(key, "", []string{"app=x", "app=x", "app=y"}[r.IntN(3)])
		pod.Spec.Containers = []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "TOKEN", Value: fmt.Sprint(coalescedSecret, r.IntN(1000))}}}}
		switch {
		case !present[key]:
			b.source.Create(cachetest.Pods, pod)
			present[key] = true
		case r.IntN(12) == 0:
			b.source.Delete(cachetest.Pods, key)
			delete(present, key)
		default:
			b.source.Update(cachetest.Pods, pod)
		}
		synctest.Wait()
	}
	for range 30 {
		write()
	}
	var pairs []*coalescedPair
	open := func() {
		p := &coalescedPair{
			rep:      []api.Representation{{}, {Transform: api.Table}, {Transform: api.PartialMetadata}, {Transform: api.PartialMetadata, DropManagedFields: true}}[r.IntN(4)],
			selector: []string{"", "", "&labelSelector=app%3Dx", "&labelSelector=app%21%3Dx"}[r.IntN(4)],
			pace: []watch.Pace{{Coalesce: half}, {Coalesce: 5 * time.Second}, {BytesPerSecond: 1 << 10}, {Coalesce: half, BytesPerSecond: 512},
				{Coalesce: 2 * time.Second, BytesPerSecond: 16 << 10}}[r.IntN(5)],
		}
		p.rep.Redacted = r.IntN(2) == 0
		query := initial + p.selector + "&timeoutSeconds=400"
		p.coalesced, p.plain = b.coalesced(query, p.rep, p.pace), b.watch(query, p.rep)
		pairs = append(pairs, p)
	}
	steps := soak.Cases(1200, 3200)
	for step := range steps {
		if step%(steps/8) == 0 {
			open()
		}
		write()
		time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
	}
	time.Sleep(401 * time.Second)
	for _, p := range pairs {
		p.compare(t)
		p.coalesced.stop()
		p.plain.stop()
	}
	b.compareQuery(t, pairs)
}

// compare compares what was sent.
func (p *coalescedPair) compare(t *testing.T) {
	t.Helper()
	coalesced, plain := readCoalesced(t, p.coalesced.take()), readCoalesced(t, p.plain.take())
	p.state = coalesced.state
	name := fmt.Sprintf("%+v %s %+v", p.rep, p.selector, p.pace)
	if !maps.Equal(coalesced.state, plain.state) || len(coalesced.state) == 0 {
		t.Errorf("%s: ends with\n%v, want\n%v", name, coalesced.state, plain.state)
	}
	if !slices.Equal(coalesced.comings, plain.comings) {
		t.Errorf("%s: additions and deletions\n%v, want\n%v", name, coalesced.comings, plain.comings)
	}
	if !coalesced.rising || !coalesced.ended {
		t.Errorf("%s: ascending %t, ended by a bookmark %t", name, coalesced.rising, coalesced.ended)
	}
	if whole := p.rep.Transform == api.NoTransform; coalesced.secret != (whole && !p.rep.Redacted) {
		t.Errorf("%s: a secret is in it: %t", name, coalesced.secret)
	}
	if coalesced.events > plain.events || p.pace.Coalesce > half && coalesced.events == plain.events {
		t.Errorf("%s: %d events of %d", name, coalesced.events, plain.events)
	}
}

// coalescedRecord is what a client knows from a watch.
type coalescedRecord struct {
	state         map[string]uint64
	comings       []string
	rising, ended bool
	secret        bool
	events        int
}

func readCoalesced(t *testing.T, text string) *coalescedRecord {
	t.Helper()
	c := &coalescedRecord{state: map[string]uint64{}, rising: true, secret: strings.Contains(text, coalescedSecret)}
	begun, last := false, uint64(0)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		kind, name, rv := eventOf(t, line)
		if begun {
			c.rising = c.rising && rv >= last
			last = rv
			c.events++
		}
		c.ended = kind == "BOOKMARK"
		switch kind {
		case "BOOKMARK":
			begun = true
			continue
		case "DELETED":
			delete(c.state, name)
		default:
			c.state[name] = rv
		}
		if kind != "MODIFIED" && begun {
			c.comings = append(c.comings, fmt.Sprint(kind, name, rv))
		}
	}
	return c
}

// compareQuery compares lists with a query with the final state of the watches.
func (b *watchBench) compareQuery(t *testing.T, pairs []*coalescedPair) {
	t.Helper()
	reader := cachetest.NewReader(t, read.Options{})
	for _, p := range pairs {
		params := "resourceVersion=0&sortBy=-.metadata.name&where=" + url.QueryEscape(".spec.containers[0].name='a'") + "&fields=.metadata,.spec" + p.selector
		req := cachetest.ReadRequest(t, "default?"+params, api.Representation{Redacted: p.rep.Redacted})
		req.MostRecent = true
		var err error
		if req.Query, err = query.Parse(api.ParseRequestInfo("GET", "/api/v1/pods", params).Query); err != nil {
			t.Fatal(err)
		}
		resp, err := reader.List(t.Context(), b.c, req)
		if err != nil {
			t.Fatal(err)
		}
		body := string(cachetest.Body(t, resp))
		listed := readCoalescedList(t, body)
		if !maps.Equal(listed, p.state) || strings.Contains(body, coalescedSecret) == p.rep.Redacted {
			t.Errorf("%s: listed\n%v, want\n%v; a secret is in it: %t", p.selector, listed, p.state, strings.Contains(body, coalescedSecret))
		}
	}
}

func readCoalescedList(t *testing.T, body string) map[string]uint64 {
	t.Helper()
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for i := range list.Items {
		got[list.Items[i].Name], _ = api.ParseResourceVersion(list.Items[i].ResourceVersion)
	}
	return got
}
