package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	flowbootstrap "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	flowapply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/ensurer"
)

// flowcontrol does what kube-apiserver does with its priority levels and flow
// schemas (pkg/registry/flowcontrol/rest): mandatory ones are what they have to be,
// suggested ones unless somebody changed them, and those that an older version
// suggested are removed.
func (b *bootstrapper) flowcontrol(ctx context.Context) ([]task, error) {
	v1 := b.Client.FlowcontrolV1()
	levels, err := v1.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing priority levels: %w", err)
	}
	schemas, err := v1.FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing flow schemas: %w", err)
	}
	levelOps := ensurer.NewPriorityLevelConfigurationOps(v1.PriorityLevelConfigurations(),
		newSnapshot("prioritylevelconfigurations", levels.Items, v1.PriorityLevelConfigurations()))
	schemaOps := ensurer.NewFlowSchemaOps(v1.FlowSchemas(), newSnapshot("flowschemas", schemas.Items, v1.FlowSchemas()))
	return slices.Concat(
		ensured(levelOps, flowbootstrap.MandatoryPriorityLevelConfigurations, ensurer.NewMandatoryEnsureStrategy[*flowcontrolv1.PriorityLevelConfiguration]()),
		ensured(levelOps, flowbootstrap.SuggestedPriorityLevelConfigurations, ensurer.NewSuggestedEnsureStrategy[*flowcontrolv1.PriorityLevelConfiguration]()),
		ensured(schemaOps, flowbootstrap.MandatoryFlowSchemas, ensurer.NewMandatoryEnsureStrategy[*flowcontrolv1.FlowSchema]()),
		ensured(schemaOps, flowbootstrap.SuggestedFlowSchemas, ensurer.NewSuggestedEnsureStrategy[*flowcontrolv1.FlowSchema]()),
		[]task{
			{"unwanted flow schemas", func(ctx context.Context) error {
				return ensurer.RemoveUnwantedObjects(ctx, schemaOps, slices.Concat(flowbootstrap.MandatoryFlowSchemas, flowbootstrap.SuggestedFlowSchemas))
			}},
			{"unwanted priority levels", func(ctx context.Context) error {
				return ensurer.RemoveUnwantedObjects(ctx, levelOps, slices.Concat(flowbootstrap.MandatoryPriorityLevelConfigurations, flowbootstrap.SuggestedPriorityLevelConfigurations))
			}},
		},
	), nil
}

// flowStatusManager owns the condition that says whether a flow schema's priority
// level exists; it is kube-apiserver's name for its part that does.
const flowStatusManager = "api-priority-and-fairness-config-consumer-v1"

// flowStatus sets that condition where it is missing or wrong. Requests are not
// queued by priority here; the condition is what kubectl shows.
func (b *bootstrapper) flowStatus(ctx context.Context) error {
	v1 := b.Client.FlowcontrolV1()
	levels, err := v1.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing priority levels: %w", err)
	}
	schemas, err := v1.FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing flow schemas: %w", err)
	}
	for i := range schemas.Items {
		schema := &schemas.Items[i]
		want := dangling(schema.Spec.PriorityLevelConfiguration.Name, levels.Items)
		if slices.ContainsFunc(schema.Status.Conditions, func(have flowcontrolv1.FlowSchemaCondition) bool {
			have.LastTransitionTime = want.LastTransitionTime
			return have == want
		}) {
			continue
		}
		apply := flowapply.FlowSchema(schema.Name).WithStatus(flowapply.FlowSchemaStatus().WithConditions(flowapply.FlowSchemaCondition().
			WithType(want.Type).WithStatus(want.Status).WithReason(want.Reason).WithMessage(want.Message).WithLastTransitionTime(metav1.Now())))
		if _, err := v1.FlowSchemas().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: flowStatusManager, Force: true}); err != nil {
			return fmt.Errorf("status of flow schema %s: %w", schema.Name, err)
		}
	}
	return nil
}

// dangling is the condition of a flow schema of a priority level
// (k8s.io/apiserver/pkg/util/flowcontrol).
func dangling(level string, levels []flowcontrolv1.PriorityLevelConfiguration) flowcontrolv1.FlowSchemaCondition {
	if slices.ContainsFunc(levels, func(l flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == level }) {
		return flowcontrolv1.FlowSchemaCondition{
			Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
			Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
		}
	}
	return flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue, Reason: "NotFound",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level),
	}
}

// flowObject is what the ensurer deals with.
type flowObject interface {
	comparable
	metav1.Object
	runtime.Object
}

func ensured[T flowObject](ops ensurer.ObjectOps[T], objects []T, strategy ensurer.EnsureStrategy[T]) []task {
	tasks := make([]task, len(objects))
	for i, object := range objects {
		tasks[i] = task{fmt.Sprintf("%T %s", object, object.GetName()), func(ctx context.Context) error {
			return ensurer.EnsureConfiguration(ctx, ops, object, strategy)
		}}
	}
	return tasks
}

// snapshot is a lister of what was there when it was made. What it lacked the first
// time it is asked for is read when it is asked for again: then somebody else made
// it meanwhile.
type snapshot[T any] struct {
	resource string
	objects  map[string]*T
	client   client[*T]

	mu    sync.Mutex
	asked map[string]bool // guarded by mu
}

func newSnapshot[T any, P interface {
	*T
	metav1.Object
}](resource string, items []T, c client[*T]) *snapshot[T] {
	s := &snapshot[T]{resource: resource, objects: make(map[string]*T, len(items)), client: c, asked: map[string]bool{}}
	for i := range items {
		s.objects[P(&items[i]).GetName()] = &items[i]
	}
	return s
}

func (s *snapshot[T]) Get(name string) (*T, error) {
	if object, ok := s.objects[name]; ok {
		return object, nil
	}
	s.mu.Lock()
	again := s.asked[name]
	s.asked[name] = true
	s.mu.Unlock()
	if again {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return s.client.Get(ctx, name, metav1.GetOptions{})
	}
	return nil, apierrors.NewNotFound(flowcontrolv1.Resource(s.resource), name)
}

func (s *snapshot[T]) List(labels.Selector) ([]*T, error) {
	out := make([]*T, 0, len(s.objects))
	for _, object := range s.objects {
		out = append(out, object)
	}
	return out, nil
}
