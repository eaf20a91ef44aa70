package usage

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// start is when tests begin: with a pane.
var start = time.Unix(1_700_000_000, 0).Truncate(shortPane)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func newUsage(c *clock) *Usage { return New(Options{Now: func() time.Time { return c.now }}) }

// pass lets time pass.
func (c *clock) pass(u *Usage, d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		step := min(time.Second, end.Sub(c.now))
		c.now = c.now.Add(step)
		u.Tick(c.now)
	}
}

func row(rows []Row, name string) Row {
	for _, r := range rows {
		if r.Name == name {
			return r
		}
	}
	return Row{}
}

var (
	pods        = Resource{Resource: "pods"}
	deployments = Resource{Group: "apps", Resource: "deployments"}
)

// TestWindows: what is older than a window, and a pane, is not in it.
func TestWindows(t *testing.T) {
	c := &clock{now: start}
	u := newUsage(c)
	for i := range 2 * 3600 { // a request of jane's each second, one of joe's each minute
		u.Add(Client{"jane", "k9s", pods}, Cost{Requests: 1, Bytes: 10})
		if i%60 == 0 {
			u.Add(Client{"joe", "kubectl", deployments}, Cost{Requests: 1, Bytes: 1000, UpstreamRequests: 1, UpstreamBytes: 5000})
		}
		c.pass(u, time.Second)
		if i%97 != 0 {
			continue
		}
		for w, least := range map[Window]time.Duration{Minute: time.Minute, Hour: time.Hour} {
			most := least + least/6
			r := u.Top(Query{K: 10, Window: w}, c.now)
			covers := min(least, time.Duration(i+1)*time.Second)
			if r.Covers < covers || r.Covers > most {
				t.Fatalf("after %d s a window of %v covers %v", i+1, least, r.Covers)
			}
			if got, want := row(r.Users, "jane").Requests, int64(r.Covers/time.Second); got != want || row(r.Users, "jane").Bytes != 10*want {
				t.Fatalf("after %d s, of %v: %d requests", i+1, r.Covers, got)
			}
			if sum := row(r.Users, "jane").Requests + row(r.Users, "joe").Requests; r.Total.Requests != sum || row(r.Resources, "pods").Requests != row(r.UserAgents, "k9s").Requests {
				t.Fatalf("%+v", r)
			}
		}
	}
	if r := u.Top(Query{K: 1, Window: Hour, By: func(r *Row) float64 { return r.UpstreamBytes }}, c.now); len(r.Users) != 1 || r.Users[0].Name != "joe" || r.Resources[0].Name != "deployments.apps" {
		t.Errorf("by the upstream's bytes: %+v", r)
	}
	c.pass(u, 90*time.Minute)
	if r := u.Top(Query{K: 10, Window: Hour}, c.now); len(r.Users) != 0 || r.Total.Requests != 0 {
		t.Errorf("long after: %+v", r)
	}
}

// TestPause: a process that was stopped for a while counts nothing twice.
func TestPause(t *testing.T) {
	c := &clock{now: start}
	u := newUsage(c)
	u.Add(Client{User: "jane"}, Cost{Requests: 1})
	c.now = c.now.Add(20 * time.Minute)
	u.Tick(c.now)
	u.Add(Client{User: "jane"}, Cost{Requests: 1})
	if r := u.Top(Query{K: 1, Window: Hour}, c.now); r.Users[0].Requests != 2 {
		t.Errorf("%+v", r)
	}
	if r := u.Top(Query{K: 1, Window: Minute}, c.now); r.Users[0].Requests != 1 {
		t.Errorf("%+v", r)
	}
}

// TestStreams: what a watch sends counts while it is open.
func TestStreams(t *testing.T) {
	c := &clock{now: start}
	u := newUsage(c)
	charged := int64(0)
	watch := u.Open(Client{"jane", "k9s", pods}, StreamOptions{Price: Price{Request: 1000, Byte: 1}, End: func() {}})
	logs := u.Open(Client{"joe", "kubectl", Resource{Resource: "pods", Subresource: "log"}}, StreamOptions{
		Upstream: true, Charge: func(n int64) bool { charged += n; return false }, End: func() {},
	})
	for range 3600 {
		watch.Wrote(100)
		logs.Wrote(10)
		c.pass(u, time.Second)
	}
	r := u.Top(Query{K: 10, By: func(r *Row) float64 { return float64(r.Bytes) }}, c.now)
	seconds := int64(r.Covers / time.Second)
	if jane := row(r.Users, "jane"); jane.Bytes != 100*seconds || jane.Watches != 1 || jane.Requests != 0 || jane.CPUSeconds == 0 {
		t.Errorf("a watch: %+v in %d s", jane, seconds)
	}
	if joe := row(r.Users, "joe"); joe.UpstreamBytes != float64(10*seconds) || charged != 10*3600 {
		t.Errorf("followed logs: %+v in %d s, charged %d", joe, seconds, charged)
	}
	if row(r.Resources, "pods/log").Watches != 1 || r.Total.Watches != 2 {
		t.Errorf("%+v", r)
	}
	watch.Wrote(7)
	watch.Close()
	logs.Close()
	if after := u.Top(Query{K: 10}, c.now); row(after.Users, "jane").Bytes != 100*seconds+7 || after.Total.Watches != 0 {
		t.Errorf("closed: %+v", after)
	}
	// One that says nothing is there all the same.
	c.pass(u, 2*time.Hour)
	quiet := u.Open(Client{User: "quiet"}, StreamOptions{End: func() {}})
	defer quiet.Close()
	if r := u.Top(Query{K: 1, By: func(r *Row) float64 { return float64(r.Watches) }}, c.now); r.Users[0].Name != "quiet" {
		t.Errorf("%+v", r)
	}
	if n := testing.AllocsPerRun(100, func() { quiet.Wrote(1) }); n != 0 {
		t.Errorf("%v allocations for a write", n)
	}
}

// TestEnd: the streams that match are told to end.
func TestEnd(t *testing.T) {
	u := newUsage(&clock{now: start})
	ended := make(map[string]int)
	for _, agent := range []string{"k9s/1", "k9s/2", "kubectl"} {
		defer u.Open(Client{UserAgent: agent}, StreamOptions{End: func() { ended[agent]++ }}).Close()
	}
	if n := u.End(func(s *Stream) bool { return strings.HasPrefix(s.UserAgent, "k9s") }); n != 2 || len(ended) != 2 || ended["kubectl"] != 0 {
		t.Errorf("%d ended: %v", n, ended)
	}
}

// TestBounds: however many there are, and whatever they call themselves, memory is bounded, and who costs much is found.
func TestBounds(t *testing.T) {
	c := &clock{now: start}
	u := newUsage(c)
	long := strings.Repeat("é", 100)
	n := 0
	for range 40 {
		for range 700 {
			n++
			name := fmt.Sprintf("%s%d", long, n)
			u.Add(Client{name, name, Resource{name, name, name}}, Cost{Requests: 1})
		}
		u.Add(Client{long, "heavy", pods}, Cost{Requests: 1, Work: 1e9})
		c.pass(u, 50*time.Second)
	}
	if got := u.bytes(); got > 20e6 {
		t.Errorf("%d bytes", got)
	}
	r := u.Top(Query{K: 3, Window: Hour, By: func(r *Row) float64 { return r.Work }}, c.now)
	if r.Users[0].Name != Bounded(long) || r.UserAgents[0].Name != "heavy" || r.Resources[0].Name != "pods" {
		t.Errorf("%q %q %q", r.Users[0].Name, r.UserAgents[0].Name, r.Resources[0].Name)
	}
	if r.Users[0].Requests < r.Total.Requests/701-2 || r.Users[0].Missing == 0 || len(r.Users) != 3 {
		t.Errorf("%+v of %+v", r.Users[0], r.Total)
	}
}

func TestBounded(t *testing.T) {
	for _, name := range []string{"", "jane", strings.Repeat("x", maxName)} {
		if Bounded(name) != name {
			t.Errorf("%q is not itself", name)
		}
	}
	a, b := Bounded(strings.Repeat("é", 500)+"a"), Bounded(strings.Repeat("é", 500)+"b")
	if a == b || len(a) > maxName || a != strings.ToValidUTF8(a, "?") || Bounded(a) != a {
		t.Errorf("%q and %q", a, b)
	}
}

func TestConcurrent(t *testing.T) {
	c := &clock{now: start}
	u := newUsage(c)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			a := Client{User: fmt.Sprint("user-", i), UserAgent: "test", Resource: pods}
			s := u.Open(a, StreamOptions{End: func() {}})
			for range 1000 {
				u.Add(a, Cost{Requests: 1})
				s.Wrote(1)
			}
			s.Close()
		})
	}
	all.Go(func() {
		for i := range 100 {
			u.Tick(start.Add(time.Duration(i) * 100 * time.Millisecond))
			u.Top(Query{K: 5, Window: Hour}, start)
		}
	})
	all.Wait()
	if r := u.Top(Query{K: 10}, start); r.Total.Requests != 8000 || r.Total.Bytes != 8000 {
		t.Errorf("%+v", r.Total)
	}
}

// BenchmarkAdd is what a request costs that is counted.
func BenchmarkAdd(b *testing.B) {
	clients := make([]Client, 100)
	for i := range clients {
		clients[i] = Client{fmt.Sprintf("system:serviceaccount:namespace-%d:account", i), fmt.Sprintf("kubectl/v1.36.%d (linux/amd64) kubernetes/0123456", i%10), pods}
	}
	u := newUsage(&clock{now: start})
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			u.Add(clients[i%len(clients)], Cost{Requests: 1, Bytes: 1000})
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				u.Add(clients[i%len(clients)], Cost{Requests: 1, Bytes: 1000})
			}
		})
	})
	s := u.Open(clients[0], StreamOptions{End: func() {}})
	defer s.Close()
	b.Run("watch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Wrote(1000)
		}
	})
}
