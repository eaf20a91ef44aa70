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
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

// Attributes are the subject of a decision: authorizer.Attributes of k8s.io/apiserver without the
// user. They are comparable.
type Attributes struct {
	// ResourceRequest is false for non-resource paths, which have a Verb and a Path only.
	ResourceRequest bool
	Verb            string
	APIGroup        string
	APIVersion      string
	Resource        string
	Subresource     string
	Namespace       string
	Name            string
	Path            string
	// FieldSelector and LabelSelector are the selectors as the client sent them. Some authorizers
	// allow only a narrowed list: the node authorizer lets a kubelet list pods with spec.nodeName of
	// its own node.
	FieldSelector string
	LabelSelector string
}

// AttributesOf returns the attributes by which kube-apiserver authorizes a request
// (filters.GetAuthorizerAttributes).
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

// Size returns the number of bytes in all strings.
func (a *Attributes) Size() int {
	return len(a.Verb) + len(a.APIGroup) + len(a.APIVersion) + len(a.Resource) + len(a.Subresource) +
		len(a.Namespace) + len(a.Name) + len(a.Path) + len(a.FieldSelector) + len(a.LabelSelector)
}

// Clone copies the strings, which may be parts of a request's longer ones.
func (a Attributes) Clone() Attributes {
	for _, s := range []*string{&a.Verb, &a.APIGroup, &a.APIVersion, &a.Resource, &a.Subresource,
		&a.Namespace, &a.Name, &a.Path, &a.FieldSelector, &a.LabelSelector} {
		*s = strings.Clone(*s)
	}
	return a
}

// Record returns the attributes with a user in the form of k8s.io/apiserver.
func (a *Attributes) Record(u user.Info) authorizer.Attributes {
	record := authorizer.AttributesRecord{
		User: u, Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.APIGroup, APIVersion: a.APIVersion,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, ResourceRequest: a.ResourceRequest, Path: a.Path,
	}
	if a.FieldSelector != "" {
		selector, err := fields.ParseSelector(a.FieldSelector)
		if record.FieldSelectorParsingErr = err; err == nil {
			record.FieldSelectorRequirements = selector.Requirements()
		}
	}
	if a.LabelSelector != "" {
		selector, err := labels.Parse(a.LabelSelector)
		if record.LabelSelectorParsingErr = err; err == nil {
			record.LabelSelectorRequirements, _ = selector.Requirements()
		}
	}
	return record
}

// Decision is the answer to "may this user do that".
type Decision struct {
	// Allowed is false for everything that the upstream does not allow.
	Allowed bool
	// Reason is the upstream authorizer's, often "".
	Reason string
	// Generation is the generation of the Authorizer when the decision was made; see
	// revocation.Watches.Register.
	Generation uint64
	// Offline is true if the upstream is unavailable, and the decision is its last one or that of
	// its rules.
	Offline bool
	// Reviews is the share of a review that this caller caused: 1 if it shared the review with no
	// other caller, 0 if the decision was cached.
	Reviews float64
}

// maxKeyBytes is up to which size the attributes, which the client chooses, are themselves the key
// of a decision. The key of larger ones is a digest, so that the cached decisions are bounded in
// bytes, too.
const maxKeyBytes = 2048

// Key stands for a user and attributes: the attributes themselves, or the digest of large ones.
type Key struct {
	user  authn.Digest
	a     Attributes
	large authn.Digest
}

// KeyOf returns the key of a user and attributes.
func KeyOf(u *authn.User, a *Attributes) Key {
	if a.Size() > maxKeyBytes {
		// Quoted, no two different ones are written alike.
		return Key{user: u.Digest(), large: sha256.Sum256(fmt.Appendf(nil, "%#v", *a))}
	}
	return Key{user: u.Digest(), a: *a}
}

// isLarge reports whether the key has a digest instead of attributes.
func (k *Key) isLarge() bool { return k.large != authn.Digest{} }

// reviewOf returns the review of whether u may do a, as the webhook authorizer of k8s.io/apiserver
// makes it.
func reviewOf(u user.Info, a *Attributes) *authorizationv1.SubjectAccessReview {
	spec := authorizationv1.SubjectAccessReviewSpec{User: u.GetName(), UID: u.GetUID(), Groups: slices.Clone(u.GetGroups())}
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

// operators maps the operators of requirements to the operators of a review.
var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}

// fieldRequirements translates a selector. It leaves out what it cannot parse or express:
// requirements only narrow, so the review asks for more, never for less.
func fieldRequirements(selector string) (reqs []metav1.FieldSelectorRequirement) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil
	}
	for _, r := range parsed.Requirements() {
		if op, ok := operators[r.Operator]; ok {
			reqs = append(reqs, metav1.FieldSelectorRequirement{Key: r.Field, Operator: metav1.FieldSelectorOperator(op), Values: []string{r.Value}})
		}
	}
	return reqs
}

// labelRequirements is fieldRequirements for label selectors.
func labelRequirements(selector string) (reqs []metav1.LabelSelectorRequirement) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil
	}
	all, _ := parsed.Requirements()
	for i := range all {
		if op, ok := operators[all[i].Operator()]; ok {
			reqs = append(reqs, metav1.LabelSelectorRequirement{Key: all[i].Key(), Operator: op, Values: all[i].ValuesUnsorted()})
		}
	}
	return reqs
}
