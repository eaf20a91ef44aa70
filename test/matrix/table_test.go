package matrix

import (
	"fmt"
	"slices"

	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/test/conformance"
)

// A form is a way to ask for objects. A new one is an entry of forms.
type form struct {
	name string
	// accept is the media type of an object and of events, acceptList that of a list where it is another.
	accept, acceptList string
	query              string // besides that of the verb
	header             map[string]string
	except             []exception
}

// An exception is something that is not answered from the cache as the rest is.
type exception struct {
	column, resource, verb string // "" is every one
	// forwarded is why it is the upstream that answers.
	forwarded reason.Forward
	status    int // of the upstream's answer; 200 when 0
	// missing says why it is left out altogether.
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
	{name: "CBOR, forwarded", accept: cbor, query: "unknown=1", except: inexact},
	{name: "metadata in CBOR, forwarded", accept: cbor + asMetadata, acceptList: cbor + asList, query: "unknown=1", except: inexact},
	{name: "YAML", accept: inYAML, except: notWatched},
	{name: "YAML, gzip", accept: inYAML, header: gzipped, except: notWatched},
	{name: "YAML, dropped", accept: inYAML + drop, except: notWatched},
	{name: "metadata in YAML", accept: inYAML + asMetadata, acceptList: inYAML + asList, except: notWatched},
}

var gzipped = map[string]string{"Accept-Encoding": "gzip"}

// uncompressed are the watches that the gateway compresses and kube-apiserver does not. Before 1.37 that is any watch, since
// then those that do not begin with a streaming list. test/e2e.TestCompressedWatchLists reads them.
var uncompressed = []exception{
	{verb: watchAny, missing: "kube-apiserver does not compress it"},
	{column: before130, verb: watchList, missing: "kube-apiserver does not compress it yet"},
	{column: before133, verb: watchList, missing: "kube-apiserver does not compress it yet"},
	{column: before136, verb: watchList, missing: "kube-apiserver does not compress it yet"},
}

// otherDefaults: what is compared with is encoded by the newer library.
var otherDefaults = []exception{{column: before130, resource: "pods", missing: "Kubernetes 1.37 writes more fields of a pod"}}

// droppedTables: those that the upstream answers, see otherColumns.
var droppedTables = []exception{
	{column: before130, resource: "serviceaccounts", missing: "1.30 does not know drop"},
	{column: before133, resource: "serviceaccounts", missing: "1.33 does not know drop"},
}

// otherColumns: ServiceAccounts had a column more. What is forwarded is refused where the cluster knows no streaming lists.
var otherColumns = []exception{
	{column: before130, resource: "serviceaccounts", verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before130, resource: "serviceaccounts", forwarded: reason.Representation},
	{column: before133, resource: "serviceaccounts", verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before133, resource: "serviceaccounts", forwarded: reason.Representation},
}

// notCustom: custom resources have no protobuf. 1.33 refuses the streaming list first.
var notCustom = []exception{
	{column: before133, resource: "widgets", verb: watchList, forwarded: reason.Representation, status: 422},
	{resource: "widgets", forwarded: reason.Representation, status: 406},
}

// inexact: with a parameter that nobody knows reads are the upstream's, which may lack CBOR.
var inexact = []exception{
	{column: before130, verb: watchList, missing: "1.30 refuses it"},
	{column: before133, verb: watchList, missing: "1.33 refuses it"},
	{forwarded: reason.Inexact},
}

// notWatched: there are no watches in YAML. What is forwarded is refused first where the cluster knows no streaming lists.
var notWatched = []exception{
	{column: before130, verb: watchList, forwarded: reason.Representation, status: 422},
	{column: before133, verb: watchList, forwarded: reason.Representation, status: 422},
	{verb: watchList, forwarded: reason.Representation, status: 406},
	{verb: watchAny, forwarded: reason.Representation, status: 406},
	{verb: watchSince, forwarded: reason.Representation, status: 406},
}

// A resource has objects objectsEach in namespace one, or without a namespace, and one more in namespace two.
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

// all is the path of all objects, in of those in a namespace; there is no difference where there are no namespaces.
func (r resource) all() string { return r.prefix + "/" + r.name }

func (r resource) in(namespace string) string {
	if !r.namespaced {
		return r.all()
	}
	return r.prefix + "/namespaces/" + namespace + "/" + r.name
}

// A verb is a way to read a resource. A new one is an entry of verbs.
type verb struct {
	name string
	path func(r resource, changed int64) string // changed is the version before the last changes
	// list tells that the answer is a list, walk that it has pages.
	list, walk bool
	// events are those of a watch.
	events func(r resource) []string
	// version says whether the answer is of the same version everywhere.
	version conformance.VersionRule
	// sources of the answer, by the label of kubeweir_requests_total, that are right; cached when there are none.
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

// mostRecent are the sources of an answer that holds the most recent state: the gateway has to ask for it, unless it is
// in one process with the upstream.
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
			if r.name == "pods" { // which are terminating first
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
