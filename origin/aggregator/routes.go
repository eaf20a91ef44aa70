package aggregator

import (
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/kubeweir/kubeweir/origin/internal/extension"
)

// coreService is the name of the APIService of the core group, whose route is /api.
const coreService = "v1."

func routeOf(name, group, version string) string {
	if name == coreService {
		return "/api"
	}
	return "/apis/" + group + "/" + version
}

// AddAPIService creates or updates the route of an APIService. The library's registration
// controller calls it, for one APIService at a time.
func (s *Server) AddAPIService(service *apiregistration.APIService) error {
	s.routes.Lock()
	proxy, known := s.routes.proxies[service.Name]
	if !known {
		proxy = &proxyHandler{local: s.delegate(), resolver: s.cfg.ServiceResolver, logger: s.cfg.Logger}
		s.routes.proxies[service.Name] = proxy
	}
	proxy.update(service, s.dial, s.cfg.ProxyClientCert, s.cfg.ProxyClientKey)
	if !known {
		s.addRoute(service, proxy)
	}
	s.routes.Unlock()

	if service.Spec.Service == nil {
		// It may have been another server's before.
		s.documents.remove(service.Name)
		return nil
	}
	s.remote.needed()
	s.documents.add(service, extension.Documents(proxy, s.cfg.Logger))
	// Discovery queries the server whether or not it is known to be available.
	s.discovery.AddAPIService(service, extension.Documents(proxy.available(), s.cfg.Logger))
	return nil
}

// addRoute is called with the routes locked.
func (s *Server) addRoute(service *apiregistration.APIService, proxy *proxyHandler) {
	mux := s.Generic.Handler.NonGoRestfulMux
	path := routeOf(service.Name, service.Spec.Group, service.Spec.Version)
	mux.Handle(path, proxy)
	mux.UnlistedHandlePrefix(path+"/", proxy)
	if service.Name == coreService {
		return
	}
	if versions, known := s.routes.versions[service.Spec.Group]; known {
		versions.Insert(service.Spec.Version)
		return
	}
	s.routes.versions[service.Spec.Group] = sets.New(service.Spec.Version)
	group := s.serveGroup(service.Spec.Group)
	mux.Handle("/apis/"+service.Spec.Group, group)
	mux.UnlistedHandle("/apis/"+service.Spec.Group+"/", group)
}

// RemoveAPIService removes the route of an APIService that is gone. It is called as
// AddAPIService is.
func (s *Server) RemoveAPIService(name string) {
	s.discovery.RemoveAPIService(name)
	s.documents.remove(name)

	s.routes.Lock()
	defer s.routes.Unlock()
	if _, known := s.routes.proxies[name]; !known {
		return
	}
	delete(s.routes.proxies, name)
	gv := helper.APIServiceNameToGroupVersion(name)
	mux := s.Generic.Handler.NonGoRestfulMux
	path := routeOf(name, gv.Group, gv.Version)
	mux.Unregister(path)
	mux.Unregister(path + "/")
	versions, known := s.routes.versions[gv.Group]
	if !known {
		return
	}
	versions.Delete(gv.Version)
	if versions.Len() > 0 {
		return
	}
	delete(s.routes.versions, gv.Group)
	mux.Unregister("/apis/" + gv.Group)
	mux.Unregister("/apis/" + gv.Group + "/")
}
