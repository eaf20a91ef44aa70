package object

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// builtin is a built-in resource with selectable fields of its own. The labels are those of the
// AddFieldLabelConversionFunc calls in k8s.io/kubernetes/pkg/apis, the values those of the
// ToSelectableFields functions in k8s.io/kubernetes/pkg/registry, the field numbers those of
// k8s.io/api's generated.proto files.
type builtin struct {
	group, resource string
	versions        string // separated by spaces
	noNamespace     bool   // metadata.namespace is not a field label
	fields          []fieldSpec
	aliases         map[string]string
}

var builtins = []builtin{
	{"", "pods", "v1", false, []fieldSpec{
		str("spec.nodeName", 2, 10),
		str("spec.restartPolicy", 2, 3),
		str("spec.schedulerName", 2, 19),
		str("spec.serviceAccountName", 2, 8),
		of(encoding.Bool, str("spec.hostNetwork", 2, 11)),
		str("status.phase", 3, 1),
		// The registry uses the first of status.podIPs; the conversion to v1 writes the same
		// address to status.podIP.
		str("status.podIP", 3, 6),
		// The label is accepted, but the pod registry sets no value for it.
		{label: "status.podIPs"},
		str("status.nominatedNodeName", 3, 11),
	}, map[string]string{"spec.host": "spec.nodeName"}},
	{"", "nodes", "v1", true, []fieldSpec{of(encoding.Bool, str("spec.unschedulable", 2, 4))}, nil},
	{"", "namespaces", "v1", true, []fieldSpec{str("status.phase", 3, 1)}, nil},
	{"", "secrets", "v1", false, []fieldSpec{str("type", 3)}, nil},
	{"", "services", "v1", false, []fieldSpec{introducedIn(31, str("spec.clusterIP", 2, 3)), introducedIn(31, str("spec.type", 2, 4))}, nil},
	{"", "replicationcontrollers", "v1", false, []fieldSpec{of(encoding.Int, str("status.replicas", 3, 1))}, nil},
	{"", "events", "v1", false, []fieldSpec{
		str("involvedObject.kind", 2, 1),
		str("involvedObject.namespace", 2, 2),
		str("involvedObject.name", 2, 3),
		str("involvedObject.uid", 2, 4),
		str("involvedObject.apiVersion", 2, 5),
		str("involvedObject.resourceVersion", 2, 6),
		str("involvedObject.fieldPath", 2, 7),
		str("reason", 3),
		str("reportingComponent", 14),
		{label: "source", path: dotted("source.component"), numbers: []protowire.Number{5, 1}, or: "reportingComponent"},
		str("type", 9),
	}, nil},
	{"batch", "jobs", "v1", false, []fieldSpec{
		{label: "status.successful", path: dotted("status.succeeded"), numbers: []protowire.Number{3, 5}, kind: encoding.Int},
	}, nil},
	// The labels of events.k8s.io differ from the names under which the shared event registry
	// stores the values.
	{"events.k8s.io", "events", "v1 v1beta1", false, []fieldSpec{
		str("reason", 7),
		str("type", 11),
		str("reportingController", 4),
		str("regarding.kind", 8, 1),
		str("regarding.namespace", 8, 2),
		str("regarding.name", 8, 3),
		str("regarding.uid", 8, 4),
		str("regarding.apiVersion", 8, 5),
		str("regarding.resourceVersion", 8, 6),
		str("regarding.fieldPath", 8, 7),
	}, nil},
	{"certificates.k8s.io", "certificatesigningrequests", "v1 v1beta1", true, []fieldSpec{str("spec.signerName", 2, 7)}, nil},
	{"certificates.k8s.io", "clustertrustbundles", "v1beta1 v1alpha1", true, []fieldSpec{str("spec.signerName", 2, 1)}, nil},
	// Namespaced, but its conversion does not accept metadata.namespace.
	{"certificates.k8s.io", "podcertificaterequests", "v1beta1 v1alpha1", true, []fieldSpec{
		str("spec.signerName", 2, 1),
		str("spec.podName", 2, 2),
		str("spec.nodeName", 2, 6),
	}, nil},
	{"resource.k8s.io", "resourceslices", "v1 v1beta1 v1beta2", true, []fieldSpec{
		str("spec.nodeName", 2, 3),
		str("spec.driver", 2, 1),
	}, nil},
}

// SchemaFor returns a new schema for a built-in resource. As upstream, resources that are not in
// builtins only have the fields metadata.name and metadata.namespace.
func SchemaFor(gvr schema.GroupVersionResource) *Schema {
	for _, b := range builtins {
		if b.group == gvr.Group && b.resource == gvr.Resource && slices.Contains(strings.Fields(b.versions), gvr.Version) {
			return newSchema(slices.Clone(b.fields), b.aliases, b.noNamespace)
		}
	}
	return CustomSchema(nil)
}

// str returns a string field whose label is its JSON path.
func str(label string, numbers ...protowire.Number) fieldSpec {
	return fieldSpec{label: label, path: dotted(label), numbers: numbers}
}

// introducedIn returns f for API servers of a minor release and later.
func introducedIn(minor int, f fieldSpec) fieldSpec {
	f.since = minor
	return f
}

// of returns f with values of another kind.
func of(kind encoding.Kind, f fieldSpec) fieldSpec {
	f.kind = kind
	return f
}
