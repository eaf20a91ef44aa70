package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// standIn returns a repository whose kubeweir compiles quickly. Everything except the program is as
// in the real one. The name of its folder contains a space.
func standIn(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a source")
	if err := os.CopyFS(filepath.Join(dir, "deploy", "packages"), os.DirFS("../packages")); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"LICENSE": "Apache License\nVersion 2.0\n", "README.md": "kubeweir\n", "CHANGELOG.md": "v0.1.0\n",
		"go.mod":   "module github.com/kubeweir/kubeweir\n\ngo 1.26.0\n",
		"Makefile": "build:\n\t@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o \"$(BIN)\" ./cmd/kubeweir\n",
		"cmd/kubeweir/main.go": `package main

import "os"

func main() {
	if os.Args[1] == "man" && os.WriteFile(os.Args[3]+"/kubeweir.1", []byte(".TH kubeweir 1\n"), 0o644) != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString(os.Args[1] + "\n")
}
`,
	} {
		if err := writeFile(filepath.Join(dir, path), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// made runs the program for a version of a stand-in, and returns the output folder.
func made(t *testing.T, what string, more ...string) string {
	t.Helper()
	out := t.TempDir()
	args := append([]string{"-source", standIn(t), "-out", out, "-version", "v0.1.0-rc.1", "-commit", "0123abcd", "-date", "1750000000",
		"-platforms", "linux/amd64,linux/arm64"}, more...)
	if err := run(append(args, what)); err != nil {
		t.Fatal(err)
	}
	return out
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestReproducible builds everything twice, from sources in two folders.
func TestReproducible(t *testing.T) {
	for _, what := range []string{"image", "dist"} {
		first, second := made(t, what), made(t, what)
		if a, b := read(t, first, "SHA256SUMS"), read(t, second, "SHA256SUMS"); !bytes.Equal(a, b) || len(a) == 0 {
			t.Errorf("%s: checksums differ:\n%s\n%s", what, a, b)
		}
		if what == "image" {
			const index = "kubeweir_0.1.0-rc.1_image/index.json"
			if a, b := read(t, first, index), read(t, second, index); !bytes.Equal(a, b) {
				t.Errorf("layouts differ:\n%s\n%s", a, b)
			}
		}
	}
}

// TestDist checks the names of all files of a release. test/deploy/release checks their contents.
func TestDist(t *testing.T) {
	out := made(t, "dist", "-platforms", "linux/arm64,windows/amd64")
	var got []string
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, strings.TrimPrefix(e.Name(), "kubeweir_0.1.0-rc.1_"))
	}
	want := []string{"SHA256SUMS", "build", "linux_arm64.cdx.json", "linux_arm64.deb", "linux_arm64.rpm", "linux_arm64.tar.gz",
		"windows_amd64.cdx.json", "windows_amd64.zip"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestImage reads a layout like a registry or an engine.
func TestImage(t *testing.T) {
	out := made(t, "image")
	top, err := layout.ImageIndexFromPath(filepath.Join(out, "kubeweir_0.1.0-rc.1_image"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 3 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v0.1.0-rc.1" {
		t.Fatalf("the layout has %d entries, the first is %v; want the index, by its version, and the contents of two images",
			len(manifest.Manifests), manifest.Manifests[0].Annotations)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if p := images.Manifests[i].Platform; p.OS != "linux" || p.Architecture != arch {
			t.Errorf("image %d is for %v", i, p)
		}
		img, err := index.Image(images.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, img, arch)
		attached, err := top.Image(manifest.Manifests[i+1].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkAttached(t, attached, images.Manifests[i].Digest)
	}
	checkRoots(t, index, images.Manifests[0].Digest)
}

func checkConfig(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.Architecture != arch || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/kubeweir"}) || len(c.ExposedPorts) != 4 {
		t.Errorf("%s: configuration %+v", arch, config)
	}
	for label, want := range map[string]string{
		"version": "v0.1.0-rc.1", "revision": "0123abcd", "created": "2025-06-15T15:06:40Z", "licenses": "Apache-2.0",
		"source": "https://github.com/kubeweir/kubeweir", "title": "kubeweir",
	} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, not %q", label, got, want)
		}
	}
}

// checkAttached reads the list of an image's contents from the attached artifact.
func checkAttached(t *testing.T, attached v1.Image, image v1.Hash) {
	t.Helper()
	manifest, err := attached.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != image || manifest.ArtifactType != "application/vnd.cyclonedx+json" {
		t.Errorf("%s is attached to %v, not to %s", manifest.ArtifactType, manifest.Subject, image)
	}
	layers, err := attached.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var bom struct {
		BomFormat  string
		Components []struct{ Purl string }
	}
	if err := json.NewDecoder(r).Decode(&bom); err != nil || bom.BomFormat != "CycloneDX" || len(bom.Components) != 2 {
		t.Errorf("attachment: %+v, %v; want a CycloneDX list of the standard library and the certificate authorities", bom, err)
	}
}

func checkRoots(t *testing.T, index v1.ImageIndex, image v1.Hash) {
	t.Helper()
	img, err := index.Image(image)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	files := map[string]string{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name] = string(data); header.Mode&0o022 != 0 || header.Uid != 0 && header.Name != "var/lib/kubeweir/" {
			t.Errorf("%s: owner %d, mode %o", header.Name, header.Uid, header.Mode)
		}
	}
	if !strings.Contains(files["etc/passwd"], "kubeweir:x:65532:65532:") {
		t.Errorf("/etc/passwd: %q", files["etc/passwd"])
	}
	pem := files["etc/ssl/certs/ca-certificates.crt"]
	if n := strings.Count(pem, "BEGIN CERTIFICATE"); n < 100 || !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		t.Errorf("%d certificate authorities", n)
	}
}

// TestLoad reads the archive like docker load.
func TestLoad(t *testing.T) {
	archive := tar.NewReader(bytes.NewReader(read(t, made(t, "image"), "kubeweir_0.1.0-rc.1_linux_arm64.image.tar")))
	files := map[string][]byte{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"ghcr.io/kubeweir/kubeweir:v0.1.0-rc.1"}) || len(manifest[0].Layers) != 2 {
		t.Fatalf("manifest.json: %s", files["manifest.json"])
	}
	for _, named := range append(manifest[0].Layers, manifest[0].Config) {
		if len(files[named]) == 0 {
			t.Errorf("manifest.json names %s, which does not exist", named)
		}
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/kubeweir/kubeweir:v0.1.0-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	made(t, "image", "-push", tag.String())
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range manifest.Manifests {
		attached, err := remote.Referrers(tag.Digest(image.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := attached.IndexManifest(); err != nil || len(m.Manifests) != 1 {
			t.Errorf("the image for %s has the attachment %+v, %v", image.Platform, m, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	good := []string{"-version", "v0.1.0", "-date", "0"}
	for want, args := range map[string][]string{
		`-version "1.0": want a version such as v0.1.0`: {"-version", "1.0", "image"},
		`-version "v1/2.3.4": want`:                     {"-version", "v1/2.3.4", "image"},
		`-version "v..": want`:                          {"-version", "v..", "image"},
		`-version "v1.2.3;id": want`:                    {"-version", "v1.2.3;id", "image"},
		`-date "today": want seconds since 1970`:        {"-date", "today", "image"},
		`-platforms: "plan9/386" is not one of`:         {"-platforms", "linux/amd64,plan9/386", "image"},
		`want a command after the flags, image or dist`: nil,
		`got ["images"]`:                                {"images"},
		`image needs a platform linux/amd64`:            {"-platforms", "darwin/arm64", "image"},
		`PUSH=nowhere: want registry/repository:tag`:    {"-push", "nowhere", "image"},
	} {
		err := run(slices.Concat(good, []string{"-source", t.TempDir(), "-out", t.TempDir()}, args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", args, err, want)
		}
	}
}

func TestPackageURL(t *testing.T) {
	for want, got := range map[string]string{
		"pkg:golang/github.com/nytimes/gziphandler@v1.1.1":                packageURL("github.com/NYTimes/gziphandler", "v1.1.1"),
		"pkg:golang/github.com/coreos/go-oidc@v2.5.0%2Bincompatible":      packageURL("github.com/coreos/go-oidc", "v2.5.0+incompatible"),
		"pkg:golang/stdlib@1.26.8":                                        standardLibrary("go1.26.8 X:nodwarf5").PackageURL,
		"pkg:golang/golang.org/x/crypto/x509roots/fallback@v0.0.0-2026-1": packageURL("golang.org/x/crypto/x509roots/fallback", "v0.0.0-2026-1"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestNoTimeInGzip checks that gzip headers contain no time.
func TestNoTimeInGzip(t *testing.T) {
	data, err := gzipped([]byte("text"))
	if err != nil || !bytes.Equal(data[4:8], []byte{0, 0, 0, 0}) {
		t.Errorf("%v: the time in the header is %x, want none", err, data[4:8])
	}
}

// TestEnvironment builds an archive with environment variables that would change the program.
func TestEnvironment(t *testing.T) {
	want := made(t, "dist", "-platforms", "linux/amd64")
	for name, value := range map[string]string{"GOAMD64": "v3", "GOEXPERIMENT": "jsonv2", "GOFIPS140": "latest", "GOOS": "windows", "GOARCH": "arm64"} {
		t.Setenv(name, value)
	}
	got := made(t, "dist", "-platforms", "linux/amd64")
	if a, b := read(t, want, "SHA256SUMS"), read(t, got, "SHA256SUMS"); !bytes.Equal(a, b) {
		t.Errorf("checksums differ:\n%s\n%s", a, b)
	}
}

func TestLicenses(t *testing.T) {
	for text, want := range map[string]string{
		"                                 Apache License\n                           Version 2.0, January 2004":            "Apache-2.0",
		"Permission is hereby granted, free of\n charge, ... The above copyright notice and this\npermission notice shall": "MIT",
		"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee":            "ISC",
		"Redistributions of source code must retain the above\nRedistributions in binary form must reproduce the above":    "BSD-2-Clause",
		"MIT: Permission is hereby granted, free of charge\nThe above copyright notice and this permission notice\n" +
			"Apache: Licensed under the Apache License, Version 2.0": "Apache-2.0 MIT",
		"All rights reserved, and more": "",
	} {
		if got := strings.Join(spdx(text), " "); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
	if _, err := termsOf(t.TempDir()); err == nil {
		t.Error("a module without a license was accepted")
	}
}
