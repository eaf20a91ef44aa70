package create

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilmanagedfields "k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager"
	requestmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubeweir/kubeweir/origin/managedfields"
	"github.com/kubeweir/kubeweir/origin/registry"
)

// longest is how long a creation may take (requestTimeoutUpperBound of k8s.io/apiserver).
const longest = 34 * time.Second

// A Resource is one whose objects can be created.
type Resource struct {
	// Scope is as the library's installer makes it; its FieldManager is not used.
	Scope   *handlers.RequestScope
	Storage rest.Creater
	Admit   admission.Interface
	// Fields tells what the creator of an object manages; nil if that is not known. It
	// is called by every request, also concurrently.
	Fields func() (*managedfields.Creation, error)
	// Library answers what is not foreseen here.
	Library restful.RouteFunction
}

// Route is the function of the route that creates objects, instrumented as the library's.
func (r *Resource) Route() restful.RouteFunction {
	resource := r.Scope.Resource
	own := metrics.InstrumentRouteFunc(http.MethodPost, resource.Group, resource.Version, resource.Resource, "", "resource",
		metrics.APIServerComponent, false, "", func(req *restful.Request, resp *restful.Response) {
			r.serve(req.Attribute(creationAttribute).(*creation), resp.ResponseWriter)
		})
	return func(req *restful.Request, resp *restful.Response) {
		c, ok := r.prepare(req.Request)
		if !ok {
			r.Library(req, resp)
			return
		}
		req.SetAttribute(creationAttribute, c)
		own(req, resp)
	}
}

const creationAttribute = "kubeweir.creation"

// A creation is a request about which nothing has been done yet.
type creation struct {
	req       *http.Request
	bodyBytes int
	namespace string
	name      string
	options   *metav1.CreateOptions
	object    runtime.Object // in the version that the storage works with
	meta      metav1.Object  // the object's
	managed   metav1.ManagedFieldsEntry
}

func (r *Resource) serve(c *creation, w http.ResponseWriter) {
	ctx, cancel := context.WithTimeout(c.req.Context(), longest)
	defer cancel()
	requestmetrics.RecordRequestBodySize(ctx, r.Scope.Resource.GroupResource(), requestmetrics.Create, c.bodyBytes)
	result, err := r.create(apirequest.WithNamespace(ctx, c.namespace), c)
	if err != nil {
		responsewriters.ErrorNegotiated(err, r.Scope.Serializer, r.Scope.Kind.GroupVersion(), w, c.req)
		return
	}
	responsewriters.WriteObjectNegotiated(r.Scope.Serializer, r.Scope, r.Scope.Kind.GroupVersion(), w, c.req, http.StatusCreated, result, false)
}

// create admits the object and stores it.
func (r *Resource) create(ctx context.Context, c *creation) (runtime.Object, error) {
	user, _ := apirequest.UserFrom(ctx)
	attributes := admission.NewAttributesRecord(c.object, nil, r.Scope.Kind, c.namespace, c.name, r.Scope.Resource, "",
		admission.Create, c.options, dryrun.IsDryRun(c.options.DryRun), user)
	c.meta.SetManagedFields([]metav1.ManagedFieldsEntry{c.managed})
	err := r.mutate(ctx, c, attributes)
	var result runtime.Object
	if err == nil {
		validate := rest.AdmissionToValidateObjectFunc(r.Admit, attributes, r.Scope)
		result, err = r.Storage.Create(ctx, c.object, validate, c.options)
		if errors.Is(err, registry.ErrTooLarge) { // it may fit without
			c.meta.SetManagedFields(nil)
			result, err = r.Storage.Create(ctx, c.object, validate, c.options)
		}
	}
	if err != nil && ctx.Err() != nil { // finisher.FinishRequest
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %s", ctx.Err()), 0)
	}
	if err != nil {
		return nil, err
	}
	if status, ok := result.(*metav1.Status); ok {
		if status.Status != metav1.StatusSuccess {
			return nil, apierrors.FromObject(status)
		}
		if status.Code == 0 {
			status.Code = http.StatusCreated
		}
	}
	return result, nil
}

// mutate lets admission change the object, and takes back what it must not do
// (fieldmanager.NewManagedFieldsValidatingAdmissionController).
func (r *Resource) mutate(ctx context.Context, c *creation, attributes admission.Attributes) error {
	mutating, ok := r.Admit.(admission.MutationInterface)
	if !ok || !mutating.Handles(admission.Create) {
		return nil
	}
	if err := mutating.Admit(ctx, attributes, r.Scope); err != nil {
		return err
	}
	if after := c.meta.GetManagedFields(); len(after) != 1 || after[0] != c.managed {
		if err := utilmanagedfields.ValidateManagedFields(after); err != nil {
			c.meta.SetManagedFields([]metav1.ManagedFieldsEntry{c.managed})
			warning.AddWarning(ctx, "", fmt.Sprintf(fieldmanager.InvalidManagedFieldsAfterMutatingAdmissionWarningFormat, err))
		}
	}
	dropRepeatedOwners(ctx, c.meta)
	return nil
}
