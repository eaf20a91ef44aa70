package object

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/encoding"
)

// SchemaFor returns a new schema for a built-in resource. The labels are those
// of the AddFieldLabelConversionFunc calls in k8s.io/kubernetes/pkg/apis, the
// values those of the ToSelectableFields functions in k8s.io/kubernetes/pkg/registry,
// the field numbers those of k8s.io/api's generated.proto files. Every other
// resource gets DefaultSchema, which is what upstream does.
func SchemaFor(gvr schema.GroupVersionResource) *Schema {
	switch gvr.Group {
	case "":
		if gvr.Version == "v1" {
			return coreSchema(gvr.Resource)
		}
	case "batch":
		if gvr.Version == "v1" && gvr.Resource == "jobs" {
			return newSchema([]fieldSpec{
				{label: "status.successful", path: dotted("status.succeeded"), numbers: nums(3, 5), kind: encoding.Int},
			}, nil, false)
		}
	case "events.k8s.io":
		if (gvr.Version == "v1" || gvr.Version == "v1beta1") && gvr.Resource == "events" {
			return eventsSchema()
		}
	case "certificates.k8s.io":
		return certificatesSchema(gvr)
	case "resource.k8s.io":
		if resourceSliceVersion(gvr.Version) && gvr.Resource == "resourceslices" {
			return newSchema([]fieldSpec{
				str("spec.nodeName", 2, 3),
				str("spec.driver", 2, 1),
			}, nil, true)
		}
	}
	return DefaultSchema()
}

func resourceSliceVersion(v string) bool { return v == "v1" || v == "v1beta1" || v == "v1beta2" }

func coreSchema(resource string) *Schema {
	switch resource {
	case "pods":
		return newSchema([]fieldSpec{
			str("spec.nodeName", 2, 10),
			str("spec.restartPolicy", 2, 3),
			str("spec.schedulerName", 2, 19),
			str("spec.serviceAccountName", 2, 8),
			{label: "spec.hostNetwork", path: dotted("spec.hostNetwork"), numbers: nums(2, 11), kind: encoding.Bool},
			str("status.phase", 3, 1),
			// The registry takes the first of status.podIPs; the conversion to v1
			// writes that same address to status.podIP.
			str("status.podIP", 3, 6),
			// The label is accepted, but the pod registry sets no value for it.
			{label: "status.podIPs"},
			str("status.nominatedNodeName", 3, 11),
		}, map[string]string{"spec.host": "spec.nodeName"}, false)
	case "nodes":
		return newSchema([]fieldSpec{
			{label: "spec.unschedulable", path: dotted("spec.unschedulable"), numbers: nums(2, 4), kind: encoding.Bool},
		}, nil, true)
	case "namespaces":
		return newSchema([]fieldSpec{str("status.phase", 3, 1)}, nil, true)
	case "secrets":
		return newSchema([]fieldSpec{str("type", 3)}, nil, false)
	case "services":
		return newSchema([]fieldSpec{since(31, str("spec.clusterIP", 2, 3)), since(31, str("spec.type", 2, 4))}, nil, false)
	case "replicationcontrollers":
		return newSchema([]fieldSpec{
			{label: "status.replicas", path: dotted("status.replicas"), numbers: nums(3, 1), kind: encoding.Int},
		}, nil, false)
	case "events":
		return newSchema([]fieldSpec{
			str("involvedObject.kind", 2, 1),
			str("involvedObject.namespace", 2, 2),
			str("involvedObject.name", 2, 3),
			str("involvedObject.uid", 2, 4),
			str("involvedObject.apiVersion", 2, 5),
			str("involvedObject.resourceVersion", 2, 6),
			str("involvedObject.fieldPath", 2, 7),
			str("reason", 3),
			str("reportingComponent", 14),
			{label: "source", path: dotted("source.component"), numbers: nums(5, 1),
				elsePath: dotted("reportingComponent"), elseNumbers: nums(14)},
			str("type", 9),
		}, nil, false)
	}
	return DefaultSchema()
}

// eventsSchema is that of events.k8s.io, whose labels differ from the names
// under which the shared event registry keeps the values.
func eventsSchema() *Schema {
	specs := []fieldSpec{str("reason", 7), str("type", 11), str("reportingController", 4)}
	for i, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		specs = append(specs, str("regarding."+name, 8, protowire.Number(i+1)))
	}
	return newSchema(specs, nil, false)
}

func certificatesSchema(gvr schema.GroupVersionResource) *Schema {
	alpha, beta, stable := gvr.Version == "v1alpha1", gvr.Version == "v1beta1", gvr.Version == "v1"
	switch {
	case gvr.Resource == "certificatesigningrequests" && (beta || stable):
		return newSchema([]fieldSpec{str("spec.signerName", 2, 7)}, nil, true)
	case gvr.Resource == "clustertrustbundles" && (alpha || beta):
		return newSchema([]fieldSpec{str("spec.signerName", 2, 1)}, nil, true)
	case gvr.Resource == "podcertificaterequests" && (alpha || beta):
		// Namespaced, yet its conversion does not accept metadata.namespace.
		return newSchema([]fieldSpec{
			str("spec.signerName", 2, 1),
			str("spec.podName", 2, 2),
			str("spec.nodeName", 2, 6),
		}, nil, true)
	}
	return DefaultSchema()
}

// str is a string field whose label is its JSON path.
func str(label string, numbers ...protowire.Number) fieldSpec {
	return fieldSpec{label: label, path: dotted(label), numbers: numbers}
}

// since is f, which API servers have from a minor release on.
func since(minor int, f fieldSpec) fieldSpec {
	f.since = minor
	return f
}

func dotted(path string) []string { return strings.Split(path, ".") }

func nums(n ...protowire.Number) []protowire.Number { return n }
