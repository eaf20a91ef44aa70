package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
)

// hiddenAnnotations returns the annotations that objects of a kind have in a
// served version only, where conversion keeps what the version has no field
// for; see table.Traits.
func hiddenAnnotations(gvk schema.GroupVersionKind) []string {
	switch gvk.GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return []string{appsv1.DeprecatedTemplateGeneration}
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return []string{appsv1.DeprecatedRollbackTo}
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:
		return []string{
			autoscaling.MetricSpecsAnnotation, autoscaling.MetricStatusesAnnotation,
			autoscaling.BehaviorSpecsAnnotation, autoscaling.HorizontalPodAutoscalerConditionsAnnotation,
			autoscaling.ToleranceScaleDownAnnotation, autoscaling.ToleranceScaleUpAnnotation,
		}
	case schema.GroupKind{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}:
		if gvk.Version == "v1beta3" {
			return []string{flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey}
		}
	}
	return nil
}
