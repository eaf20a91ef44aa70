package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for releases; otherwise it comes from the build.
var version = ""

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintf(out, "kubeweir %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
