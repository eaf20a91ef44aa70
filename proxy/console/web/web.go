// Package web embeds the console's pages: HTML, CSS and ES modules, served without a build step.
// They contain no data and fetch documents from the paths below console/api/.
package web

import (
	"embed"
	"io/fs"
)

// Policy is the Content-Security-Policy of the pages: they can fetch only these files and paths of
// the console, send nothing to other addresses, and never turn text into markup or scripts.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed static
var static embed.FS

// Files returns index.html and, in the same folder, the files that it refers to as console/NAME.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the name of the folder is invalid
	}
	return files
}
