package discovery

import (
	"encoding/json"
	"mime"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Document returns the discovery document at a path, in a form that the client accepts, or nil if there
// is none.
func Document(docs *Documents, path, accept string) (body []byte, contentType string) {
	form := discoveryForm(accept)
	if form == "" {
		return nil, ""
	}
	var document any
	list := map[string]*apidiscoveryv2.APIGroupDiscoveryList{"/api": docs.Core, "/apis": docs.Groups}[path]
	switch {
	case path == "/version" && docs.Version != nil:
		return docs.Version, "application/json"
	case docs.Core == nil || docs.Groups == nil:
		return nil, ""
	case list != nil && form != plainDiscovery:
		typed := *list
		typed.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apiDiscovery + "/" + form}
		document, contentType = &typed, "application/json;g="+apiDiscovery+";v="+form+";as=APIGroupDiscoveryList"
	default:
		document, contentType = plainDocument(docs, path), "application/json"
	}
	if document == nil {
		return nil, ""
	}
	body, err := json.Marshal(document)
	if err != nil {
		return nil, ""
	}
	return body, contentType
}

const (
	apiDiscovery   = "apidiscovery.k8s.io"
	plainDiscovery = "plain"
)

// discoveryForm returns the form that the client prefers: the version of the aggregated form, plain for
// the old form, or "" for anything else.
func discoveryForm(accept string) string {
	if accept == "" {
		return plainDiscovery
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		switch {
		case err != nil:
		case media != "application/json" && media != "application/*" && media != "*/*":
		case params["as"] == "":
			return plainDiscovery
		case params["as"] == "APIGroupDiscoveryList" && params["g"] == apiDiscovery && (params["v"] == "v2" || params["v"] == "v2beta1"):
			return params["v"]
		}
	}
	return ""
}

// plainDocument returns the document at a path in the old form, or nil if there is none.
func plainDocument(docs *Documents, path string) any {
	core, coreResources, _ := discovery.SplitGroupsAndResources(*docs.Core)
	groups, resources, _ := discovery.SplitGroupsAndResources(*docs.Groups)
	rest, ofGroups := strings.CutPrefix(path, "/apis/")
	version, ofCore := strings.CutPrefix(path, "/api/")
	switch {
	case path == "/api":
		versions := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}}
		for _, group := range core.Groups {
			for _, v := range group.Versions {
				versions.Versions = append(versions.Versions, v.Version)
			}
		}
		return versions
	case path == "/apis":
		groups.TypeMeta = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
		return groups
	case ofCore:
		return listOfResources(coreResources, schema.GroupVersion{Version: version})
	case !ofGroups:
		return nil
	}
	name, version, versioned := strings.Cut(rest, "/")
	if versioned {
		return listOfResources(resources, schema.GroupVersion{Group: name, Version: version})
	}
	for i := range groups.Groups {
		if group := &groups.Groups[i]; group.Name == name {
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return group
		}
	}
	return nil
}

func listOfResources(resources map[schema.GroupVersion]*metav1.APIResourceList, gv schema.GroupVersion) any {
	list := resources[gv]
	if list == nil {
		return nil
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}
	return list
}
