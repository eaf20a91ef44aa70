package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
)

// file is one of the pages' files.
type file struct {
	content     []byte
	contentType string
	etag        string
}

// indexPage is the first page.
const indexPage = "index.html"

// contentTypes are those of the pages' files: what the system says of a name may be wrong.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
	".json": "application/json",
	".ico":  "image/x-icon",
}

// readPages reads all files at once: there are few, and small ones.
func (c *Console) readPages() error {
	c.files = make(map[string]file)
	if c.Pages == nil {
		return nil
	}
	entries, err := fs.ReadDir(c.Pages, ".")
	if err != nil {
		return fmt.Errorf("console: its pages: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		content, err := fs.ReadFile(c.Pages, e.Name())
		if err != nil {
			return fmt.Errorf("console: its pages: %w", err)
		}
		kind, known := contentTypes[path.Ext(e.Name())]
		if !known {
			kind = mime.TypeByExtension(path.Ext(e.Name()))
		}
		sum := sha256.Sum256(content)
		c.files[e.Name()] = file{content, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	if _, ok := c.files[indexPage]; !ok {
		return errors.New("console: its pages have no " + indexPage)
	}
	return nil
}

// servePage serves a file. Anybody may have it: it holds no data.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name == "" {
		name = indexPage
	}
	f, ok := c.files[name]
	switch {
	case !ok && name == indexPage:
		http.Error(w, "this kubeweir has no pages; kubeweir top shows the same in a terminal", http.StatusNotFound)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Security-Policy", c.Policy)
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
