// Package schemas configures the OpenAPI documents of a server that serves one group of
// types. The library's configuration holds the definitions of all types it was made
// with, built; here it is made when it is used, and dropped.
package schemas

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Group is a group of types.
type Group struct {
	// Definitions are the generated ones of the group.
	Definitions common.GetOpenAPIDefinitions
	// Scheme has the types of the documents.
	Scheme *runtime.Scheme
	// Config is of the server: of its OpenAPI configs the heading and the security
	// are used, if there are any.
	Config *genericapiserver.Config
}

// V2 configures /openapi/v2.
func (g Group) V2() *common.Config {
	c := genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(g.Definitions), g.namer())
	if from := g.Config.OpenAPIConfig; from != nil && from.Info != nil {
		c.Info, c.SecurityDefinitions = from.Info, from.SecurityDefinitions
	}
	if c.SecurityDefinitions != nil {
		for name := range *c.SecurityDefinitions {
			c.DefaultSecurity = append(c.DefaultSecurity, map[string][]string{name: {}})
		}
		c.CommonResponses = map[int]spec.Response{http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: unauthorized}}}
	}
	return c
}

// V3 configures /openapi/v3.
func (g Group) V3() *common.OpenAPIV3Config {
	c := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(g.Definitions), g.namer())
	if from := g.Config.OpenAPIV3Config; from != nil && from.Info != nil {
		c.Info, c.SecuritySchemes = from.Info, from.SecuritySchemes
	}
	if c.SecuritySchemes != nil {
		for name := range c.SecuritySchemes {
			c.DefaultSecurity = append(c.DefaultSecurity, map[string][]string{name: {}})
		}
		c.CommonResponses = map[int]*spec3.Response{http.StatusUnauthorized: {ResponseProps: spec3.ResponseProps{Description: unauthorized}}}
	}
	return c
}

// unauthorized is what the library says of 401.
const unauthorized = "Unauthorized"

func (g Group) namer() *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(g.Scheme)
}
