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

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Cached makes Rules of the RBAC objects in the cache when they are needed. It is safe for
// concurrent use.
type Cached struct {
	resources Resources
	manager   *cache.Manager
	log       *slog.Logger

	mu struct {
		sync.Mutex
		contents [4]uint64 // of the snapshots that rules were made of
		rules    *Rules    // nil before the first time
		decoded  decoded
	}
}

// decoded holds the objects of the snapshots by their IDs.
type decoded struct {
	roles               map[uint64]*rbacv1.Role
	roleBindings        map[uint64]*rbacv1.RoleBinding
	clusterRoles        map[uint64]*rbacv1.ClusterRole
	clusterRoleBindings map[uint64]*rbacv1.ClusterRoleBinding
}

// NewCached returns the rules of the RBAC objects that manager caches.
func NewCached(resources Resources, manager *cache.Manager, log *slog.Logger) *Cached {
	return &Cached{resources: resources, manager: manager, log: log}
}

// Get returns the rules, or nil unless all four collections are cached and usable. It returns the
// same rules as long as the objects do not change.
func (c *Cached) Get(usable func(*cache.Collection) bool) *Rules {
	var snapshots [4]*store.Snapshot
	for i, gvr := range GroupVersionResources() {
		res, ok := c.resources.Lookup(gvr)
		if !ok {
			return nil
		}
		collection := c.manager.ReadableCollection(res, api.JSON)
		if collection == nil || !usable(collection) {
			return nil
		}
		snapshots[i] = collection.Snapshot()
	}
	return c.rulesOf(&snapshots)
}

// rulesOf returns the rules of the objects in snapshots, made once for the same objects.
func (c *Cached) rulesOf(s *[4]*store.Snapshot) *Rules {
	c.mu.Lock()
	defer c.mu.Unlock()
	contents := [4]uint64{s[0].Content(), s[1].Content(), s[2].Content(), s[3].Content()}
	if c.mu.rules != nil && c.mu.contents == contents {
		return c.mu.rules
	}
	var objects Objects
	d := &c.mu.decoded
	for i, err := range [4]error{
		decodeAll(s[0], &d.roles, &objects.Roles), decodeAll(s[1], &d.roleBindings, &objects.RoleBindings),
		decodeAll(s[2], &d.clusterRoles, &objects.ClusterRoles), decodeAll(s[3], &d.clusterRoleBindings, &objects.ClusterRoleBindings),
	} {
		if err != nil {
			c.log.Warn("decoding a cached RBAC object failed, no RBAC object is used", "resource", GroupVersionResources()[i].Resource, "error", err)
			return nil
		}
	}
	c.mu.contents, c.mu.rules = contents, New(objects)
	return c.mu.rules
}

// rbacObject is a T as a pointer.
type rbacObject[T any] interface {
	*T
	metav1.Object
}

// decodeAll appends the objects of s to a list. It decodes those that are not known.
func decodeAll[T any, P rbacObject[T]](s *store.Snapshot, known *map[uint64]P, list *[]P) (err error) {
	all := make(map[uint64]P, s.Len())
	s.Ascend("", "", func(o *object.Object) bool {
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
		*list = append(*list, one)
		return true
	})
	if err == nil {
		*known = all
	}
	return err
}

// Offline decides by the RBAC objects in the cache while the upstream is unreachable, if all four
// collections of them are complete. It is safe for concurrent use.
type Offline struct {
	cached    *Cached
	reachable func() bool
	ttl       func() time.Duration
}

var _ authz.Rules = (*Offline)(nil)

// NewOffline returns rules that count for ttl after the collections were last current.
func NewOffline(resources Resources, manager *cache.Manager, reachable func() bool, ttl func() time.Duration, log *slog.Logger) *Offline {
	return &Offline{cached: NewCached(resources, manager, log), reachable: reachable, ttl: ttl}
}

// Allow implements authz.Rules.
func (o *Offline) Allow(u user.Info, a authz.Attributes) bool {
	if o.reachable() {
		return false
	}
	rules := o.cached.Get(func(c *cache.Collection) bool { return time.Since(c.State().CurrentAt()) <= o.ttl() })
	return rules != nil && rules.Allow(u, &a)
}
