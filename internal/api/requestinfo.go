package api

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
)

// RequestInfo describes a request in the terms of authorization. The fields are those of
// k8s.io/apiserver/pkg/endpoints/request.
type RequestInfo struct {
	// IsResourceRequest is true for requests for a resource or subresource.
	IsResourceRequest bool
	// Path is the path of the request.
	Path string
	// Verb is the Kubernetes verb (get, list, watch, create, update, patch, delete,
	// deletecollection) of resource requests, otherwise the HTTP method in lower case.
	Verb string

	APIPrefix  string
	APIGroup   string
	APIVersion string
	Namespace  string
	// Resource is the plural name (pods), not the kind. It is empty for a resource request that
	// cannot be parsed (/api/v1/watch), to which kube-apiserver responds with a 500.
	Resource    string
	Subresource string
	// Name is the object's name. For a list or watch it is the name that the field selector
	// metadata.name requires.
	Name string
	// NamedByPath is set if Name is in the path.
	NamedByPath bool
	// ShardSelector is the parameter of list, watch and deletecollection as sent, whatever else is
	// in the query.
	ShardSelector string
	// FieldSelector and LabelSelector are the selectors of list, watch and deletecollection as
	// sent. Authorization attributes carry them.
	FieldSelector string
	LabelSelector string

	// Exact is set for a get, list or watch that can be read in only one way: by kubeweir, by
	// kube-apiserver of any version, and by any proxy before it. Its path is exactly the one that
	// the other fields describe: no empty or dot segments, nothing after the name, no characters
	// that proxies interpret differently. All its parameters are known and mean what Options says.
	//
	// Only exact requests may be authorized or served from the cache, or sent upstream with another
	// identity than the client's. Others are forwarded as the client, who thus gets what the
	// upstream allows that client.
	Exact bool
	// Options are the options of an exact request. A get has only the ResourceVersion. A watch by
	// the path of one object has the field selector for its name.
	Options ListOptions
	// Query holds the parameters of a list, watch or deletecollection that only kubeweir has, nil
	// without any. Exact ignores them: such a request may be authorized and served from the cache,
	// but must not be sent upstream.
	Query *Query
	// Coalesce is the parameter of a watch that says how long its events may be delayed, as sent,
	// nil without one. Unlike the parameters of Query it may be sent upstream: a server that does
	// not know it serves an equally valid watch.
	Coalesce *string
	// IncludeObject is the parameter of Table requests, see ParseIncludeObject.
	IncludeObject string
	// pretty is the parameter of that name, see Pretty.
	pretty string
}

// IsWrite reports whether the request is for a resource and may change something.
func (i *RequestInfo) IsWrite() bool {
	switch i.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return i.IsResourceRequest
	}
	return false
}

// maxParts is how many segments of a path are split; the last one holds the rest. The longest path
// with a meaning is that of a namespaced subresource with the verb in it:
// /apis/GROUP/VERSION/watch/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE.
const maxParts = 10

// ParseRequestInfo parses a request like kube-apiserver with the prefixes api and apis
// (RequestInfoFactory.NewRequestInfo). path is decoded, query is raw. It never fails; see Resource
// for paths that cannot be parsed.
func ParseRequestInfo(method, path, query string) RequestInfo {
	q := parseQuery(query)
	info := RequestInfo{
		Path: path, Verb: lowerMethod(method), IncludeObject: q.values[paramIncludeObject], pretty: q.values[paramPretty],
	}
	var segments [maxParts]string
	parts := segments[:splitPath(path, &segments)]
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
	info.Exact = method == "GET" && info.Verb != "proxy" && q.exact && plainPath(path)
	info.setParts(parts)
	info.setOptions(&q, query)
	// Selectors of requests with the verb in the path are not authorized, because servers do not
	// honor them consistently.
	if info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" {
		info.setQuery(&q)
		info.ShardSelector = q.values[paramShardSelector]
		info.Exact = info.Exact && len(info.ShardSelector) <= maxShardSelector
		if !verbInPath {
			info.FieldSelector, info.LabelSelector = q.values[paramFieldSelector], q.values[paramLabelSelector]
		}
	}
	info.Exact = info.Exact && (q.own == nil || info.Query != nil)
	if q.has(paramCoalesce) {
		info.setCoalesce(q.values[paramCoalesce])
	}
	return info
}

// setQuery sets the parameters that only kubeweir has. It ignores collections that belong to
// another server (proxied ones).
func (info *RequestInfo) setQuery(q *query) {
	if q.own == nil || info.Subresource != "" {
		return
	}
	q.own.LimitZero = q.has(paramLimit) && info.Options.Limit == 0
	info.Query = q.own
}

// setCoalesce sets the parameter of a watch. For all other requests it is an unknown parameter.
func (info *RequestInfo) setCoalesce(value string) {
	if info.Verb != "watch" || info.Subresource != "" {
		info.Exact = false
		return
	}
	info.Coalesce = &value
}

// setParts sets namespace, resource, name and subresource from the segments after the version.
func (info *RequestInfo) setParts(parts []string) {
	if parts[0] == "namespaces" && len(parts) > 1 {
		info.Namespace = parts[1]
		// status and finalize are subresources of namespaces; anything else there is a namespaced
		// resource.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
			// Namespaces are not namespaced: there is no such path.
			info.Exact = info.Exact && parts[0] != "namespaces"
		}
	}
	info.Exact = info.Exact && len(parts) <= 2
	info.Resource = parts[0]
	if len(parts) >= 2 {
		info.Name, info.NamedByPath = parts[1], parts[1] != ""
	}
	if len(parts) >= 3 && info.Verb != "proxy" {
		info.Subresource = parts[2]
	}
}

// setOptions sets the options from the query of a request whose path has been parsed.
func (info *RequestInfo) setOptions(q *query, raw string) {
	switch {
	case info.Verb == "watch": // with the verb in the path
		info.setPathWatch(q, raw)
	case info.Name != "":
		info.Options.ResourceVersion = q.values[paramResourceVersion]
	case info.Verb == "delete":
		info.Verb = "deletecollection"
	case info.Verb == "get":
		info.setCollection(q, raw)
	}
	info.Exact = info.Exact && (info.Verb == "watch" || q.servableTimeout())
}

// setCollection makes a get without a name a list or a watch.
func (info *RequestInfo) setCollection(q *query, raw string) {
	info.Verb = "list"
	if !q.fewTerms() {
		// Too long to parse here; the upstream will do it.
		info.Exact = false
		if q.has(paramWatch) && parseBool(q.values[paramWatch]) {
			info.Verb = "watch"
		}
		return
	}
	var err error
	info.Options, err = q.listOptions(raw)
	info.Exact = info.Exact && err == nil
	if info.Options.Watch {
		info.Verb = "watch"
	}
	if info.Options.FieldSelector == nil {
		return
	}
	if name, ok := info.Options.FieldSelector.RequiresExactMatch("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
		info.Name = name
	}
}

// setPathWatch parses the parameters of a watch with the verb in its path, which is deprecated
// (/api/v1/watch/...). Without a watch parameter the upstream decodes, defaults and validates them
// like those of a list, and still watches by them (k8s.io/apiserver/pkg/endpoints/handlers,
// ListResource with forceWatch).
func (info *RequestInfo) setPathWatch(q *query, raw string) {
	if !q.fewTerms() {
		info.Exact = false
		return
	}
	opts, err := q.listOptions(raw)
	info.Exact = info.Exact && err == nil
	if info.Name != "" && opts.FieldSelector != nil {
		if opts.FieldSelector.Empty() {
			opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", info.Name)
		} else if name, ok := opts.FieldSelector.RequiresExactMatch("metadata.name"); !ok || name != info.Name {
			info.Exact = false // rejected upstream
		}
	}
	if !opts.Watch {
		opts.Watch, opts.UnmarkedStart = true, opts.isAnyVersion()
	}
	info.Options = opts
}

// Pretty reports whether to indent a JSON body. The pretty parameter decides if it is present and
// not empty, otherwise the user agent: curl, Wget and browsers get indented JSON
// (k8s.io/apiserver/pkg/endpoints/handlers/negotiation).
func (info *RequestInfo) Pretty(userAgent string) bool {
	if info.pretty != "" {
		pretty, _ := strconv.ParseBool(info.pretty)
		return pretty
	}
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}

// plainPath reports whether a decoded path means the same to every server: proxies merge slashes,
// resolve dot segments, decode twice, and cut segments at semicolons.
func plainPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '/':
			if !plainSegment(path[i+1:]) {
				return false
			}
		case c == '-', c == '.', c == ':', strings.IndexByte("_~@!$&'()*+,=", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// plainSegment reports whether a path does not begin with an empty or dot segment.
func plainSegment(path string) bool {
	if path == "" || path[0] == '/' {
		return false
	}
	if path[0] != '.' {
		return true
	}
	segment, _, _ := strings.Cut(path, "/")
	return segment != "." && segment != ".."
}

// resourceVerb returns the verb of a method on a resource, "" for unknown methods.
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

// lowerMethod is strings.ToLower without an allocation for the usual methods.
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

// splitPath splits a path without its outer slashes into parts and returns their number. The last
// part holds the rest of a longer path.
func splitPath(path string, parts *[maxParts]string) (n int) {
	path = strings.Trim(path, "/")
	if path == "" {
		return 0
	}
	for n = range maxParts - 1 {
		var more bool
		if parts[n], path, more = strings.Cut(path, "/"); !more {
			return n + 1
		}
	}
	parts[maxParts-1] = path
	return maxParts
}

// LongRunning reports whether the request has no time limit: it is exempt from the 60 s limit and
// counts against other limits than the rest (k8s.io/kubernetes/cmd/kube-apiserver/app,
// BuildGenericConfig).
func (info *RequestInfo) LongRunning() bool {
	switch {
	case info.Verb == "watch", info.Verb == "proxy":
		return true
	case !info.IsResourceRequest:
		return strings.HasPrefix(info.Path, "/debug/pprof/") || info.Path == SnapshotPath
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}

// Brief returns a string whose length clients choose, shortened, in memory of its own.
func Brief(s string) string {
	const most = 256
	if len(s) <= most {
		return strings.Clone(s)
	}
	return s[:most] + "... (" + strconv.Itoa(len(s)) + " bytes)"
}
