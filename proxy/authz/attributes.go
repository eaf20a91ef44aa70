package authz

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

// Attributes are what a decision is about: those of authorizer.Attributes in
// k8s.io/apiserver, without the user. They are comparable.
type Attributes struct {
	// ResourceRequest is false for non-resource paths, which have a Verb and a
	// Path only.
	ResourceRequest bool
	Verb            string
	APIGroup        string
	APIVersion      string
	Resource        string
	Subresource     string
	Namespace       string
	Name            string
	Path            string
	// FieldSelector and LabelSelector are the selectors as the client sent them.
	// Some authorizers allow only a narrowed list: the node authorizer lets a
	// kubelet list pods with spec.nodeName of its own node.
	FieldSelector string
	LabelSelector string
}

// AttributesOf returns the attributes that kube-apiserver authorizes a request
// with (filters.GetAuthorizerAttributes).
func AttributesOf(info *api.RequestInfo) Attributes {
	if !info.IsResourceRequest {
		return Attributes{Verb: info.Verb, Path: info.Path}
	}
	return Attributes{
		ResourceRequest: true,
		Verb:            info.Verb,
		APIGroup:        info.APIGroup,
		APIVersion:      info.APIVersion,
		Resource:        info.Resource,
		Subresource:     info.Subresource,
		Namespace:       info.Namespace,
		Name:            info.Name,
		FieldSelector:   info.FieldSelector,
		LabelSelector:   info.LabelSelector,
	}
}

// strings lists the string fields, to hash and to copy them.
func (a *Attributes) strings() [10]*string {
	return [...]*string{&a.Verb, &a.APIGroup, &a.APIVersion, &a.Resource, &a.Subresource,
		&a.Namespace, &a.Name, &a.Path, &a.FieldSelector, &a.LabelSelector}
}

// Size is the number of bytes in all strings.
func (a *Attributes) Size() int {
	return len(a.Verb) + len(a.APIGroup) + len(a.APIVersion) + len(a.Resource) + len(a.Subresource) +
		len(a.Namespace) + len(a.Name) + len(a.Path) + len(a.FieldSelector) + len(a.LabelSelector)
}

// digest identifies the attributes: quoted, no two different ones are written alike.
func (a *Attributes) digest() authn.Digest { return sha256.Sum256(fmt.Appendf(nil, "%#v", *a)) }

// Clone copies the strings, which may be parts of a request's longer ones.
func (a Attributes) Clone() Attributes {
	for _, s := range a.strings() {
		*s = strings.Clone(*s)
	}
	return a
}

// reviewOf builds the review that asks whether u may do a, as the webhook
// authorizer of k8s.io/apiserver does.
func reviewOf(u user.Info, a *Attributes) *authorizationv1.SubjectAccessReview {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   u.GetName(),
		UID:    u.GetUID(),
		Groups: slices.Clone(u.GetGroups()),
	}
	if extra := u.GetExtra(); len(extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(extra))
		for k, v := range extra {
			spec.Extra[k] = slices.Clone(v)
		}
	}
	if !a.ResourceRequest {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return &authorizationv1.SubjectAccessReview{Spec: spec}
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   a.Namespace,
		Verb:        a.Verb,
		Group:       a.APIGroup,
		Version:     a.APIVersion,
		Resource:    a.Resource,
		Subresource: a.Subresource,
		Name:        a.Name,
	}
	if reqs := fieldRequirements(a.FieldSelector); len(reqs) > 0 {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: reqs}
	}
	if reqs := labelRequirements(a.LabelSelector); len(reqs) > 0 {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: reqs}
	}
	return &authorizationv1.SubjectAccessReview{Spec: spec}
}

// fieldRequirements translates a selector. What cannot be parsed or said is left
// out: requirements only narrow, so the review asks for more, never for less.
func fieldRequirements(selector string) []metav1.FieldSelectorRequirement {
	if selector == "" {
		return nil
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil
	}
	var reqs []metav1.FieldSelectorRequirement
	for _, r := range parsed.Requirements() {
		req := metav1.FieldSelectorRequirement{Key: r.Field, Values: []string{r.Value}}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			req.Operator = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			req.Operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		reqs = append(reqs, req)
	}
	return reqs
}

// labelRequirements is fieldRequirements for label selectors.
func labelRequirements(selector string) []metav1.LabelSelectorRequirement {
	if selector == "" {
		return nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil
	}
	all, _ := parsed.Requirements()
	var reqs []metav1.LabelSelectorRequirement
	for i := range all {
		req := metav1.LabelSelectorRequirement{Key: all[i].Key(), Values: all[i].ValuesUnsorted()}
		switch all[i].Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			req.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			req.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			req.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			req.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		reqs = append(reqs, req)
	}
	return reqs
}
