package groups

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kubeweir/kubeweir/origin/builtin/create"
	creators "github.com/kubeweir/kubeweir/origin/managedfields"
)

// creations puts create.Resource before the routes that create objects. Left alone are
// those of subresources, of what is not stored, of types whose use is warned of, and of
// services, whose addresses and ports are allocated in contexts of their own: only the
// library's handler leaves them to themselves when the time of the request is over.
func (in *installer) creations(v *genericapi.APIGroupVersion, service *restful.WebService) error {
	routes := service.Routes() // the service's own slice, as forgetDescriptions has it
	for i := range routes {
		r := &routes[i]
		resource := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
		storage, ok := v.Storage[resource].(rest.Creater)
		if r.Method != http.MethodPost || !ok || resource == "services" || strings.Contains(r.Path, "{name}") {
			continue
		}
		made, err := in.creation(v, resource, storage)
		if err != nil {
			return fmt.Errorf("creation of %s: %w", resource, err)
		}
		if made == nil {
			continue
		}
		made.Library = r.Function
		r.Function = made.Route()
	}
	return nil
}

func (in *installer) creation(v *genericapi.APIGroupVersion, resource string, storage rest.Creater) (*create.Resource, error) {
	kind, err := genericapi.GetResourceKind(v.GroupVersion, v.Storage[resource], v.Typer)
	if err != nil {
		return nil, err
	}
	object, err := v.Creater.New(kind)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	_, filtered := storage.(rest.ResetFieldsFilterStrategy)
	scoped, ok := storage.(rest.Scoper)
	_, stored := storage.(rest.Getter)
	if filtered || !ok || !stored || deprecation.IsDeprecated(object, deprecatedMajor, deprecatedMinor) {
		return nil, nil
	}
	return &create.Resource{
		Scope:   in.scope(v, resource, kind, scoped),
		Storage: storage,
		Admit:   v.Admit,
		Fields: sync.OnceValues(func() (*creators.Creation, error) {
			return in.types.creation(kind, object, resetFields(storage, v.GroupVersion))
		}),
	}, nil
}

// A deprecated type is warned of from some version on; here, whatever version it is.
const deprecatedMajor, deprecatedMinor = 1, 1 << 20

// scope is what APIInstaller makes (k8s.io/apiserver/pkg/endpoints/installer.go), without
// what creation has no use for.
func (in *installer) scope(v *genericapi.APIGroupVersion, resource string, kind schema.GroupVersionKind, scoped rest.Scoper) *handlers.RequestScope {
	acceptor, _ := v.Storage[resource].(rest.GroupVersionAcceptor)
	tables, _ := v.Storage[resource].(rest.TableConvertor) // a Table is what some would rather have
	return &handlers.RequestScope{
		Namer:                       handlers.ContextBasedNaming{Namer: v.Namer, ClusterScoped: !scoped.NamespaceScoped()},
		Serializer:                  v.Serializer,
		ParameterCodec:              v.ParameterCodec,
		Creater:                     v.Creater,
		Convertor:                   v.Convertor,
		Defaulter:                   v.Defaulter,
		Typer:                       v.Typer,
		UnsafeConvertor:             v.UnsafeConvertor,
		Authorizer:                  v.Authorizer,
		EquivalentResourceMapper:    v.EquivalentResourceRegistry,
		TableConvertor:              tables,
		Resource:                    v.GroupVersion.WithResource(resource),
		Kind:                        kind,
		AcceptsGroupVersionDelegate: acceptor,
		HubGroupVersion:             schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal},
		MetaGroupVersion:            metaGroupVersion(v),
		MaxRequestBodyBytes:         v.MaxRequestBodyBytes,
	}
}

func metaGroupVersion(v *genericapi.APIGroupVersion) schema.GroupVersion {
	if v.MetaGroupVersion != nil {
		return *v.MetaGroupVersion
	}
	return metav1.SchemeGroupVersion
}

// resetFields are those that the creator of an object cannot set.
func resetFields(storage rest.Creater, gv schema.GroupVersion) *fieldpath.Set {
	if r, ok := storage.(rest.ResetFieldsStrategy); ok {
		return r.GetResetFields()[fieldpath.APIVersion(gv.String())]
	}
	return nil
}
