package schemas

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const thing = `{"openapi":"3.0.0","info":{"title":"Things","version":"1"},"paths":{}}`

func get(t *testing.T, d *Documents, path string, header ...string) *http.Response {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	return w.Result()
}

func list(t *testing.T, d *Documents) (paths map[string]string, etag string) {
	t.Helper()
	response := get(t, d, "/openapi/v3")
	var all handler3.OpenAPIV3Discovery
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	paths = map[string]string{}
	for path, at := range all.Paths {
		paths[path] = at.ServerRelativeURL
	}
	return paths, response.Header.Get("Etag")
}

func TestDocuments(t *testing.T) {
	d := &Documents{}
	made := 0
	build := func() ([]byte, error) { made++; return []byte(thing), nil }
	d.Set("apis/a/v1", "one", build)
	paths, tag := list(t, d)
	if made != 0 {
		t.Error("the list makes the documents")
	}
	url := paths["apis/a/v1"]
	for name, test := range map[string]struct {
		path, accept string
		status       int
		header       map[string]string
	}{
		"by hash":        {url, "", 200, map[string]string{"Cache-Control": "public, immutable", "Content-Type": "application/json", "Vary": "Accept"}},
		"without hash":   {"/openapi/v3/apis/a/v1", "application/json", 200, map[string]string{"Cache-Control": "", "Content-Type": "application/json"}},
		"another hash":   {"/openapi/v3/apis/a/v1?hash=1", "", 301, map[string]string{"Location": url}},
		"protobuf":       {url, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", 200, map[string]string{"Content-Type": "application/" + mediaProtobuf}},
		"first of two":   {url, "text/html, application/com.github.proto-openapi.spec.v3.v1.0+protobuf;q=0.5, */*;q=0.9", 200, map[string]string{"Content-Type": "application/json"}},
		"not acceptable": {url, "text/html", 406, nil},
		"no such path":   {"/openapi/v3/apis/b/v1", "", 404, nil},
	} {
		response := get(t, d, test.path, "Accept", test.accept)
		if response.StatusCode != test.status {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
		for key, want := range test.header {
			if got := response.Header.Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	if response := get(t, d, url, "If-None-Match", get(t, d, url).Header.Get("Etag")); response.StatusCode != http.StatusNotModified {
		t.Errorf("its own tag: %d", response.StatusCode)
	}

	d.Set("apis/a/v1", "one", build)
	if again, same := list(t, d); again["apis/a/v1"] != url || same != tag {
		t.Error("what is the same has another name")
	}
	d.Set("apis/a/v1", "two", build)
	if again, other := list(t, d); again["apis/a/v1"] == url || other == tag {
		t.Error("what has changed has the same name")
	}
	d.Delete("apis/a/v1")
	if again, _ := list(t, d); len(again) != 0 {
		t.Errorf("left: %v", again)
	}
}

func TestFailedDocument(t *testing.T) {
	d := &Documents{}
	fails := true
	d.Set("version", "", func() ([]byte, error) {
		if fails {
			return nil, errors.New("no luck")
		}
		return []byte(thing), nil
	})
	if response := get(t, d, "/openapi/v3/version"); response.StatusCode != http.StatusInternalServerError || response.Header.Get("Etag") != "" {
		t.Errorf("%d %v", response.StatusCode, response.Header)
	}
	fails = false
	if response := get(t, d, "/openapi/v3/version"); response.StatusCode != http.StatusOK {
		t.Errorf("then: %d", response.StatusCode)
	}
}

func TestRoutes(t *testing.T) {
	container := restful.NewContainer()
	for _, path := range []string{"/apis/a/v1", "/version"} {
		service := new(restful.WebService)
		service.Path(path).Produces("application/json")
		service.Route(service.GET("things").To(func(*restful.Request, *restful.Response) {}).Operation("list"+strings.ReplaceAll(path, "/", "")).Returns(200, "OK", ""))
		container.Add(service)
	}
	d, configs := &Documents{}, 0
	d.SetRoutes(container, "v1", func() *common.OpenAPIV3Config {
		configs++
		return &common.OpenAPIV3Config{
			Info:           &spec.Info{InfoProps: spec.InfoProps{Title: "Things", Version: "1"}},
			GetDefinitions: func(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return nil },
		}
	})
	if paths, _ := list(t, d); len(paths) != 2 || configs != 0 {
		t.Errorf("paths %v, %d configs", paths, configs)
	}
	var document spec3.OpenAPI
	if err := json.NewDecoder(get(t, d, "/openapi/v3/apis/a/v1").Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	if document.Info.Title != "Things" || len(document.Paths.Paths) != 1 || document.Paths.Paths["/apis/a/v1/things"] == nil {
		t.Errorf("document %+v", document)
	}
}
