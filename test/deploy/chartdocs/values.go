// Package chartdocs generates the files of the Helm chart (deploy/charts/kubeweir) that follow from
// other files: the README's table and the schema from values.yaml, the resources of the ClusterRole
// from package config/rbac, the dashboard and the alerts from deploy/monitoring. Its test compares
// them; `make docs` writes them.
package chartdocs

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Value is an entry of values.yaml that users set: one with a comment.
type Value struct {
	Path        string
	Description string
	// Type is the README's name for the type of the default.
	Type string
	// Default is YAML on one line, or "" if there is none.
	Default string
}

// A node is a value or a group of values.
type node struct {
	path   string
	yaml   *yaml.Node
	doc    string         // text after "# --"
	schema map[string]any // content of "# @schema"
	// fields are the fields of a group, in order. A map with a comment of its own is a value.
	fields []field
}

type field struct {
	name string
	node
}

// parse reads values.yaml.
func parse(text []byte) (*node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("values.yaml has no values")
	}
	root := &node{yaml: document.Content[0]}
	return root, root.parseFields()
}

func (n *node) parseFields() error {
	for i := 0; i < len(n.yaml.Content); i += 2 {
		key, value := n.yaml.Content[i], n.yaml.Content[i+1]
		child := field{name: key.Value, node: node{path: strings.TrimPrefix(n.path+"."+key.Value, "."), yaml: value}}
		if err := child.parseComment(key.HeadComment); err != nil {
			return fmt.Errorf("%s: %w", child.path, err)
		}
		if child.doc == "" {
			if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
				return fmt.Errorf(`%s: has no comment that begins with "# --"`, child.path)
			}
			if err := child.parseFields(); err != nil {
				return err
			}
		}
		n.fields = append(n.fields, child)
	}
	return nil
}

// parseComment splits the paragraph above a key into description and schema.
func (n *node) parseComment(comment string) error {
	paragraphs := strings.Split(comment, "\n\n")
	var prose []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if schema, ok := strings.CutPrefix(line, "@schema "); ok {
			if err := yaml.Unmarshal([]byte(schema), &n.schema); err != nil {
				return fmt.Errorf("@schema: %w", err)
			}
			continue
		}
		if first, ok := strings.CutPrefix(line, "-- "); ok {
			prose = []string{first}
		} else if prose != nil {
			prose = append(prose, line)
		}
	}
	n.doc = strings.Join(prose, " ")
	return nil
}

// values returns the values below n, in order.
func (n *node) values() ([]Value, error) {
	if n.doc != "" {
		return n.value()
	}
	var all []Value
	for _, f := range n.fields {
		values, err := f.values()
		if err != nil {
			return nil, err
		}
		all = append(all, values...)
	}
	return all, nil
}

// leadingType matches a type in front of a description, in the format of helm-docs.
var leadingType = regexp.MustCompile(`^\(([a-z/]+)\) `)

func (n *node) value() ([]Value, error) {
	v := Value{Path: n.path, Description: n.doc, Type: typeName(n.yaml)}
	if m := leadingType.FindStringSubmatch(n.doc); m != nil {
		v.Type, v.Description = m[1], n.doc[len(m[0]):]
	}
	if n.yaml.Tag == "!!null" {
		return []Value{v}, nil
	}
	text, err := inLine(n.yaml)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.path, err)
	}
	v.Default = text
	return []Value{v}, nil
}

func typeName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "object"
	case n.Kind == yaml.SequenceNode:
		return "list"
	case n.Tag == "!!bool":
		return "bool"
	case n.Tag == "!!int":
		return "int"
	}
	return "string"
}

// inLine formats a value on one line.
func inLine(n *yaml.Node) (string, error) {
	flow := *n
	flow.HeadComment, flow.LineComment, flow.FootComment = "", "", ""
	flow.Content = slices.Clone(n.Content)
	if flow.Kind != yaml.ScalarNode {
		flow.Style = yaml.FlowStyle
	}
	out, err := yaml.Marshal(&flow)
	return strings.Join(strings.Fields(string(out)), " "), err
}
