package groups

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"weak"

	"github.com/emicklei/go-restful/v3"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/openapi"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
)

// OpenAPIConfig returns the configuration of kube-apiserver's /openapi/v2: the definitions of all
// built-in types, including those of custom resources and aggregation. It takes tens of
// milliseconds; call it only when a document is requested.
func OpenAPIConfig() *common.Config {
	c := genericapiserver.DefaultOpenAPIConfig(definitions(), namer())
	frame := openAPIFrame()
	c.Info, c.SecurityDefinitions = frame.Info, frame.SecurityDefinitions
	c.DefaultSecurity, c.CommonResponses = defaultSecurity(), map[int]spec.Response{
		http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
	}
	return c
}

// openAPIFrame returns the parts of OpenAPIConfig besides the definitions, which cost nothing.
func openAPIFrame() *common.Config {
	return &common.Config{Info: info(), SecurityDefinitions: &spec.SecurityDefinitions{
		"BearerToken": &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
		}},
	}}
}

func openAPIV3Frame() *common.OpenAPIV3Config {
	return &common.OpenAPIV3Config{Info: info(), SecuritySchemes: spec3.SecuritySchemes{
		"BearerToken": &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication",
		}},
	}}
}

// info returns the version as kube-apiserver does, without the patch release.
func info() *spec.Info {
	minor := Version[:strings.LastIndexByte(Version, '.')]
	return &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: minor}}
}

func defaultSecurity() []map[string][]string { return []map[string][]string{{"BearerToken": {}}} }

// OpenAPIV3Config is OpenAPIConfig for /openapi/v3.
func OpenAPIV3Config() *common.OpenAPIV3Config {
	c := genericapiserver.DefaultOpenAPIV3Config(definitions(), namer())
	frame := openAPIV3Frame()
	c.Info, c.SecuritySchemes = frame.Info, frame.SecuritySchemes
	c.DefaultSecurity, c.CommonResponses = defaultSecurity(), map[int]*spec3.Response{
		http.StatusUnauthorized: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
	}
	return c
}

func definitions() common.GetOpenAPIDefinitions {
	return openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
}

func namer() *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme)
}

// forgetDescriptions drops from routes what only documents tell of them: descriptions
// of parameters, examples. That is several megabytes, and most clients never ask.
func forgetDescriptions(service *restful.WebService) {
	// The slice is the service's own as long as its routes are not dynamic.
	served := service.Routes()
	for i := range served {
		r := &served[i]
		r.ParameterDocs, r.ResponseErrors, r.DefaultResponse = nil, nil, nil
		r.ReadSample, r.WriteSample, r.WriteSamples, r.Metadata = nil, nil, nil, nil
		r.Doc, r.Notes = "", ""
	}
}

// described rebuilds the routes of versions with their descriptions, which takes some tens of
// milliseconds. These routes serve no requests. The other web services of the live container are
// reused.
func described(live *restful.Container, versions []*genericapi.APIGroupVersion) (*restful.Container, error) {
	container := restful.NewContainer()
	made := map[string]bool{}
	for _, v := range versions {
		described := *v
		described.EquivalentResourceRegistry = runtime.NewEquivalentResourceRegistry()
		if _, _, err := described.InstallREST(container); err != nil {
			return nil, fmt.Errorf("routes of %s: %w", v.GroupVersion, err)
		}
	}
	for _, service := range container.RegisteredWebServices() {
		made[service.RootPath()] = true
	}
	for _, service := range live.RegisteredWebServices() {
		if !made[service.RootPath()] {
			container.Add(service)
		}
	}
	return container, nil
}

// installOpenAPI serves the OpenAPI documents of a server's container. They are built on request:
// that of /openapi/v2 takes about a second, each of /openapi/v3 a tenth of it.
func installOpenAPI(s *genericapiserver.GenericAPIServer, versions []*genericapi.APIGroupVersion) {
	live := s.Handler.GoRestfulContainer
	v2 := lazily(func(m *mux.PathRecorderMux) error {
		container, err := described(live, versions)
		if err == nil {
			routes.OpenAPI{Config: OpenAPIConfig()}.InstallV2(container, m)
		}
		return err
	})
	v3 := lazily(func(m *mux.PathRecorderMux) error {
		documents := newDocuments(live, versions)
		m.Handle("/openapi/v3", documents)
		m.HandlePrefix("/openapi/v3/", documents)
		return nil
	})
	s.Handler.NonGoRestfulMux.Handle("/openapi/v2", v2)
	s.Handler.NonGoRestfulMux.Handle("/openapi/v3", v3)
	s.Handler.NonGoRestfulMux.HandlePrefix("/openapi/v3/", v3)
}

// sources are the inputs of the documents.
type sources struct {
	config   *common.OpenAPIV3Config
	services map[string]*restful.WebService // by root path
}

// newDocuments are the documents of /openapi/v3, one for each web service. Their
// sources are kept from one document to the next until memory is collected.
func newDocuments(live *restful.Container, versions []*genericapi.APIGroupVersion) *schemas.Documents {
	documents := &schemas.Documents{}
	// building is held while a document is made: the library writes to the config.
	var building sync.Mutex
	var last weak.Pointer[sources]
	for _, service := range live.RegisteredWebServices() {
		root := service.RootPath()
		path := strings.TrimPrefix(root, "/")
		documents.Set(path, Version, func() ([]byte, error) {
			building.Lock()
			defer building.Unlock()
			from := last.Value()
			if from == nil {
				var err error
				if from, err = newSources(live, versions); err != nil {
					return nil, err
				}
				last = weak.Make(from)
			}
			return schemas.RoutesDocument(path, from.services[root], from.config)
		})
	}
	return documents
}

func newSources(live *restful.Container, versions []*genericapi.APIGroupVersion) (*sources, error) {
	container, err := described(live, versions)
	if err != nil {
		return nil, err
	}
	s := &sources{OpenAPIV3Config(), map[string]*restful.WebService{}}
	for _, service := range container.RegisteredWebServices() {
		s.services[service.RootPath()] = service
	}
	return s, nil
}

// lazily is a handler whose routes are installed at the first request.
func lazily(install func(*mux.PathRecorderMux) error) http.Handler {
	routes := sync.OnceValues(func() (*mux.PathRecorderMux, error) {
		m := mux.NewPathRecorderMux("openapi")
		return m, install(m)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := routes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		m.ServeHTTP(w, r)
	})
}
