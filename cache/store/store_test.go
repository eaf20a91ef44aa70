package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/object"
)

func TestSnapshotIsShared(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		c := cachetest.PodCollection(t, m)
		v := c.Snapshot()
		if c.Snapshot() != v {
			t.Error("another snapshot although nothing changed")
		}
		s.Bump(5)
		time.Sleep(61 * time.Second) // long enough for a bookmark
		moved := c.Snapshot()
		if moved.RV() != v.RV()+5 || moved.Content() != v.Content() || moved.Get("a/1") != v.Get("a/1") {
			t.Errorf("after a bookmark: version %d content %d, was %d %d", moved.RV(), moved.Content(), v.RV(), v.Content())
		}
		s.Update(cachetest.Pods, cachetest.Pod("a/1", "node"))
		synctest.Wait()
		changed := c.Snapshot()
		if changed.Content() == v.Content() || changed.Get("a/1") == v.Get("a/1") || v.Get("a/1").RV != v.RV() {
			t.Error("a change is missing, or in an old snapshot")
		}
		if changed.Len() != 1 || changed.Bytes() != int64(len(changed.Get("a/1").Raw)) {
			t.Errorf("%d objects of %d bytes", changed.Len(), changed.Bytes())
		}
		if v.Get("a/2") != nil {
			t.Error("found a missing object")
		}
	})
}

func TestSnapshotOrderAndCounts(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		// "a-b/x" sorts before "a/x": keys are compared bytewise, and "-" is below "/".
		for _, key := range []string{"a/x", "a-b/x", "a/y", "a0/x", "b/x"} {
			s.Create(cachetest.Pods, cachetest.Pod(key, ""))
		}
		v := cachetest.PodCollection(t, m).Snapshot()
		for _, tc := range []struct{ namespace, from, want string }{
			{"", "", "a-b/x a/x a/y a0/x b/x"},
			{"", "a/y", "a/y a0/x b/x"},
			{"a", "", "a/x a/y"},
			{"a", "a/x\x00", "a/y"},
			{"a", "a-b/x", "a/x a/y"},
			{"a", "b/x", ""},
			{"c", "", ""},
		} {
			var got []string
			for _, o := range cachetest.All(v, tc.namespace, tc.from) {
				got = append(got, o.Key)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%q from %q: %v, want %s", tc.namespace, tc.from, got, tc.want)
			}
			if n := v.CountFrom(tc.namespace, tc.from); n != len(got) {
				t.Errorf("%q from %q: counted %d", tc.namespace, tc.from, n)
			}
		}
		if v.CountFrom("a", "") != 2 || v.CountFrom("", "") != 5 {
			t.Errorf("counts %d %d", v.CountFrom("a", ""), v.CountFrom("", ""))
		}
	})
}

func TestWaitFor(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		var tooLarge *store.TooLargeError
		for _, timeout := range []time.Duration{0, 3 * time.Second} {
			began := time.Now()
			err := c.WaitFor(t.Context(), 101, timeout)
			if !errors.As(err, &tooLarge) || tooLarge.RV != 101 || tooLarge.Current != 100 || time.Since(began) != timeout {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.WaitFor(ctx, 101, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		// Waiters are released as their versions are reached.
		var order []uint64
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, rv := range []uint64{103, 101, 102, 104, 101} {
			wg.Go(func() {
				if err := c.WaitFor(t.Context(), rv, time.Minute); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, rv)
			})
		}
		synctest.Wait()
		for i := range 4 {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%d", i), ""))
			synctest.Wait()
		}
		wg.Wait()
		if !slices.Equal(order, []uint64{101, 101, 102, 103, 104}) {
			t.Errorf("released in the order %v", order)
		}
	})
}

func TestWaitDeleted(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		before := s.Create(cachetest.Pods, cachetest.Pod("a/0", ""))
		s.Delete(cachetest.Pods, "a/0")
		pod := s.Create(cachetest.Pods, cachetest.Pod("a/1", ""))
		c := cachetest.PodCollection(t, m)
		wait := func(key string, o cachetest.Object, timeout time.Duration) error {
			return c.WaitDeleted(t.Context(), key, string(o.GetUID()), timeout)
		}
		s.Hold()
		s.Update(cachetest.Pods, cachetest.Pod("a/1", "n")) // wakes the waiter, which keeps waiting
		s.Delete(cachetest.Pods, "a/1")
		s.Create(cachetest.Pods, cachetest.Pod("a/1", "")) // with another uid
		var tooLarge *store.TooLargeError
		if err := wait("a/1", pod, time.Second); !errors.As(err, &tooLarge) {
			t.Errorf("an existing object: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- wait("a/1", pod, 3*time.Second) }()
		synctest.Wait()
		s.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := wait("a/1", pod, 0); err != nil {
			t.Errorf("with another object in its place: %v", err)
		}

		// Created and deleted before the watch delivered either: absent does not mean deleted.
		s.Hold()
		s.Create(cachetest.Pods, cachetest.Pod("a/2", ""))
		late := s.Delete(cachetest.Pods, "a/2")
		if err := wait("a/2", late, time.Second); err == nil || errors.As(err, &tooLarge) {
			t.Errorf("its creation was not seen either: %v", err)
		}
		s.Release()
		synctest.Wait()
		if err := wait("a/2", late, 0); err != nil {
			t.Error(err)
		}
		if err := wait("a/0", before, time.Second); err == nil {
			t.Error("a deletion before the first list is not remembered")
		}

		// A deletion that only a relist reveals.
		gone := s.Create(cachetest.Pods, cachetest.Pod("a/3", ""))
		synctest.Wait()
		s.SetDown(true)
		s.Delete(cachetest.Pods, "a/3")
		s.Compact()
		s.SetDown(false)
		if err := wait("a/3", gone, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

func TestSnapshotLimits(t *testing.T) {
	limits := cache.Limits{SnapshotAge: time.Minute, SnapshotBytes: 30 << 10, HistoryEvents: 1}
	cachetest.WithManager(t, limits, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.Create(cachetest.Pods, cachetest.BigPod("a/1", "", 1<<10))
		c := cachetest.PodCollection(t, m)
		first := c.Snapshot()
		c.Retain(first)
		update := func(times int) {
			for i := range times {
				s.Update(cachetest.Pods, cachetest.BigPod("a/1", fmt.Sprint(i), 1<<10))
			}
			synctest.Wait()
		}
		update(5)
		if v, err := c.SnapshotAt(first.RV()); err != nil || v != first {
			t.Errorf("the retained snapshot: %v %v", v, err)
		}
		second := c.Snapshot()
		c.Retain(second)
		if s := cachetest.Status(m, c); s.Snapshots != 2 || s.SnapshotBytes < 5<<10 || s.SnapshotBytes > 20<<10 {
			t.Errorf("%d snapshots of %d bytes", s.Snapshots, s.SnapshotBytes)
		}
		// The first snapshot exceeds the budget before the second one does.
		update(6)
		if _, err := c.SnapshotAt(first.RV()); err == nil {
			t.Error("over the budget")
		}
		if v, err := c.SnapshotAt(second.RV()); err != nil || v != second {
			t.Errorf("the second snapshot: %v", err)
		}
		time.Sleep(50 * time.Second)
		if _, err := c.SnapshotAt(second.RV()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		var expired *store.ExpiredError
		if _, err := c.SnapshotAt(second.RV()); !errors.As(err, &expired) {
			t.Errorf("got %v", err)
		}
		if s := cachetest.Status(m, c); s.Snapshots != 0 || s.SnapshotBytes != 0 {
			t.Errorf("%d snapshots of %d bytes", s.Snapshots, s.SnapshotBytes)
		}
		var tooLarge *store.TooLargeError
		if _, err := c.SnapshotAt(c.RV() + 1); !errors.As(err, &tooLarge) {
			t.Errorf("got %v", err)
		}
	})
}

// TestReadsDoNotExtendSnapshotAge: as on kube-apiserver, a continue token expires however often a
// client uses it.
func TestReadsDoNotExtendSnapshotAge(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{SnapshotAge: 5 * time.Minute}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		s.Create(cachetest.Pods, cachetest.Pod("a/1", "n"))
		c := cachetest.PodCollection(t, m)
		s.Create(cachetest.Pods, cachetest.Pod("a/2", "n"))
		synctest.Wait()
		rv := c.RV()
		c.Retain(c.Snapshot())
		start := time.Now()
		s.Create(cachetest.Pods, cachetest.Pod("a/3", "n"))
		synctest.Wait()
		var err error
		for err == nil && time.Since(start) < time.Hour {
			time.Sleep(20 * time.Second)
			var v *store.Snapshot
			if v, err = c.SnapshotAt(rv); err == nil {
				c.Retain(v) // as a page does that is not the last one
			}
		}
		var expired *store.ExpiredError
		if age := time.Since(start); !errors.As(err, &expired) || age < 5*time.Minute || age > 7*time.Minute {
			t.Errorf("after %v: %v", age, err)
		}
		// History still has the version. A version that was not retained is made from it.
		if _, err := c.SnapshotAt(rv + 1); err != nil {
			t.Error(err)
		}
		// The current version is retained again when a client reads it.
		c.Retain(c.Snapshot())
		rv = c.RV()
		time.Sleep(10 * time.Minute)
		c.Retain(c.Snapshot())
		s.Create(cachetest.Pods, cachetest.Pod("a/4", "n"))
		synctest.Wait()
		time.Sleep(4 * time.Minute)
		if _, err := c.SnapshotAt(rv); err != nil {
			t.Error(err)
		}
	})
}

func TestIndexesAreBuiltAndDropped(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{Indexes: 2}, func(t *testing.T, s *cachetest.Source, m *cache.Manager) {
		for i := range 300 {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-%d/%d", i%3, i), fmt.Sprintf("n%d", i%7),
				fmt.Sprintf("a=%d", i%10), fmt.Sprintf("b=%d", i%11), fmt.Sprintf("c=%d", i%12)))
		}
		c := cachetest.PodCollection(t, m)
		use := func(namespace, label, field string) bool {
			t.Helper()
			f := cachetest.Filter(t, c.Resource(), namespace, label, field)
			objs, at := c.Select(t.Context(), f)
			synctest.Wait()
			if at == nil {
				return false
			}
			var want []*object.Object
			for _, o := range cachetest.All(c.Snapshot(), "", "") {
				if f.Matches(o) {
					want = append(want, o)
				}
			}
			if at.RV() != c.RV() || !slices.Equal(objs, want) {
				t.Errorf("select %s %s: %d objects at %d, want %d", label, field, len(objs), at.RV(), len(want))
			}
			return true
		}
		check := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		check("nothing to index", use("", "a!=1", ""), false)
		check("first use", use("", "a=1", ""), false)
		check("second use, it is being built", use("", "a=1", ""), false)
		check("third use", use("", "a=1", ""), true)
		check("other values", use("", "a in (2,3,99)", ""), true)
		check("no such value", use("", "a=99", ""), true)
		check("with others", use("", "a=1,b!=4", "spec.nodeName!=n2"), true)
		check("in a namespace", use("ns-1", "a=1", ""), true)
		check("a namespace alone", use("ns-1", "b!=1", ""), true)
		check("one object", use("ns-1", "", "metadata.name=4"), true)
		use("", "", "spec.nodeName=n3")
		use("", "", "spec.nodeName=n3")
		check("a field", use("", "", "spec.nodeName=n3"), true)
		check("the smaller of both", use("", "a=1", "spec.nodeName=n3"), true)
		s.Delete(cachetest.Pods, "ns-1/1")
		s.Update(cachetest.Pods, cachetest.Pod("ns-2/11", "n3", "a=0"))
		synctest.Wait()
		check("after changes", use("", "a=1", ""), true)
		check("after changes", use("", "a=0", "spec.nodeName=n3"), true)
		if n := cachetest.Status(m, c).Indexes; n != 2 {
			t.Errorf("%d indexes", n)
		}
		for range 3 {
			check("no room", use("", "b=1", ""), false)
		}
		time.Sleep(2 * time.Minute)
		use("", "a=1", "") // the field's index is the older one now
		for range 2 {
			use("", "b=1", "")
		}
		check("room was made", use("", "b=1", ""), true)
		check("by dropping the oldest", use("", "", "spec.nodeName=n3"), false)
		for range 60 {
			cachetest.PodCollection(t, m)
			time.Sleep(15 * time.Second)
		}
		if n := cachetest.Status(m, c).Indexes; n != 0 {
			t.Errorf("%d indexes although none was used", n)
		}
		if broken := c.CheckInvariants(); broken != "" {
			t.Error(broken)
		}
	})
}
