package groups

import (
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
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

// OpenAPIConfig is what kube-apiserver's /openapi/v2 is built with: the definitions
// of all built-in types, those of custom resources and aggregation among them. It
// takes tens of milliseconds; call it when a document is asked for.
func OpenAPIConfig() *common.Config {
	c := genericapiserver.DefaultOpenAPIConfig(definitions(), namer())
	frame := openAPIFrame()
	c.Info, c.SecurityDefinitions = frame.Info, frame.SecurityDefinitions
	c.DefaultSecurity, c.CommonResponses = defaultSecurity(), map[int]spec.Response{
		http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
	}
	return c
}

// openAPIFrame is what OpenAPIConfig has besides the definitions, at no cost.
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

// info tells the version as kube-apiserver does, without the patch release.
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

// installOpenAPI serves the documents of what a container holds. They are built when
// they are asked for: that of /openapi/v2 takes a second or so, each of /openapi/v3
// some tens of milliseconds.
func installOpenAPI(s *genericapiserver.GenericAPIServer, container *restful.Container) {
	v2 := lazily(func(m *mux.PathRecorderMux) {
		routes.OpenAPI{Config: OpenAPIConfig()}.InstallV2(container, m)
	})
	v3 := lazily(func(m *mux.PathRecorderMux) {
		documents := &schemas.Documents{}
		documents.SetRoutes(container, Version, OpenAPIV3Config)
		m.Handle("/openapi/v3", documents)
		m.HandlePrefix("/openapi/v3/", documents)
	})
	s.Handler.NonGoRestfulMux.Handle("/openapi/v2", v2)
	s.Handler.NonGoRestfulMux.Handle("/openapi/v3", v3)
	s.Handler.NonGoRestfulMux.HandlePrefix("/openapi/v3/", v3)
}

// lazily is a handler whose routes are installed at the first request.
func lazily(install func(*mux.PathRecorderMux)) http.Handler {
	routes := sync.OnceValue(func() *mux.PathRecorderMux {
		m := mux.NewPathRecorderMux("openapi")
		install(m)
		return m
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes().ServeHTTP(w, r) })
}
