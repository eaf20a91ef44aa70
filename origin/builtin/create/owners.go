package create

import (
	"context"
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/warning"
)

// dropRepeatedOwners leaves one of owner references that are equal, after admission.
func dropRepeatedOwners(ctx context.Context, object metav1.Object) {
	owners := object.GetOwnerReferences()
	if len(owners) < 2 {
		return
	}
	var kept []metav1.OwnerReference
	var repeated []string
	for _, o := range owners {
		if hasOwner(kept, o) {
			repeated = append(repeated, string(o.UID))
		} else {
			kept = append(kept, o)
		}
	}
	if len(repeated) == 0 {
		return
	}
	warning.AddWarning(ctx, "", fmt.Sprintf(handlers.DuplicateOwnerReferencesAfterMutatingAdmissionWarningFormat, strings.Join(repeated, ", ")))
	object.SetOwnerReferences(kept)
}

func hasOwner(owners []metav1.OwnerReference, owner metav1.OwnerReference) bool {
	for _, o := range owners {
		if o.UID == owner.UID && apiequality.Semantic.DeepEqual(o, owner) {
			return true
		}
	}
	return false
}
