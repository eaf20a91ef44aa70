package aggregator

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

// installRoot serves /apis: in its old form from the APIServices, in the aggregated one
// from the manager that all servers tell their groups to.
func (s *Server) installRoot() {
	root := http.HandlerFunc(s.serveGroups)
	mux := s.Generic.Handler.NonGoRestfulMux
	mux.Handle("/apis", aggregated.WrapAggregatedDiscoveryToHandler(root,
		s.Generic.AggregatedDiscoveryGroupManager, s.Generic.PeerAggregatedDiscoveryManager))
	mux.UnlistedHandle("/apis/", root)
}

// serveGroups answers with all groups: its own first, which has no APIService, then the
// others by their priority.
func (s *Server) serveGroups(w http.ResponseWriter, req *http.Request) {
	services, err := s.APIServices.Lister().List(labels.Everything())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	own := metav1.GroupVersionForDiscovery{
		GroupVersion: apiregistration.SchemeGroupVersion.String(),
		Version:      apiregistration.SchemeGroupVersion.Version,
	}
	list := &metav1.APIGroupList{Groups: []metav1.APIGroup{{
		Name:             apiregistration.GroupName,
		Versions:         []metav1.GroupVersionForDiscovery{own},
		PreferredVersion: own,
	}}}
	for _, group := range helper.SortedByGroupAndVersion(services) {
		if group[0].Spec.Group != "" {
			list.Groups = append(list.Groups, groupOf(group))
		}
	}
	writeDiscovery(w, req, list)
}

// serveGroup answers with one group, if some APIService is of it.
func (s *Server) serveGroup(name string) http.HandlerFunc {
	delegate := s.delegate()
	return func(w http.ResponseWriter, req *http.Request) {
		services, err := s.APIServices.Lister().List(labels.Everything())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var of []*apiregistration.APIService
		for _, service := range services {
			if service.Spec.Group == name {
				of = append(of, service)
			}
		}
		if len(of) == 0 {
			delegate.ServeHTTP(w, req)
			return
		}
		group := groupOf(helper.SortedByGroupAndVersion(of)[0])
		writeDiscovery(w, req, &group)
	}
}

// groupOf returns the group whose APIServices are given, the preferred version first.
func groupOf(services []*apiregistration.APIService) metav1.APIGroup {
	group := metav1.APIGroup{Name: services[0].Spec.Group}
	for _, service := range services {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: service.Spec.Group + "/" + service.Spec.Version,
			Version:      service.Spec.Version,
		})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func writeDiscovery(w http.ResponseWriter, req *http.Request, obj runtime.Object) {
	responsewriters.WriteObjectNegotiated(scheme.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, req, http.StatusOK, obj, false)
}

// delegate is the next server, without its chain of filters.
func (s *Server) delegate() http.Handler {
	return s.cfg.Delegate.UnprotectedHandler()
}
