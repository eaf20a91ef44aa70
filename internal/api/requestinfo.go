package api

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// RequestInfo says what a request asks for, in the terms that authorization
// uses. The fields are those of k8s.io/apiserver/pkg/endpoints/request.
type RequestInfo struct {
	// IsResourceRequest is true for requests for a resource or subresource.
	IsResourceRequest bool
	// Path is the path of the request.
	Path string
	// Verb is the verb of Kubernetes (get, list, watch, create, update, patch,
	// delete, deletecollection) for resource requests, else the HTTP method in
	// lower case.
	Verb string

	APIPrefix  string
	APIGroup   string
	APIVersion string
	Namespace  string
	// Resource is the plural name (pods), not the kind. It is empty for a
	// resource request that cannot be parsed (/api/v1/watch), which
	// kube-apiserver answers with a 500.
	Resource    string
	Subresource string
	// Name is the object's name, for a list or watch the one that the field
	// selector metadata.name demands.
	Name string
	// Parts are the path's segments from the resource on.
	Parts []string

	// FieldSelector and LabelSelector are the selectors of list, watch and
	// deletecollection as they came; authorization attributes carry them.
	FieldSelector string
	LabelSelector string
}

// ParseRequestInfo parses a request as kube-apiserver does, with the prefixes
// api and apis (RequestInfoFactory.NewRequestInfo). path is decoded, query is
// raw. It never fails; see Resource for what it cannot parse.
func ParseRequestInfo(method, path, query string) RequestInfo {
	info := RequestInfo{Path: path, Verb: lowerMethod(method)}
	parts := splitPath(path)
	if len(parts) < 3 {
		return info
	}
	switch parts[0] {
	case "api":
		info.APIPrefix, parts = parts[0], parts[1:]
	case "apis":
		info.APIPrefix = parts[0]
		if len(parts) < 4 {
			return info
		}
		info.APIGroup, parts = parts[1], parts[2:]
	default:
		return info
	}
	info.IsResourceRequest = true
	info.APIVersion, parts = parts[0], parts[1:]

	verbInPath := parts[0] == "watch" || parts[0] == "proxy"
	if verbInPath {
		if len(parts) < 2 {
			return info
		}
		info.Verb, parts = parts[0], parts[1:]
	} else {
		info.Verb = resourceVerb(method)
	}
	info.setParts(parts)
	if info.Name == "" {
		switch info.Verb {
		case "get":
			info.setCollectionVerb(query)
		case "delete":
			info.Verb = "deletecollection"
		}
	}
	// Requests with the verb in the path do not authorize by selectors, because
	// they do not honour them consistently.
	if !verbInPath && (info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection") {
		info.FieldSelector, _ = queryValue(query, "fieldSelector")
		info.LabelSelector, _ = queryValue(query, "labelSelector")
	}
	return info
}

// setParts takes namespace, resource, name and subresource from the segments
// after the version.
func (info *RequestInfo) setParts(parts []string) {
	if parts[0] == "namespaces" && len(parts) > 1 {
		info.Namespace = parts[1]
		// status and finalize are subresources of namespaces, anything else
		// there is a namespaced resource.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	info.Parts = parts
	info.Resource = parts[0]
	if len(parts) >= 2 {
		info.Name = parts[1]
	}
	if len(parts) >= 3 && info.Verb != "proxy" {
		info.Subresource = parts[2]
	}
}

// setCollectionVerb makes a get without a name a list or a watch.
func (info *RequestInfo) setCollectionVerb(query string) {
	info.Verb = "list"
	if !mayContainParameter(query, "watch") && !mayContainParameter(query, "fieldSelector") {
		return
	}
	opts, err := decodeListOptions(query)
	if err != nil {
		// As upstream: nothing of options that cannot be decoded counts, except
		// a watch parameter.
		value, ok := queryValue(query, "watch")
		opts = ListOptions{Watch: ok && parseBool(value)}
	}
	if opts.Watch {
		info.Verb = "watch"
	}
	if opts.FieldSelector == nil {
		return
	}
	if name, ok := opts.FieldSelector.RequiresExactMatch("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
		info.Name = name
	}
}

// resourceVerb is the verb of a method on a resource, "" for unknown methods.
func resourceVerb(method string) string {
	switch method {
	case "GET", "HEAD":
		return "get"
	case "POST":
		return "create"
	case "PUT":
		return "update"
	case "PATCH":
		return "patch"
	case "DELETE":
		return "delete"
	}
	return ""
}

// lowerMethod is strings.ToLower without its allocation for the usual methods.
func lowerMethod(method string) string {
	switch method {
	case "GET":
		return "get"
	case "POST":
		return "post"
	case "PUT":
		return "put"
	case "DELETE":
		return "delete"
	case "PATCH":
		return "patch"
	case "HEAD":
		return "head"
	}
	return strings.ToLower(method)
}

// splitPath returns the segments of a path without its outer slashes.
func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// LongRunning reports whether the request may take as long as it likes: it is
// not under the 60 s limit and counts against other limits than the rest
// (k8s.io/kubernetes/cmd/kube-apiserver/app, BuildGenericConfig).
func (info *RequestInfo) LongRunning() bool {
	switch {
	case info.Verb == "watch", info.Verb == "proxy":
		return true
	case !info.IsResourceRequest:
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}
