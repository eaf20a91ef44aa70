package bootstrap

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// leaseLife is how long a server that shares the store is taken to be alive after
	// it renewed its lease, leaseRenewal how often it does.
	leaseLife    = time.Minute
	leaseRenewal = 20 * time.Second
)

// leaseLabels mark the leases of servers that share a store.
var leaseLabels = labels.Set{"app.kubernetes.io/name": "kubeweir", "app.kubernetes.io/component": "apiserver"}

// leases track which servers share a store. Each server has a Lease object named after its address.
// kube-apiserver uses keys that expire, which need a clock that all servers agree on. Here a lease
// has expired if this process has not seen it change for leaseLife by its own clock.
//
// It implements reconcilers.Leases, whose methods have no context.
type leases struct {
	ctx    context.Context
	client coordinationclient.LeaseInterface
	now    func() time.Time

	mu      sync.Mutex
	seen    map[string]sighting // guarded by mu: by name of the lease
	renewed time.Time           // guarded by mu: when our own was last written
}

// sighting is when a version of a lease was seen first.
type sighting struct {
	version string
	at      time.Time
}

func newLeases(ctx context.Context, client coordinationclient.LeaseInterface) *leases {
	return &leases{ctx: ctx, client: client, now: time.Now, seen: map[string]sighting{}}
}

// ListLeases returns the addresses of the servers that are alive, and deletes the
// leases of others.
func (l *leases) ListLeases() ([]string, error) {
	list, err := l.client.List(l.ctx, metav1.ListOptions{LabelSelector: leaseLabels.String()})
	if err != nil {
		return nil, err
	}
	var ips []string
	var dead []*coordinationv1.Lease
	l.mu.Lock()
	now, before := l.now(), l.seen
	l.seen = make(map[string]sighting, len(list.Items))
	for i := range list.Items {
		lease := &list.Items[i]
		s, known := before[lease.Name]
		if !known || s.version != lease.ResourceVersion {
			s = sighting{lease.ResourceVersion, now}
		}
		l.seen[lease.Name] = s
		switch holder := lease.Spec.HolderIdentity; {
		case now.Sub(s.at) > leaseLife:
			dead = append(dead, lease)
		case holder != nil:
			ips = append(ips, *holder)
		}
	}
	l.mu.Unlock()
	for _, lease := range dead {
		err := l.client.Delete(l.ctx, lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return ips, nil
}

// UpdateLease renews the lease of an address, if it is time to.
func (l *leases) UpdateLease(ip string) error {
	l.mu.Lock()
	now := l.now()
	fresh := now.Sub(l.renewed) < leaseRenewal
	l.mu.Unlock()
	if fresh {
		return nil
	}
	name, err := leaseName(ip)
	if err != nil {
		return err
	}
	lease, err := l.client.Get(l.ctx, name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if missing {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: leaseLabels}}
	}
	life := int32(leaseLife / time.Second)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &ip, &life, &metav1.MicroTime{Time: now}
	if missing {
		_, err = l.client.Create(l.ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = l.client.Update(l.ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.renewed = now
	l.mu.Unlock()
	return nil
}

// RemoveLease deletes the lease of an address.
func (l *leases) RemoveLease(ip string) error {
	name, err := leaseName(ip)
	if err != nil {
		return err
	}
	return l.client.Delete(l.ctx, name, metav1.DeleteOptions{})
}

// Destroy has nothing to do.
func (l *leases) Destroy() {}

// leaseName is a valid name made of an address.
func leaseName(ip string) (string, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return "", errors.New("no address: " + ip)
	}
	return "kubeweir-apiserver-" + strings.ReplaceAll(addr.Unmap().StringExpanded(), ":", "-"), nil
}
