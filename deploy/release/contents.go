package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// contents returns a CycloneDX list of the contents of a program: the modules that it was linked
// from according to itself, as a scanner would find them, and their licenses. extra are additional
// components.
func (r *release) contents(p program, extra ...cdx.Component) ([]byte, error) {
	licenses, err := r.licenses(p.platform)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	bom := cdx.NewBOM()
	// The list of the same program is always the same.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, digest[:]).URN()
	main := r.component(digest[:])
	bom.Metadata = &cdx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	components := append([]cdx.Component{standardLibrary(p.info.GoVersion)}, extra...)
	for _, m := range p.info.Deps {
		c, err := module(m, licenses)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	err = encoder.EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

func (r *release) component(digest []byte) cdx.Component {
	purl := packageURL("github.com/kubeweir/kubeweir", r.version)
	vcs := cdx.ExternalReference{Type: cdx.ERTypeVCS, URL: homepage}
	if r.commit != "" {
		vcs.Comment = "commit " + r.commit
	}
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeApplication, Name: "kubeweir", Version: r.version, PackageURL: purl,
		Description:        about,
		Licenses:           licensed(license),
		Hashes:             &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}},
		ExternalReferences: &[]cdx.ExternalReference{vcs},
	}
}

// packageURL returns the name of a Go module for scanners
// (https://github.com/package-url/purl-spec): in lower case, with characters escaped that have a
// meaning in URLs.
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// standardLibrary returns the component that vulnerability databases call stdlib.
func standardLibrary(version string) cdx.Component {
	version, _, _ = strings.Cut(version, " ") // experiments follow after a space
	purl := packageURL("stdlib", strings.TrimPrefix(version, "go"))
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: version, PackageURL: purl,
		Licenses: licensed("BSD-3-Clause"),
	}
}

// module returns a dependency as it was linked: its replacement, if it has one.
func module(m *debug.Module, licenses map[string]terms) (cdx.Component, error) {
	required := m
	if m.Replace != nil {
		m = m.Replace
	}
	t, ok := licenses[required.Path+"@"+required.Version]
	if !ok {
		return cdx.Component{}, fmt.Errorf("%s@%s is in the program, but not in go list", required.Path, required.Version)
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return cdx.Component{}, fmt.Errorf("the sum of %s: %w", m.Path, err)
	}
	purl := packageURL(m.Path, m.Version)
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl,
		Licenses: licensed(t.ids...),
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}},
	}, nil
}

func licensed(ids ...string) *cdx.Licenses {
	if len(ids) == 0 {
		return nil
	}
	var out cdx.Licenses
	for _, id := range ids {
		out = append(out, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &out
}

// caRoots returns the module that the image's certificate authorities come from. It is a dependency
// of this program.
func caRoots() cdx.Component {
	const path = "golang.org/x/crypto/x509roots/fallback"
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				version = m.Version
			}
		}
	}
	purl := packageURL(path, version)
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeData, Name: path, Version: version, PackageURL: purl,
		Description: "Mozilla's certificate authorities, in /etc/ssl/certs",
		Licenses:    licensed("MPL-2.0"),
	}
}
