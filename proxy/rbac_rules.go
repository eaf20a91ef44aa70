package proxy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/rbac"
)

// OfflineRules decide by the RBAC objects in the cache while the upstream cannot be
// reached, if all four collections of them are held whole. They are safe for concurrent
// use.
type OfflineRules struct {
	resources *Resources
	manager   *cache.Manager
	reachable func() bool
	ttl       time.Duration
	log       *slog.Logger

	mu struct {
		sync.Mutex
		of    [4]uint64   // contents of the views that rules are made of
		rules *rbac.Rules // nil before the first time
	}
}

var _ identity.Rules = (*OfflineRules)(nil)

// NewOfflineRules returns rules that count for ttl after the upstream's last sign of life.
func NewOfflineRules(resources *Resources, manager *cache.Manager, reachable func() bool, ttl time.Duration, log *slog.Logger) *OfflineRules {
	return &OfflineRules{resources: resources, manager: manager, reachable: reachable, ttl: ttl, log: log}
}

// Allow implements identity.Rules.
func (o *OfflineRules) Allow(u user.Info, a identity.Attributes) bool {
	if o.reachable() {
		return false
	}
	var views [4]*cache.View
	for i, gvr := range rbacResources() {
		res, ok := o.resources.Lookup(gvr)
		if !ok {
			return false
		}
		c := o.manager.Held(res, api.JSON)
		if c == nil || time.Since(c.State().Fed()) > o.ttl {
			return false
		}
		views[i] = c.View()
	}
	rules := o.of(&views)
	return rules != nil && rules.Allow(u, &a)
}

// of returns the rules of the objects in views, made once for the same objects.
func (o *OfflineRules) of(views *[4]*cache.View) *rbac.Rules {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := [4]uint64{views[0].Content(), views[1].Content(), views[2].Content(), views[3].Content()}
	if o.mu.rules != nil && o.mu.of == of {
		return o.mu.rules
	}
	var objects rbac.Objects
	for i, err := range [4]error{
		decodeAll(views[0], &objects.Roles), decodeAll(views[1], &objects.RoleBindings),
		decodeAll(views[2], &objects.ClusterRoles), decodeAll(views[3], &objects.ClusterRoleBindings),
	} {
		if err != nil {
			o.log.Warn("an RBAC object in the cache cannot be read, so that none of them decide", "resource", rbacResources()[i].Resource, "error", err)
			return nil
		}
	}
	o.mu.of, o.mu.rules = of, rbac.New(objects)
	return o.mu.rules
}

// Release forgets the rules; they are made again when they are needed.
func (o *OfflineRules) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.rules = nil
}

func decodeAll[T rbacv1.Role | rbacv1.RoleBinding | rbacv1.ClusterRole | rbacv1.ClusterRoleBinding](v *cache.View, to *[]T) (err error) {
	v.Ascend("", "", func(o *object.Object) bool {
		var one T
		if err = json.Unmarshal(o.Raw, &one); err != nil {
			err = fmt.Errorf("%s: %w", o.Key, err)
			return false
		}
		*to = append(*to, one)
		return true
	})
	return err
}
