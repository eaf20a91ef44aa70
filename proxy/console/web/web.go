// Package web holds the console's pages: HTML, CSS and ES modules as they are written, which no build step touches. They
// hold no data; what they show they fetch from the paths below console/api/ of where they came from.
package web

import (
	"embed"
	"io/fs"
)

// Policy is the Content-Security-Policy that they are served with: nothing but these files and the paths of the console is
// fetched, nothing is sent elsewhere, and no text becomes markup or a script.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed static
var static embed.FS

// Files are index.html and, in the same folder, what it refers to as console/NAME.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder's name is not one
	}
	return files
}
