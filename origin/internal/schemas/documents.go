package schemas

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/emicklei/go-restful/v3"
	"github.com/munnerz/goautoneg"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
)

// root is the path of the list of documents, and begins those of the documents.
const root = "/openapi/v3"

// Media types of a document (kube-openapi, handler3).
const (
	mediaJSON          = "json"
	mediaProtobuf      = "com.github.proto-openapi.spec.v3.v1.0+protobuf"
	mediaProtobufOlder = "com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// Documents serves /openapi/v3: one document for each group and version, and the list of
// them. It answers as kube-openapi's handler3 does, but that one names a document by a
// hash of its bytes, so that the list is not known before all documents are made, which
// takes a second for those of all built-in types and keeps them in memory. Here a
// document is named by what it is made of, made when it is asked for, and kept as the
// bytes that are sent.
//
// Its zero value has no documents. It is safe for concurrent use.
type Documents struct {
	mu struct {
		sync.Mutex
		documents map[string]*document
		// list is the list of documents, nil when it has to be made anew.
		list     []byte
		listTag  string
		listTime time.Time
	}
}

// document is one of them.
type document struct {
	path, hash string
	build      func() ([]byte, error)

	// mu is held while the document is made.
	mu struct {
		sync.Mutex
		json, protobuf []byte
		made           time.Time
	}
}

// Set makes a document part of the list under a path like "apis/apps/v1". source tells
// what it is made of: the same source and path are the same document. build returns it
// in JSON; it is called when the document is asked for, again if it fails.
func (d *Documents) Set(path, source string, build func() ([]byte, error)) {
	hash := fmt.Sprintf("%X", sha512.Sum512([]byte(path+"\x00"+source)))
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.mu.documents[path]; old != nil && old.hash == hash {
		return
	}
	if d.mu.documents == nil {
		d.mu.documents = map[string]*document{}
	}
	d.mu.documents[path] = &document{path: path, hash: hash, build: build}
	d.mu.list = nil
}

// Delete takes a document out of the list.
func (d *Documents) Delete(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.documents, path)
	d.mu.list = nil
}

// ServeHTTP implements http.Handler for /openapi/v3 and what is below it.
func (d *Documents) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, root)
	if path == "" {
		d.serveList(w, req)
		return
	}
	d.mu.Lock()
	doc := d.mu.documents[strings.TrimPrefix(path, "/")]
	d.mu.Unlock()
	if doc == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	doc.serve(w, req)
}

func (d *Documents) serveList(w http.ResponseWriter, req *http.Request) {
	list, tag, made, err := d.list()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Etag", strconv.Quote(tag))
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, req, root, made, bytes.NewReader(list))
}

func (d *Documents) list() (list []byte, tag string, made time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.list == nil {
		all := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(d.mu.documents))}
		for path, doc := range d.mu.documents {
			all.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: doc.url()}
		}
		if d.mu.list, err = json.Marshal(all); err != nil {
			return nil, "", time.Time{}, fmt.Errorf("listing documents: %w", err)
		}
		d.mu.listTag, d.mu.listTime = fmt.Sprintf("%X", sha512.Sum512(d.mu.list)), time.Now()
	}
	return d.mu.list, d.mu.listTag, d.mu.listTime, nil
}

// url is the document's, with the hash that makes it immutable.
func (d *document) url() string {
	u := url.URL{Path: root + "/" + d.path, RawQuery: url.Values{"hash": {d.hash}}.Encode()}
	return u.String()
}

func (d *document) serve(w http.ResponseWriter, req *http.Request) {
	w.Header().Add("Vary", "Accept")
	media := accepted(req.Header.Get("Accept"))
	if media == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if hash := req.URL.Query().Get("hash"); hash != "" {
		if hash != d.hash {
			http.Redirect(w, req, d.url(), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	body, made, err := d.bytes(media)
	if err != nil {
		w.Header().Del("Cache-Control")
		w.Header().Del("Expires")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/"+media)
	w.Header().Set("Etag", strconv.Quote(d.hash))
	http.ServeContent(w, req, "", made, bytes.NewReader(body))
}

// accepted is the media type to answer with, "" when none is acceptable.
func accepted(header string) string {
	if header == "" {
		header = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		if clause.Type != "application" && clause.Type != "*" {
			continue
		}
		switch clause.SubType {
		case mediaJSON, "*":
			return mediaJSON
		case mediaProtobuf, mediaProtobufOlder:
			return mediaProtobuf
		}
	}
	return ""
}

// bytes makes the document, once in each media type.
func (d *document) bytes(media string) ([]byte, time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.json == nil {
		made, err := d.build()
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s: %w", d.path, err)
		}
		d.mu.json, d.mu.made = made, time.Now()
	}
	if media == mediaJSON {
		return d.mu.json, d.mu.made, nil
	}
	if d.mu.protobuf == nil {
		made, err := handler3.ToV3ProtoBinary(d.mu.json)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s in protobuf: %w", d.path, err)
		}
		d.mu.protobuf = made
	}
	return d.mu.protobuf, d.mu.made, nil
}

// SetRoutes sets a document for each web service of a container, as routes.OpenAPI of
// the library does. config is called when one is asked for; what it returns is kept for
// the next one until memory is collected.
func (d *Documents) SetRoutes(container *restful.Container, source string, config func() *common.OpenAPIV3Config) {
	// building is held while a document is made: the library writes to the config.
	var building sync.Mutex
	var last weak.Pointer[common.OpenAPIV3Config]
	for _, service := range container.RegisteredWebServices() {
		path := strings.TrimPrefix(service.RootPath(), "/")
		d.Set(path, source, func() ([]byte, error) {
			building.Lock()
			defer building.Unlock()
			with := last.Value()
			if with == nil {
				with = config()
				last = weak.Make(with)
			}
			return RoutesDocument(path, service, with)
		})
	}
}

// RoutesDocument has the library make the document of one web service, as JSON. The
// config is written to.
func RoutesDocument(path string, service *restful.WebService, config *common.OpenAPIV3Config) ([]byte, error) {
	only := restful.NewContainer()
	only.Add(service)
	served := mux.NewPathRecorderMux("openapi of " + path)
	routes.OpenAPI{V3Config: config}.InstallV3(only, served)
	request, err := http.NewRequest(http.MethodGet, root+"/"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response := responsewriter.NewInMemoryResponseWriter()
	served.ServeHTTP(response, request)
	if response.RespCode() != http.StatusOK || len(response.Data()) == 0 {
		return nil, fmt.Errorf("the document cannot be made (%d)", response.RespCode())
	}
	return slices.Clip(response.Data()), nil
}
