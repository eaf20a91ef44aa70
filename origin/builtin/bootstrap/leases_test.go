package bootstrap

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

const hour = time.Hour

// timeout lets time pass in a bubble, and what it brings about happen.
func timeout(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

// TestLeases: servers know of each other as long as they renew their leases, whatever
// their clocks say.
func TestLeases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := newClient().CoordinationV1().Leases("kube-system")
		one, two := newLeases(t.Context(), client), newLeases(t.Context(), client)
		two.now = func() time.Time { return time.Now().Add(-24 * hour) }
		alive := func(l *leases, want ...string) {
			t.Helper()
			got, err := l.ListLeases()
			slices.Sort(got)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, want %q (%v)", got, want, err)
			}
		}
		renew := func(l *leases, ip string) {
			t.Helper()
			must(t, l.UpdateLease(ip))
			// The fake store gives no versions; a real one gives a new one by each change.
			name, err := leaseName(ip)
			must(t, err)
			lease, err := client.Get(t.Context(), name, metav1.GetOptions{})
			must(t, err)
			lease.ResourceVersion = lease.Spec.RenewTime.Format(time.RFC3339Nano)
			_, err = client.Update(t.Context(), lease, metav1.UpdateOptions{})
			must(t, err)
		}
		renew(one, "192.0.2.1")
		renew(two, "2001:db8::2")
		alive(one, "192.0.2.1", "2001:db8::2")
		for range 6 {
			time.Sleep(leaseLife / 2)
			renew(one, "192.0.2.1")
			renew(two, "2001:db8::2")
			alive(one, "192.0.2.1", "2001:db8::2")
			alive(two, "192.0.2.1", "2001:db8::2")
		}
		// Two dies.
		for range 3 {
			time.Sleep(leaseLife / 2)
			renew(one, "192.0.2.1")
			_, err := one.ListLeases()
			must(t, err)
		}
		alive(one, "192.0.2.1")
		list, err := client.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(list.Items) != 1 || list.Items[0].Name != "kubeweir-apiserver-192.0.2.1" {
			t.Errorf("%d leases are left", len(list.Items))
		}
		must(t, one.RemoveLease("192.0.2.1"))
		alive(one)
		if err := one.UpdateLease("nowhere"); err != nil {
			t.Error("a lease that is fresh is not looked at again:", err)
		}
		time.Sleep(leaseRenewal)
		if one.UpdateLease("nowhere") == nil || one.RemoveLease("nowhere") == nil {
			t.Error("no address, no error")
		}
	})
}

func TestLeaseIsRenewedInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := newClient()
		l := newLeases(t.Context(), client.CoordinationV1().Leases("kube-system"))
		for range 10 {
			must(t, l.UpdateLease("192.0.2.1"))
			time.Sleep(serviceInterval)
		}
		if w := writes(client); len(w) != 5 {
			t.Errorf("%d writes in 100 s: %q", len(w), w)
		}
	})
}
