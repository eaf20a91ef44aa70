package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
	"github.com/klauspost/compress/gzip"
)

// packages creates a Debian and an RPM package from the entries of an archive and the files of
// deploy/packages. nfpm.yaml there lists the contents.
func (r *release) packages(p program, entries []entry) error {
	stage, err := r.stage(entries)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	given := map[string]string{
		"ARCH": p.arch, "VERSION": r.version, "STAGE": stage, "PACKAGES": filepath.Join(r.source, "deploy", "packages"),
		"HOMEPAGE": homepage, "LICENSE": license,
	}
	config, err := os.ReadFile(filepath.Join(given["PACKAGES"], "nfpm.yaml"))
	if err != nil {
		return err
	}
	expanded := os.Expand(string(config), func(name string) string { return given[name] })
	for _, format := range []string{"deb", "rpm"} {
		parsed, err := nfpm.Parse(strings.NewReader(expanded))
		if err != nil {
			return fmt.Errorf("nfpm.yaml: %w", err)
		}
		info, err := parsed.Get(format)
		if err != nil {
			return err
		}
		info.MTime = r.date
		info = nfpm.WithDefaults(info)
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := packager.Package(info, &out); err != nil {
			return fmt.Errorf("%s package: %w", format, err)
		}
		path := r.path(p.os + "_" + p.arch + "." + format)
		if err := writeFile(path, out.Bytes()); err != nil {
			return err
		}
		fmt.Printf("%s: %.1f MB\n", r.relative(path), float64(out.Len())/1e6)
	}
	return nil
}

// stage writes the files to a folder as the packager needs them: with compressed manual pages, and
// with the date of the release, so that packages of a release are reproducible.
func (r *release) stage(entries []entry) (string, error) {
	stage, err := os.MkdirTemp("", "kubeweir-package-")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := e.name
		if filepath.Dir(name) == "man" {
			name += ".gz"
			if e.data, err = compressed(e.data, gzip.BestCompression); err != nil {
				break
			}
		}
		path := filepath.Join(stage, name)
		if err = writeFile(path, e.data); err != nil {
			break
		}
		if err = os.Chmod(path, e.mode()); err != nil {
			break
		}
		if err = os.Chtimes(path, r.date, r.date); err != nil {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(stage)
	}
	return stage, err
}
