package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/kubeweir/kubeweir/proxy/console/web"
)

// contentTypes does not rely on the MIME types of the system, which may be wrong.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// servePage serves a file of package web. The path has the wildcard name, or is that of index.html.
// Pages hold no data, so they need no authorization.
func servePage(w http.ResponseWriter, r *http.Request) {
	name := cmp.Or(r.PathValue("name"), "index.html")
	content, err := fs.ReadFile(web.Files(), name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	header := w.Header()
	header.Set("Content-Security-Policy", web.Policy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Type", contentTypes[path.Ext(name)])
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}
