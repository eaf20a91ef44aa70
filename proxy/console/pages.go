package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"

	"github.com/kubeweir/kubeweir/proxy/console/web"
)

// pages serves the files of package web, by their names. Pages hold no data, so they need no
// authorization.
type pages map[string]page

type page struct {
	content     []byte
	contentType string
	etag        string
}

// contentTypes does not rely on the MIME types of the system, which may be wrong.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

func loadPages() (pages, error) {
	files := web.Files()
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	p := make(pages)
	for _, e := range entries {
		content, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		p[e.Name()] = page{content, contentTypes[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return p, nil
}

// ServeHTTP implements http.Handler. The path has the wildcard name, or is that of index.html.
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "" {
		name = "index.html"
	}
	f, ok := p[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Security-Policy", web.Policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.content)
}
