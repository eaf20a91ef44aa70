package matrix

import (
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/test/conformance"
)

// A form is a representation of objects. To add one, append to forms.
type form struct {
	name string
	// accept is the media type of objects and events; acceptList that of lists if it differs.
	accept, acceptList string
	query              string // in addition to the verb's
	header             map[string]string
	except             []exception
}

// An exception is a cell that the cache does not serve.
type exception struct {
	column, resource, verb string // "" matches all
	// forwarded is the reason why the gateway forwards the request.
	forwarded reason.Forward
	status    int // of the upstream's response; 0 means 200
	// missing is the reason why the cell is left out.
	missing string
}

const (
	before130 = "gateway, 1.30"
	before133 = "gateway, 1.33"
	before136 = "gateway, 1.36"
	before137 = "gateway, 1.37"
	alone     = "standalone"

	asTable    = ";as=Table;v=v1;g=meta.k8s.io"
	asMetadata = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asList     = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	json       = "application/json"
	protobuf   = "application/vnd.kubernetes.protobuf"
	cbor       = "application/cbor"
	inYAML     = "application/yaml"
)

var forms = []form{
	{name: "JSON", accept: json},
	{name: "JSON, pretty", accept: json, query: "pretty=true"},
	{name: "JSON, gzip", accept: json, header: gzipped, except: uncompressed},
	{name: "protobuf", accept: protobuf, except: notCustom},
	{name: "protobuf, gzip", accept: protobuf, header: gzipped, except: slices.Concat(uncompressed, notCustom)},
	{name: "Table", accept: json + asTable, except: otherColumns},
	{name: "Table without objects", accept: json + asTable, query: "includeObject=None", except: otherColumns},
	{name: "Table with metadata", accept: json + asTable, query: "includeObject=Metadata", except: otherColumns},
	{name: "Table with objects", accept: json + asTable, query: "includeObject=Object", except: otherColumns},
	{name: "metadata", accept: json + asMetadata, acceptList: json + asList},
	{name: "metadata in protobuf", accept: protobuf + asMetadata, acceptList: protobuf + asList},
	{name: "JSON, dropped", accept: json + drop},
	{name: "protobuf, dropped", accept: protobuf + drop, except: slices.Concat(notCustom, otherDefaults)},
	{name: "Table with metadata, dropped", accept: json + asTable + drop, except: droppedTables},
	{name: "Table with objects, dropped", accept: json + asTable + drop, query: "includeObject=Object", except: droppedTables},
	{name: "metadata, dropped", accept: json + asMetadata + drop, acceptList: json + asList + drop},
	{name: "metadata in protobuf, dropped", accept: protobuf + asMetadata + drop, acceptList: protobuf + asList + drop},
	{name: "CBOR", accept: cbor},
	{name: "CBOR, gzip", accept: cbor, header: gzipped, except: uncompressed},
	{name: "CBOR, dropped", accept: cbor + drop},
	{name: "metadata in CBOR", accept: cbor + asMetadata, acceptList: cbor + asList},
	{name: "metadata in CBOR, dropped", accept: cbor + asMetadata + drop, acceptList: cbor + asList + drop},
	{name: "YAML", accept: inYAML, except: notWatched},
	{name: "YAML, gzip", accept: inYAML, header: gzipped, except: notWatched},
	{name: "YAML, dropped", accept: inYAML + drop, except: notWatched},
	{name: "metadata in YAML", accept: inYAML + asMetadata, acceptList: inYAML + asList, except: notWatched},
}

var gzipped = map[string]string{"Accept-Encoding": "gzip"}

// uncompressed lists watches that the gateway compresses and kube-apiserver does not. Before 1.37
// that is every watch, since then every watch except streaming lists.
// test/e2e.TestCompressedWatchLists reads them.
var uncompressed = []exception{
	{verb: watchAny, missing: "kube-apiserver does not compress it"},
	{column: before130, verb: watchList, missing: "kube-apiserver does not compress it yet"},
	{column: before133, verb: watchList, missing: "kube-apiserver does not compress it yet"},
	{column: before136, verb: watchList, missing: "kube-apiserver does not compress it yet"},
}

// otherDefaults is left out because the newer library of later encodes pods differently.
var otherDefaults = []exception{{column: before130, resource: "pods", missing: "Kubernetes 1.37 writes more fields of a pod"}}

// droppedTables lists Tables that are forwarded (see otherColumns) to a release without drop.
var droppedTables = []exception{
	{column: before130, resource: "serviceaccounts", missing: "1.30 does not know drop"},
	{column: before133, resource: "serviceaccounts", missing: "1.33 does not know drop"},
}

// otherColumns lists ServiceAccounts, whose Tables had one more column. The gateway forwards them,
// and a cluster without streaming lists rejects a forwarded streaming list.
var otherColumns = []exception{
	{column: before130, resource: "serviceaccounts", verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before130, resource: "serviceaccounts", forwarded: reason.Representation},
	{column: before133, resource: "serviceaccounts", verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before133, resource: "serviceaccounts", forwarded: reason.Representation},
}

// notCustom lists custom resources in protobuf, which does not exist. 1.33 rejects the streaming
// list first.
var notCustom = []exception{
	{column: before133, resource: "widgets", verb: watchList, forwarded: reason.Representation, status: 422},
	{resource: "widgets", forwarded: reason.Representation, status: 406},
}

// notWatched lists watches in YAML, which do not exist. A cluster without streaming lists rejects a
// forwarded streaming list first.
var notWatched = []exception{
	{column: before130, verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before133, verb: watchList, forwarded: reason.Representation, status: 422},
	{verb: watchList, forwarded: reason.Representation, status: 406},
	{verb: watchAny, forwarded: reason.Representation, status: 406},
	{verb: watchSince, forwarded: reason.Representation, status: 406},
}

// A resource has objectsEach objects in namespace one, or without a namespace, and one more in
// namespace two.
type resource struct {
	name       string
	prefix     string
	namespaced bool
	custom     bool
}

var resources = []resource{
	{name: "pods", prefix: "/api/v1", namespaced: true},
	{name: "configmaps", prefix: "/api/v1", namespaced: true},
	{name: "serviceaccounts", prefix: "/api/v1", namespaced: true},
	{name: "nodes", prefix: "/api/v1"},
	{name: "widgets", prefix: "/apis/" + widgetGroup + "/v1", namespaced: true, custom: true},
}

// all returns the path of all objects; in returns the path of those in a namespace. The paths are
// equal if the resource is not namespaced.
func (r resource) all() string { return r.prefix + "/" + r.name }

func (r resource) in(namespace string) string {
	if !r.namespaced {
		return r.all()
	}
	return r.prefix + "/namespaces/" + namespace + "/" + r.name
}

// A verb is a way to read a resource. To add one, append to verbs.
type verb struct {
	name string
	path func(r resource, changed int64) string // changed is the version before the last changes
	// list means that the response is a list, walk that it has pages.
	list, walk bool
	// events returns the expected events of a watch.
	events func(r resource) []string
	// version determines whether the response must have the same version as the oracle's.
	version conformance.VersionRule
	// sources are the allowed sources of the response, by the label of kubeweir_requests_total; nil
	// means cached.
	sources []string
}

const (
	watchAny   = "watch"
	watchList  = "watch list"
	watchSince = "watch from a version"
	newest     = "list, most recent"
	pages      = "pages"

	anyVersion = "?resourceVersion=0"
	labelled   = "labelSelector=odd%3Dyes"
)

// mostRecent are the sources of a response with the most recent state. The gateway has to send a
// request to the upstream for it, unless the upstream is in the same process.
var mostRecent = []string{"cached", "revalidated", "collapsed"}

var verbs = []verb{
	{name: "get", version: conformance.SameVersion, path: func(r resource, _ int64) string { return r.in("one") + "/object-07" + anyVersion }},
	{name: "list", list: true, version: conformance.AnyVersion, path: func(r resource, _ int64) string { return r.all() + anyVersion }},
	{name: "list of a namespace", list: true, version: conformance.AnyVersion, path: func(r resource, _ int64) string { return r.in("two") + anyVersion }},
	{name: "list by label", list: true, version: conformance.AnyVersion, path: func(r resource, _ int64) string { return r.all() + anyVersion + "&" + labelled }},
	{name: newest, list: true, sources: mostRecent, path: func(r resource, _ int64) string { return r.all() + "?" + labelled }},
	{name: pages, list: true, walk: true, sources: mostRecent, path: func(r resource, _ int64) string { return r.all() + "?limit=15" }},
	{
		name: watchAny, events: func(resource) []string { return slices.Repeat([]string{"ADDED"}, objectsEach) },
		path: func(r resource, _ int64) string { return r.in("one") + anyVersion + "&watch=1" },
	},
	{
		name: watchSince, events: func(r resource) []string {
			if r.name == "pods" { // deleting a pod first marks it as terminating
				return []string{"MODIFIED", "MODIFIED", "MODIFIED", "DELETED"}
			}
			return []string{"MODIFIED", "MODIFIED", "DELETED"}
		},
		path: func(r resource, changed int64) string {
			return fmt.Sprintf("%s?watch=1&resourceVersion=%d", r.all(), changed)
		},
	},
	{
		name: watchList, events: func(resource) []string { return append(slices.Repeat([]string{"ADDED"}, objectsEach), "BOOKMARK") },
		path: func(r resource, _ int64) string {
			return r.in("one") + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		},
	},
}
