package charts

import (
	"errors"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const (
	taskGroup     = "tasks.charts.example.com"
	taskFinalizer = taskGroup + "/text"
)

// Task is the operator's custom resource in its storage version v1.
type Task struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TaskSpec   `json:"spec"`
	Status            TaskStatus `json:"status,omitempty"`
}

// TaskSpec is the spec of a Task.
type TaskSpec struct {
	Words    []string `json:"words,omitempty"`
	Priority int      `json:"priority,omitempty"`
}

// TaskStatus is the status of a Task.
type TaskStatus struct {
	Written            int   `json:"written,omitempty"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (t *Task) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Words = slices.Clone(t.Spec.Words)
	return &out
}

// Hub implements conversion.Hub.
func (*Task) Hub() {}

// TaskList is a list of Tasks.
type TaskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Task `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *TaskList) DeepCopyObject() runtime.Object {
	out := &TaskList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Task))
	}
	return out
}

// OldTask is a Task in its version v1alpha1.
type OldTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OldTaskSpec `json:"spec"`
	Status            TaskStatus  `json:"status,omitempty"`
}

// OldTaskSpec is the spec of an OldTask.
type OldTaskSpec struct {
	Text    string `json:"text,omitempty"`
	Urgency int    `json:"urgency,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (t *OldTask) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

var errNoTask = errors.New("the hub is no Task")

// ConvertTo implements conversion.Convertible.
func (t *OldTask) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*Task)
	if !ok {
		return errNoTask
	}
	to.ObjectMeta, to.Status = t.ObjectMeta, t.Status
	to.Spec = TaskSpec{Words: strings.Fields(t.Spec.Text), Priority: t.Spec.Urgency}
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (t *OldTask) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*Task)
	if !ok {
		return errNoTask
	}
	t.ObjectMeta, t.Status = from.ObjectMeta, from.Status
	t.Spec = OldTaskSpec{Text: strings.Join(from.Spec.Words, " "), Urgency: from.Spec.Priority}
	return nil
}

func addTasks(s *runtime.Scheme) error {
	v1 := schema.GroupVersion{Group: taskGroup, Version: "v1"}
	old := schema.GroupVersion{Group: taskGroup, Version: "v1alpha1"}
	s.AddKnownTypes(v1, &Task{}, &TaskList{})
	s.AddKnownTypeWithName(old.WithKind("Task"), &OldTask{})
	metav1.AddToGroupVersion(s, v1)
	metav1.AddToGroupVersion(s, old)
	return nil
}

func taskDefinition(convertURL string, ca []byte) *apiextensions.CustomResourceDefinition {
	object := func(properties map[string]apiextensions.JSONSchemaProps) apiextensions.JSONSchemaProps {
		return apiextensions.JSONSchemaProps{Type: "object", Properties: properties}
	}
	number := apiextensions.JSONSchemaProps{Type: "integer"}
	version := func(name string, stored bool, spec map[string]apiextensions.JSONSchemaProps) apiextensions.CustomResourceDefinitionVersion {
		all := object(map[string]apiextensions.JSONSchemaProps{
			"spec":   object(spec),
			"status": object(map[string]apiextensions.JSONSchemaProps{"written": number, "observedGeneration": number}),
		})
		return apiextensions.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema:       &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &all},
			Subresources: &apiextensions.CustomResourceSubresources{Status: &apiextensions.CustomResourceSubresourceStatus{}},
		}
	}
	text := apiextensions.JSONSchemaProps{Type: "string"}
	words := apiextensions.JSONSchemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &text}}
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "tasks." + taskGroup},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: taskGroup,
			Scope: apiextensions.NamespaceScoped,
			Names: apiextensions.CustomResourceDefinitionNames{Plural: "tasks", Kind: "Task"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{
				version("v1", true, map[string]apiextensions.JSONSchemaProps{"words": words, "priority": number}),
				version("v1alpha1", false, map[string]apiextensions.JSONSchemaProps{"text": text, "urgency": number}),
			},
			Conversion: &apiextensions.CustomResourceConversion{
				Strategy: apiextensions.WebhookConverter,
				Webhook: &apiextensions.WebhookConversion{
					ClientConfig:             &apiextensions.WebhookClientConfig{URL: ptr.To(convertURL), CABundle: ca},
					ConversionReviewVersions: []string{"v1"},
				},
			},
		},
	}
}
