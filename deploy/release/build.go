package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// program is kubeweir, compiled for one platform.
type program struct {
	platform
	path string
	info *buildinfo.BuildInfo
}

// environment returns the environment for compiling for a platform. It targets any processor of the
// architecture, whatever the caller's environment sets.
func (p platform) environment() []string {
	return []string{"GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "CGO_ENABLED=0"}
}

// build compiles kubeweir with the Makefile, the only place that has the flags. It does not link an
// up-to-date program again.
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
