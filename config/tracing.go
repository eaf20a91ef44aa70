package config

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/util/feature"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// Read returns what the file says, or nil without a file. It accepts what kube-apiserver accepts
// (k8s.io/apiserver/pkg/server/options/tracing.go). The error names the file.
func (t *Tracing) Read() (*tracingapi.TracingConfiguration, error) {
	if t.ConfigFile == "" {
		return nil, nil
	}
	content, err := readLimited(t.ConfigFile)
	if err != nil {
		return nil, err
	}
	return parseTracing(t.ConfigFile, content)
}

func parseTracing(name string, content []byte) (*tracingapi.TracingConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	read := &apiserver.TracingConfiguration{}
	// The decoder's errors about these two faults do not help.
	var document map[string]any
	var mismatch *yaml.TypeError
	if err := yaml.Unmarshal(content, &document); err != nil && !errors.As(err, &mismatch) {
		return nil, fmt.Errorf("%s is not YAML: %s", shownPath(name), strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if document["kind"] == nil {
		return nil, fmt.Errorf("%s is not a TracingConfiguration of apiserver.config.k8s.io/v1: it has no apiVersion and kind", shownPath(name))
	}
	if err := runtime.DecodeInto(codecs.UniversalDecoder(), content, read); err != nil {
		return nil, fmt.Errorf("%s is not a TracingConfiguration of apiserver.config.k8s.io/v1: %w", shownPath(name), oneLine(err))
	}
	if errs := tracingapi.ValidateTracingConfiguration(&read.TracingConfiguration, feature.DefaultFeatureGate, nil); len(errs) > 0 {
		return nil, fmt.Errorf("%s is invalid: %w", shownPath(name), errs[0])
	}
	return &read.TracingConfiguration, nil
}

// oneLine returns err without line breaks.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

func checkTracing(o *origins, t *Tracing) {
	content := readPEM(o, t.ConfigFile)
	if content == nil {
		return
	}
	if _, err := parseTracing(t.ConfigFile, content); err != nil {
		o.report("tracing.configFile", "cannot be used: %w", err)
	}
}
