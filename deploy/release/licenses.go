package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// terms is the license of a module.
type terms struct {
	ids  []string // SPDX identifiers; none if the license is unknown
	text string
}

// licenses returns the licenses of all modules that kubeweir is built from on a platform, by path
// and version.
func (r *release) licenses(p platform) (map[string]terms, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/kubeweir")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), p.environment()...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	out := map[string]terms{}
	if out["the Go standard library"], err = goTerms(); err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(listed)); ; {
		var pkg struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		m := pkg.Module
		if m == nil || m.Main {
			continue
		}
		key := m.Path + "@" + m.Version
		if _, seen := out[key]; seen {
			continue
		}
		if out[key], err = termsOf(m.Dir); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
}

// goTerms returns the license of the standard library.
func goTerms() (terms, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return terms{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	t, err := termsOf(strings.TrimSpace(string(root)))
	if err != nil {
		return t, fmt.Errorf("the Go toolchain in %s %w", bytes.TrimSpace(root), err)
	}
	return t, nil
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

// termsOf reads the license of a module: every file at its root that has the name of a license
// file.
func termsOf(dir string) (terms, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return terms{}, err
	}
	var text strings.Builder
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return terms{}, err
		}
		text.Write(bytes.TrimSpace(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))))
		text.WriteString("\n\n")
	}
	if text.Len() == 0 {
		return terms{}, errors.New("has no license file, so it must not be distributed")
	}
	return terms{spdx(text.String()), text.String()}, nil
}

// phrases identify licenses: a text contains a license if it contains all of its phrases, however
// they are broken into lines.
var phrases = []struct {
	id    string
	words []string
}{
	{"Apache-2.0", []string{"Apache License Version 2.0"}},
	{"Apache-2.0", []string{"Licensed under the Apache License, Version 2.0"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"BSD-3-Clause", []string{"Redistributions of source code must retain", "Redistributions in binary form must reproduce", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"Redistributions of source code must retain", "Redistributions in binary form must reproduce"}},
	{"ISC", []string{"Permission to use, copy, modify, and/or distribute this software for any purpose"}},
	{"ISC", []string{"Permission to use, copy, modify, and distribute this software for any purpose"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "The above copyright notice and this permission notice"}},
}

// spdx returns the licenses in a text: several if parts of a module have different ones.
func spdx(text string) []string {
	var ids []string
	text = words(text)
	for _, p := range phrases {
		if !slices.ContainsFunc(p.words, func(w string) bool { return !strings.Contains(text, words(w)) }) {
			ids = append(ids, p.id)
		}
	}
	if slices.Contains(ids, "BSD-3-Clause") { // it contains the other's phrases
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "BSD-2-Clause" })
	}
	return slices.Compact(ids)
}

// words returns the words of a text, separated by single spaces and without comment marks.
func words(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\n*#/", c) }), " ")
}

// notices returns the license texts that must accompany the program: each text once, after the
// modules that it applies to.
func notices(all map[string]terms) []byte {
	modulesOf := map[string][]string{}
	for module, t := range all {
		modulesOf[t.text] = append(modulesOf[t.text], module)
	}
	type group struct {
		modules []string
		text    string
	}
	var groups []group
	for text, modules := range modulesOf {
		slices.Sort(modules)
		groups = append(groups, group{modules, text})
	}
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.modules[0], b.modules[0]) })
	var out bytes.Buffer
	out.WriteString("kubeweir contains the following works of others, under the terms below each list.\n")
	for _, g := range groups {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s", strings.Repeat("=", 80), strings.Join(g.modules, "\n"), g.text)
	}
	return out.Bytes()
}
