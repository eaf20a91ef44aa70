package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// A program is kubeweir, compiled for one platform.
type program struct {
	platform
	path string
	info *buildinfo.BuildInfo
}

// environment is what compiles for a platform: any processor of its kind, whatever whoever calls has chosen.
func (p platform) environment() []string {
	return []string{"GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "CGO_ENABLED=0"}
}

// build compiles kubeweir. With which flags is written in one place, the Makefile. One that is there already and up to
// date is not linked again.
func (r *release) build(p platform) (program, error) {
	path := filepath.Join(r.out, "build", p.os+"_"+p.arch, "kubeweir")
	if p.os == "windows" {
		path += ".exe"
	}
	cmd := exec.Command("make", "--silent", "--no-print-directory", "-C", r.source, "build",
		"BIN="+path, "VERSION="+r.version, "COMMIT="+r.commit, "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.date.Unix(), 10))
	cmd.Env = append(os.Environ(), p.environment()...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return program{}, fmt.Errorf("building kubeweir for %s: %w", p, err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	return program{p, path, info}, nil
}

func (r *release) buildAll(platforms []platform) ([]program, error) {
	var out []program
	for _, p := range platforms {
		built, err := r.build(p)
		if err != nil {
			return nil, err
		}
		out = append(out, built)
	}
	return out, nil
}
