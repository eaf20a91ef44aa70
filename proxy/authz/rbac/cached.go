package rbac

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Cached are the rules of the RBAC objects in the cache, made when somebody asks. They are
// safe for concurrent use.
type Cached struct {
	resources Resources
	manager   *cache.Manager
	log       *slog.Logger

	mu struct {
		sync.Mutex
		of    [4]uint64 // contents of the views that rules are made of
		rules *Rules    // nil before the first time
		// What the objects of those views say, by their IDs.
		roles               map[uint64]*rbacv1.Role
		roleBindings        map[uint64]*rbacv1.RoleBinding
		clusterRoles        map[uint64]*rbacv1.ClusterRole
		clusterRoleBindings map[uint64]*rbacv1.ClusterRoleBinding
	}
}

// NewCached returns the rules of the RBAC objects that manager holds.
func NewCached(resources Resources, manager *cache.Manager, log *slog.Logger) *Cached {
	return &Cached{resources: resources, manager: manager, log: log}
}

// Get returns the rules, if all four collections are held whole and usable says so of each; nil
// if not. They are the same as long as the objects are.
func (h *Cached) Get(usable func(*cache.Collection) bool) *Rules {
	var views [4]*store.Snapshot
	for i, gvr := range GroupVersionResources() {
		res, ok := h.resources.Lookup(gvr)
		if !ok {
			return nil
		}
		c := h.manager.ReadableCollection(res, api.JSON)
		if c == nil || !usable(c) {
			return nil
		}
		views[i] = c.Snapshot()
	}
	return h.of(&views)
}

// of returns the rules of the objects in views, made once for the same objects.
func (h *Cached) of(views *[4]*store.Snapshot) *Rules {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := [4]uint64{views[0].Content(), views[1].Content(), views[2].Content(), views[3].Content()}
	if h.mu.rules != nil && h.mu.of == of {
		return h.mu.rules
	}
	var objects Objects
	for i, err := range [4]error{
		decodeAll(views[0], &h.mu.roles, &objects.Roles), decodeAll(views[1], &h.mu.roleBindings, &objects.RoleBindings),
		decodeAll(views[2], &h.mu.clusterRoles, &objects.ClusterRoles), decodeAll(views[3], &h.mu.clusterRoleBindings, &objects.ClusterRoleBindings),
	} {
		if err != nil {
			h.log.Warn("an RBAC object in the cache cannot be read, so that none of them decide", "resource", GroupVersionResources()[i].Resource, "error", err)
			return nil
		}
	}
	h.mu.of, h.mu.rules = of, New(objects)
	return h.mu.rules
}

// forget frees what is held; it is made again when somebody asks.
func (h *Cached) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.rules = nil
	h.mu.roles, h.mu.roleBindings, h.mu.clusterRoles, h.mu.clusterRoleBindings = nil, nil, nil, nil
}

// rbacObject is a T as a pointer.
type rbacObject[T any] interface {
	*T
	metav1.Object
}

// decodeAll reads the objects of v that are not known from before.
func decodeAll[T any, P rbacObject[T]](v *store.Snapshot, known *map[uint64]P, to *[]P) (err error) {
	all := make(map[uint64]P, v.Len())
	v.Ascend("", "", func(o *object.Object) bool {
		one := (*known)[o.ID]
		if one == nil {
			one = new(T)
			if err = json.Unmarshal(o.Raw, one); err != nil {
				err = fmt.Errorf("%s: %w", o.Key, err)
				return false
			}
			one.SetManagedFields(nil)
			one.SetAnnotations(nil)
			one.SetLabels(nil)
		}
		all[o.ID] = one
		*to = append(*to, one)
		return true
	})
	if err == nil {
		*known = all
	}
	return err
}

// Offline decide by the RBAC objects in the cache while the upstream cannot be
// reached, if all four collections of them are held whole. They are safe for concurrent
// use.
type Offline struct {
	held      *Cached
	reachable func() bool
	ttl       func() time.Duration
}

var _ authz.Rules = (*Offline)(nil)

// NewOffline returns rules that count for ttl after the upstream's last sign of life.
func NewOffline(resources Resources, manager *cache.Manager, reachable func() bool, ttl func() time.Duration, log *slog.Logger) *Offline {
	return &Offline{held: NewCached(resources, manager, log), reachable: reachable, ttl: ttl}
}

// Allow implements authz.Rules.
func (o *Offline) Allow(u user.Info, a authz.Attributes) bool {
	if o.reachable() {
		return false
	}
	rules := o.held.Get(func(c *cache.Collection) bool { return time.Since(c.State().CurrentAt()) <= o.ttl() })
	return rules != nil && rules.Allow(u, &a)
}

// Release forgets the rules; they are made again when they are needed.
func (o *Offline) Release() { o.held.forget() }
