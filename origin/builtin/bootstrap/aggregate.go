package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// aggregationManager owns aggregated rules. It is the name that
// kube-controller-manager uses, so that either finds its own work done.
const aggregationManager = "clusterrole-aggregation-controller"

const (
	// gathering is how long further changes are waited for after one: roles come
	// several at a time, and each may concern all aggregated ones.
	gathering = 20 * time.Millisecond
	// aggregationRetry is when what failed is tried again.
	aggregationRetry = time.Second
)

// aggregator gives cluster roles with an aggregation rule the rules of the roles
// that it selects (pkg/controller/clusterroleaggregation).
type aggregator struct {
	client   kubernetes.Interface
	informer rbacinformers.ClusterRoleInformer
	logger   *slog.Logger
	changed  chan struct{} // holds one element if something changed
	handler  cache.ResourceEventHandlerRegistration
}

func newAggregator(client kubernetes.Interface, informer rbacinformers.ClusterRoleInformer, logger *slog.Logger) (*aggregator, error) {
	a := &aggregator{client: client, informer: informer, logger: logger, changed: make(chan struct{}, 1)}
	var err error
	a.handler, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { a.noticed(object) },
		UpdateFunc: func(old, object any) { a.noticed(old, object) },
		DeleteFunc: func(object any) { a.noticed(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching cluster roles: %w", err)
	}
	return a, nil
}

// noticed takes note of a change of a role that aggregates or, having labels, may be
// aggregated.
func (a *aggregator) noticed(objects ...any) {
	for _, object := range objects {
		if role, ok := object.(*rbacv1.ClusterRole); ok && role.AggregationRule == nil && len(role.Labels) == 0 {
			continue
		}
		select {
		case a.changed <- struct{}{}:
		default:
		}
		return
	}
}

// run aggregates until ctx ends.
func (a *aggregator) run(ctx context.Context) {
	defer func() { _ = a.informer.Informer().RemoveEventHandler(a.handler) }() // fails for handlers of another informer only
	var due <-chan time.Time
	for {
		select {
		case <-a.changed:
			if due == nil {
				due = time.After(gathering)
			}
			continue
		case <-due:
			due = nil
		case <-ctx.Done():
			return
		}
		if err := a.aggregate(ctx); err != nil && ctx.Err() == nil {
			a.logger.WarnContext(ctx, "cluster roles could not be aggregated", "error", err)
			due = time.After(aggregationRetry)
		}
	}
}

// aggregate brings every aggregated role up to date with the others as they are.
func (a *aggregator) aggregate(ctx context.Context) error {
	all, err := a.informer.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, role := range all {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := aggregated(role, all)
		if err != nil {
			return fmt.Errorf("ClusterRole %s: %w", role.Name, err)
		}
		if equality.Semantic.DeepEqual(rules, role.Rules) {
			continue
		}
		apply := rbacapply.ClusterRole(role.Name)
		for _, rule := range rules {
			r := rbacapply.PolicyRule()
			r.Verbs, r.APIGroups, r.Resources = rule.Verbs, rule.APIGroups, rule.Resources
			r.ResourceNames, r.NonResourceURLs = rule.ResourceNames, rule.NonResourceURLs
			apply.WithRules(r)
		}
		if _, err := a.client.RbacV1().ClusterRoles().Apply(ctx, apply, metav1.ApplyOptions{FieldManager: aggregationManager, Force: true}); err != nil {
			return fmt.Errorf("ClusterRole %s: %w", role.Name, err)
		}
	}
	return nil
}

// aggregated are the rules that a role is to have: those of each role it selects,
// by name, each rule once.
func aggregated(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules := []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		var selected []*rbacv1.ClusterRole
		for _, r := range all {
			if r.Name != role.Name && selector.Matches(labels.Set(r.Labels)) {
				selected = append(selected, r)
			}
		}
		slices.SortFunc(selected, func(x, y *rbacv1.ClusterRole) int { return cmp.Compare(x.Name, y.Name) })
		for _, r := range selected {
			for _, rule := range r.Rules {
				if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// aggregateAll returns, by name, the rules that the aggregated ones of some roles
// come to have: they may aggregate each other.
func aggregateAll(roles []rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule {
	all := make([]*rbacv1.ClusterRole, len(roles))
	for i := range roles {
		all[i] = roles[i].DeepCopy()
	}
	out := make(map[string][]rbacv1.PolicyRule)
	for range all { // at most one more role is done by each pass
		settled := true
		for _, role := range all {
			if role.AggregationRule == nil {
				continue
			}
			rules, err := aggregated(role, all)
			if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
				continue // a bad selector: the aggregator will say so
			}
			role.Rules, out[role.Name], settled = rules, rules, false
		}
		if settled {
			break
		}
	}
	return out
}
