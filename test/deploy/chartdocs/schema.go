package chartdocs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kubeweir/kubeweir/config"
)

// configMark marks, in an @schema comment, the value that is the configuration file.
const configMark = "$config"

// Schema returns the JSON schema of values.yaml. The schema rejects unknown keys, except in values
// that are passed to Kubernetes unchanged, which set additionalProperties in their comments.
func Schema(valuesYAML []byte) ([]byte, error) {
	root, err := parse(valuesYAML)
	if err != nil {
		return nil, err
	}
	schema, err := root.object()
	if err != nil {
		return nil, err
	}
	schema["$schema"] = "https://json-schema.org/draft-07/schema#"
	schema["title"] = "Values of the chart kubeweir"
	gateway, err := configSchema(reflect.TypeFor[config.Gateway]())
	if err != nil {
		return nil, err
	}
	standalone, err := configSchema(reflect.TypeFor[config.Standalone]())
	if err != nil {
		return nil, err
	}
	cluster, err := clusterSchema()
	if err != nil {
		return nil, err
	}
	schema["definitions"] = map[string]any{"gatewayConfig": gateway, "clusterConfig": cluster, "standaloneConfig": standalone}
	schema["if"] = map[string]any{"properties": map[string]any{"mode": map[string]any{"const": "standalone"}}}
	schema["then"] = configIs("standaloneConfig")
	schema["else"] = configIs("gatewayConfig")

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(schema)
	return out.Bytes(), err
}

func configIs(definition string) map[string]any {
	return map[string]any{"properties": map[string]any{"config": map[string]any{"$ref": "#/definitions/" + definition}}}
}

// object returns the schema of a group of values. The schema in its comment takes precedence.
func (n *node) object() (map[string]any, error) {
	properties := map[string]any{}
	required := []string{}
	for _, f := range n.fields {
		schema, err := f.one()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		properties[f.name] = schema
		if f.required() {
			required = append(required, f.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	maps.Copy(schema, n.schema)
	return schema, nil
}

// required reports whether templates need the value. Helm removes a default if a user sets null.
// For lists, objects and text that may be empty, null is as good as empty.
func (n *node) required() bool {
	if n.doc == "" {
		return true
	}
	switch n.yaml.Kind {
	case yaml.SequenceNode:
		return n.schema["minItems"] != nil
	case yaml.ScalarNode:
		types, _ := n.schema["type"].([]any)
		return n.yaml.Tag != "!!null" && n.yaml.Value != "" && !slices.Contains(types, "null")
	}
	return false
}

// one returns the schema of a value or a group, derived from its default. The schema in its comment
// takes precedence.
func (n *node) one() (map[string]any, error) {
	if n.doc == "" {
		return n.object()
	}
	schema := map[string]any{"description": n.doc, "type": map[string]string{
		"object": "object", "list": "array", "bool": "boolean", "int": "integer", "string": "string",
	}[typeName(n.yaml)]}
	maps.Copy(schema, n.schema)
	if _, ok := schema[configMark]; ok {
		return map[string]any{"description": n.doc, "type": "object"}, nil
	}
	if _, ok := schema["enum"]; ok {
		delete(schema, "type") // its error message would hide that of the enum
	}
	switch {
	case n.yaml.Tag == "!!null" && n.schema["type"] == nil:
		return nil, fmt.Errorf("has no default, so that @schema has to give the type")
	case n.yaml.Kind == yaml.MappingNode && n.schema["additionalProperties"] == nil:
		return nil, fmt.Errorf("is an object, so that @schema has to give additionalProperties")
	case n.yaml.Kind == yaml.SequenceNode && n.schema["items"] == nil:
		return nil, fmt.Errorf("is a list, so that @schema has to give items")
	}
	return schema, nil
}

// choices returns the values of the configuration's enum types.
func choices() map[reflect.Type][]any {
	return map[reflect.Type][]any{
		reflect.TypeFor[config.Mode]():        {config.Strict, config.Session},
		reflect.TypeFor[config.Response]():    {config.Allow, config.Deny},
		reflect.TypeFor[config.Switch]():      {"true", "false", true, false},
		reflect.TypeFor[config.Profile]():     {config.NoProfile, config.Dashboard},
		reflect.TypeFor[config.SelfReviews](): {config.Forwarded, config.Cached},
		reflect.TypeFor[config.View]():        {config.Full, config.Redacted},
		reflect.TypeFor[config.OverBudget]():  {config.RejectOverBudget, config.CachedOverBudget},
		reflect.TypeFor[config.TLSVersion]():  {config.TLS12, config.TLS13},
		reflect.TypeFor[config.Level]():       {"debug", "info", "warn", "error"},
		reflect.TypeFor[config.Format]():      {config.Text, config.JSON},
		reflect.TypeFor[config.AuditFormat](): {"json", "legacy"},
		reflect.TypeFor[config.AuditMode]():   {"queue", "batch", "blocking", "blocking-strict"},
		reflect.TypeFor[config.Profiling]():   {"true", "false", true, false, config.ProfilingAuto},
	}
}

// configSchema returns the schema of a part of the configuration file.
func configSchema(t reflect.Type) (map[string]any, error) {
	if values, ok := choices()[t]; ok {
		return map[string]any{"enum": values}, nil
	}
	switch t {
	case reflect.TypeFor[config.Cluster](): // contains a Gateway, which contains clusters
		return map[string]any{"$ref": "#/definitions/clusterConfig"}, nil
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[config.Window]():
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9.]+(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$|^0$`}, nil
	case reflect.TypeFor[config.Bytes]():
		return map[string]any{"type": []string{"string", "integer"}, "pattern": `^[0-9.]+(k|M|G|T|Ki|Mi|Gi|Ti|e[0-9]+)?$`}, nil
	}
	switch t.Kind() {
	case reflect.String:
		if t != reflect.TypeFor[string]() {
			return nil, fmt.Errorf("the values of the type %v are unknown", t)
		}
		return map[string]any{"type": "string"}, nil
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Int:
		return map[string]any{"type": "integer"}, nil
	case reflect.Slice:
		items, err := configSchema(t.Elem())
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Struct:
		properties := map[string]any{}
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}, addFields(properties, t)
	}
	return nil, fmt.Errorf("unknown type %v", t)
}

// clusterSchema returns the schema of one of several clusters: the fields that only a cluster has,
// and those of the gateway's settings that a cluster may override. Where a cluster may override
// only part of a group, the schema allows the whole group; the program rejects the rest.
func clusterSchema() (map[string]any, error) {
	properties := map[string]any{}
	for f := range reflect.TypeFor[config.Cluster]().Fields() {
		if f.Anonymous {
			continue
		}
		name := jsonName(f)
		schema, err := configSchema(f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		properties[name] = schema
	}
	settings := map[string]any{}
	if err := addFields(settings, reflect.TypeFor[config.Gateway]()); err != nil {
		return nil, err
	}
	for name := range settings {
		if !config.OfProcess(name) {
			properties[name] = map[string]any{"$ref": "#/definitions/gatewayConfig/properties/" + name}
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": []string{"name"}, "additionalProperties": false}, nil
}

// addFields adds the fields of a struct, including those of embedded structs.
func addFields(properties map[string]any, t reflect.Type) error {
	for f := range t.Fields() {
		if f.Anonymous {
			if err := addFields(properties, f.Type); err != nil {
				return err
			}
			continue
		}
		name := jsonName(f)
		schema, err := configSchema(f.Type)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		properties[name] = schema
	}
	return nil
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// paths returns all values below an object of a schema, for the test that compares them with
// values.yaml.
func paths(schema map[string]any, prefix string) []string {
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return []string{strings.TrimSuffix(prefix, ".")}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		all = append(all, paths(properties[name].(map[string]any), prefix+name+".")...)
	}
	return all
}
