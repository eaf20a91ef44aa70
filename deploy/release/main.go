// Command release builds the files of a release, from the source alone and without a container
// engine: images (`release image`), and archives and packages (`release dist`), each with a list of
// its contents. The Makefile calls it. The result depends only on the source, the version, the
// commit, the date and the Go toolchain: two runs on two machines produce the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const usage = `Usage: release [flags] image|dist

  image   OCI images, as a layout and as archives for docker load; with -push, in a registry as well
  dist    archives, Debian and RPM packages

Flags:
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release describes the input and the destination of a release.
type release struct {
	source    string // the repository
	out       string // the output folder
	version   string // a semantic version with a v, as in v0.1.0
	commit    string
	date      time.Time // of the commit; no file is newer
	platforms []platform
	push      string // registry/repository:tag; empty: do not push
}

// platform is a target platform of Go.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// everywhere are the platforms that `dist` creates archives for. Images and packages are created
// only for those with Linux.
const everywhere = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func run(args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	source := flags.String("source", ".", "the repository's `folder`")
	out := flags.String("out", "dist", "`folder` for what is made; if relative, in the repository")
	version := flags.String("version", "", "`version`, as in v0.1.0")
	commit := flags.String("commit", "", "`hash` of the commit")
	date := flags.String("date", "", "of the commit, in `seconds` since 1970")
	platforms := flags.String("platforms", everywhere, "`list` of systems and processors")
	push := flags.String("push", "", "push the image, as `registry/repository:tag`")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	r, err := newRelease(*source, *out, *version, *commit, *date, *platforms)
	if err != nil {
		return err
	}
	r.push = *push
	switch what := flags.Args(); {
	case len(what) == 1 && what[0] == "image":
		return r.image()
	case len(what) == 1 && what[0] == "dist":
		return r.dist()
	default:
		return fmt.Errorf("want a command after the flags, image or dist, got %q", what)
	}
}

// versions matches semantic versions without build metadata (+), which the tag of an image cannot
// contain.
var versions = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

func newRelease(source, out, version, commit, date, platforms string) (*release, error) {
	r := &release{version: version, commit: commit}
	var err error
	if r.source, err = filepath.Abs(source); err != nil {
		return nil, err
	}
	if r.out = out; !filepath.IsAbs(out) {
		r.out = filepath.Join(r.source, out)
	}
	if !versions.MatchString(version) {
		return nil, fmt.Errorf("-version %q: want a version such as v0.1.0 or v0.1.0-rc.1 (make VERSION=v0.1.0 ...)", version)
	}
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil || seconds < 0 {
		return nil, fmt.Errorf("-date %q: want seconds since 1970 (make SOURCE_DATE_EPOCH=... ...)", date)
	}
	r.date = time.Unix(seconds, 0).UTC()
	for name := range strings.SplitSeq(platforms, ",") {
		os, arch, ok := strings.Cut(name, "/")
		if !ok || !strings.Contains(","+everywhere+",", ","+name+",") {
			return nil, fmt.Errorf("-platforms: %q is not one of %s", name, everywhere)
		}
		r.platforms = append(r.platforms, platform{os, arch})
	}
	return r, nil
}

// path returns the path of a file of this release. All names begin with the program's name and the
// version.
func (r *release) path(rest string) string {
	return filepath.Join(r.out, r.prefix()+rest)
}

func (r *release) prefix() string {
	return "kubeweir_" + strings.TrimPrefix(r.version, "v") + "_"
}

// linux returns the platforms of images and packages.
func (r *release) linux() []platform {
	var out []platform
	for _, p := range r.platforms {
		if p.os == "linux" {
			out = append(out, p)
		}
	}
	return out
}

// relative returns a path relative to the repository, as users write it.
func (r *release) relative(path string) string {
	if rel, err := filepath.Rel(r.source, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
