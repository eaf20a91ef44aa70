package crd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/server/mux"
	builder2 "k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
)

// documents serves /openapi/v2 and /openapi/v3 of this server: its own group and every
// established definition.
//
// A request compares the known definitions with those that the documents were built from and
// rebuilds outdated documents, so that a document is as recent as the known definitions.
// (kube-apiserver's controllers rebuild at every change, and the aggregator then needs a second or
// more to notice.) Documents that nobody requests cost nothing.
type documents struct {
	crds      listers.CustomResourceDefinitionLister
	container *restful.Container
	group     schemas.Group
	logger    *slog.Logger

	// mu is held while documents are compared and renewed, not while they are sent.
	mu struct {
		sync.Mutex
		two   *version2
		three *schemas.Documents
		// paths of the definitions' documents.
		paths map[string]bool
	}
}

// version2 is /openapi/v2.
type version2 struct {
	handler http.Handler
	service *handler.OpenAPIService
	static  *spec.Swagger
	// made holds the contribution of each definition.
	made map[string]contribution
}

// contribution is the part of /openapi/v2 that one definition adds.
type contribution struct {
	stamp   string
	swagger *spec.Swagger
}

func (d *documents) install(m *mux.PathRecorderMux) {
	m.Handle("/openapi/v2", d.serve(d.handler2))
	m.Handle("/openapi/v3", d.serve(d.handler3))
	m.HandlePrefix("/openapi/v3/", d.serve(d.handler3))
}

// serve answers by the handler that current returns.
func (d *documents) serve(current func() (http.Handler, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h, err := current()
		if err != nil {
			d.logger.Error("building an OpenAPI document failed", "path", req.URL.Path, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// stamp changes whenever the documents of a definition do.
func stamp(crd *apiextensions.CustomResourceDefinition) string {
	return fmt.Sprintf("%s,%d", crd.UID, crd.Generation)
}

// established returns the definitions that documents are made of, by name.
func (d *documents) established() (map[string]*apiextensions.CustomResourceDefinition, error) {
	all, err := d.crds.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing definitions: %w", err)
	}
	found := make(map[string]*apiextensions.CustomResourceDefinition, len(all))
	for _, crd := range all {
		if apihelpers.IsCRDConditionTrue(crd, apiextensions.Established) {
			found[crd.Name] = crd
		}
	}
	return found, nil
}

func (d *documents) handler2() (http.Handler, error) {
	crds, err := d.established()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.two == nil {
		two, err := d.newVersion2()
		if err != nil {
			return nil, err
		}
		d.mu.two = two
	}
	d.mu.two.renew(crds, d.logger)
	return d.mu.two.handler, nil
}

func (d *documents) newVersion2() (*version2, error) {
	static, err := builder2.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(d.container.RegisteredWebServices()), d.group.V2())
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v2 of the group: %w", err)
	}
	static.Definitions = handler.PruneDefaults(static.Definitions)
	own := mux.NewPathRecorderMux("origin/crd openapi v2")
	two := &version2{handler: own, static: static, service: handler.NewOpenAPIService(static), made: map[string]contribution{}}
	two.service.RegisterOpenAPIVersionedService("/openapi/v2", own)
	return two, nil
}

// renew rebuilds the document from crds. It leaves out a definition whose schema cannot be
// published; others are not affected.
func (v *version2) renew(crds map[string]*apiextensions.CustomResourceDefinition, logger *slog.Logger) {
	changed := false
	for name := range v.made {
		if crds[name] == nil {
			delete(v.made, name)
			changed = true
		}
	}
	for name, crd := range crds {
		if v.made[name].stamp == stamp(crd) {
			continue
		}
		swagger, err := swaggerOf(crd)
		if err != nil {
			logger.Error("a definition is left out of OpenAPI v2", "crd", name, "error", err)
		}
		v.made[name] = contribution{stamp: stamp(crd), swagger: swagger}
		changed = true
	}
	if !changed {
		return
	}
	parts := make([]*spec.Swagger, 0, len(v.made))
	tag := make([]string, 0, len(v.made))
	for _, name := range slices.Sorted(maps.Keys(v.made)) {
		tag = append(tag, v.made[name].stamp)
		if made := v.made[name]; made.swagger != nil {
			parts = append(parts, made.swagger)
		}
	}
	static := v.static
	v.service.UpdateSpecLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
		merged, err := builder.MergeSpecs(static, parts...)
		return merged, strings.Join(tag, ";"), err
	})))
}

// swaggerOf returns the part of /openapi/v2 that a definition adds: all its served versions.
func swaggerOf(crd *apiextensions.CustomResourceDefinition) (*spec.Swagger, error) {
	merged := &spec.Swagger{}
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		one, err := builder.BuildOpenAPIV2(crd, version.Name, builder.Options{V2: true, IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("version %s: %w", version.Name, err)
		}
		one.Definitions = handler.PruneDefaults(one.Definitions)
		if merged, err = builder.MergeSpecs(merged, one); err != nil {
			return nil, fmt.Errorf("version %s: %w", version.Name, err)
		}
	}
	return merged, nil
}

func (d *documents) handler3() (http.Handler, error) {
	crds, err := d.established()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.three == nil {
		d.mu.three = &schemas.Documents{}
		d.mu.three.SetRoutes(d.container, d.group.Config.EffectiveVersion.String(), d.group.V3)
	}
	d.renew3(crds)
	return d.mu.three, nil
}

// versionOf is one version of a definition.
type versionOf struct {
	crd  *apiextensions.CustomResourceDefinition
	name string
}

// renew3 rebuilds the documents from crds. The caller holds mu.
func (d *documents) renew3(crds map[string]*apiextensions.CustomResourceDefinition) {
	parts := map[string][]versionOf{}
	stamps := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(crds)) {
		crd := crds[name]
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			path := "apis/" + crd.Spec.Group + "/" + version.Name
			parts[path] = append(parts[path], versionOf{crd, version.Name})
			stamps[path] += stamp(crd) + ";"
		}
	}
	for path := range d.mu.paths {
		if _, wanted := parts[path]; !wanted {
			d.mu.three.Delete(path)
		}
	}
	d.mu.paths = make(map[string]bool, len(parts))
	for path, of := range parts {
		d.mu.paths[path] = true
		d.mu.three.Set(path, stamps[path], func() ([]byte, error) { return json.Marshal(openAPIOf(of, d.logger)) })
	}
}

// openAPIOf returns the document of one group and version, which several definitions may share. It
// omits definitions that cannot be described; they do not affect the others.
func openAPIOf(parts []versionOf, logger *slog.Logger) *spec3.OpenAPI {
	merged := &spec3.OpenAPI{}
	var published []*spec3.OpenAPI
	for _, part := range parts {
		one, err := builder.BuildOpenAPIV3(part.crd, part.name, builder.Options{IncludeSelectableFields: true})
		var with *spec3.OpenAPI
		if err == nil {
			with, err = builder.MergeSpecsV3(append(published, one)...)
		}
		if err != nil {
			logger.Error("a definition is left out of OpenAPI v3", "crd", part.crd.Name, "version", part.name, "error", err)
			continue
		}
		published, merged = append(published, one), with
	}
	return merged
}
