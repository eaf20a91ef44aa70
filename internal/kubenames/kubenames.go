// Package kubenames lists names of Kubernetes that settings contain, so that they can be checked
// without linking the code behind them. Tests of packages origin/builtin/admit and
// origin/builtin/controllers compare the lists with that code.
package kubenames

import (
	_ "embed"
	"strings"
)

//go:embed plugins.txt
var plugins string

//go:embed controllers.txt
var controllers string

// AdmissionPlugins returns the names of the admission plugins, sorted.
func AdmissionPlugins() []string { return strings.Fields(plugins) }

// Controllers returns the names by which --controllers knows the controllers of
// kube-controller-manager, sorted: with and without the suffix "-controller", and aliases.
func Controllers() []string { return strings.Fields(controllers) }
