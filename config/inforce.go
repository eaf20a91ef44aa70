package config

import (
	"bufio"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SettingInForce is a setting in force, with its texts for operators.
type SettingInForce struct {
	// Path is the path in the file; a cluster's own setting begins with clusters[NAME].
	Path string
	// Value is YAML on one line.
	Value string
	// Default is true if neither a file nor a flag sets it.
	Default bool
	// Flag is the flag; "" if only the file can set it.
	Flag string
	// About describes the setting.
	About string
}

// SettingsInForce returns all settings in force. Files are named, never shown, and passwords in URLs are
// masked.
func (g *Gateway) SettingsInForce() []SettingInForce {
	list := settingsInForce(g.program(), Default().program())
	for i := range g.Clusters {
		c := &g.Clusters[i]
		differing := changed(&c.Gateway, g, false)
		for _, s := range settingsInForce(c.program(), g.program()) {
			for _, path := range differing {
				if s.Path == path {
					s.Path, s.Flag = fmt.Sprintf("%s[%s].%s", clustersPath, c.Name, path), ""
					list = append(list, s)
				}
			}
		}
	}
	return list
}

// SettingsInForce returns all settings in force.
func (s *Standalone) SettingsInForce() []SettingInForce {
	return settingsInForce(s.program(), DefaultStandalone().program())
}

// FlagsInForce returns the values of all flags in force, as SettingsInForce.
func (s *Standalone) FlagsInForce() map[string]string {
	flags := make(map[string]string)
	for _, f := range s.SettingsInForce() {
		if f.Flag != "" {
			flags[f.Flag] = f.Value
		}
	}
	return flags
}

func settingsInForce(p, without *program) []SettingInForce {
	defaults := without.settings()
	all := p.settings()
	list := make([]SettingInForce, 0, len(all))
	for i, s := range all {
		list = append(list, SettingInForce{
			Path: s.path, Value: MaskPasswords(s.inForce()), Default: reflect.DeepEqual(s.value, defaults[i].value),
			Flag: s.flag, About: s.text(),
		})
	}
	return list
}

// inForce returns the value on one line.
func (s *setting) inForce() string {
	v := reflect.ValueOf(s.value).Elem()
	if clusters, ok := v.Interface().([]Cluster); ok {
		names := make([]string, len(clusters))
		for i := range clusters {
			names[i] = clusters[i].Name
		}
		v = reflect.ValueOf(names)
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && v.Len() > 0 {
		return structsInForce(v)
	}
	text, err := yamlOf(v)
	if err != nil {
		return ""
	}
	return text
}

// structsInForce formats a list of structs on one line, without fields that are not set.
func structsInForce(v reflect.Value) string {
	encoded, err := json.Marshal(v.Interface())
	if err != nil {
		return ""
	}
	var items []map[string]any
	if json.Unmarshal(encoded, &items) != nil {
		return ""
	}
	for _, item := range items {
		for name, value := range item {
			if list, isList := value.([]any); value == nil || value == "" || isList && len(list) == 0 {
				delete(item, name)
			}
		}
	}
	node := yaml.Node{}
	if node.Encode(items) != nil {
		return ""
	}
	flow(&node)
	text, err := yaml.Marshal(&node)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// flow makes a node be written on one line.
func flow(n *yaml.Node) {
	n.Style |= yaml.FlowStyle
	for _, child := range n.Content {
		if child.Kind != yaml.ScalarNode {
			flow(child)
		}
	}
}

// password matches the password in a URL, or a lone user name, which may be a token. A password may
// contain "@".
var password = regexp.MustCompile(`(://(?:[^/@:\s]*:)?)[^/\s]+@`)

// MaskPasswords replaces the passwords of the URLs in a text.
func MaskPasswords(s string) string { return password.ReplaceAllString(s, "${1}***@") }

// InForceText formats settings as a file: all of them, or those that differ from the defaults.
func InForceText(settings []SettingInForce, all bool) string {
	var b strings.Builder
	w := defaultsWriter{out: bufio.NewWriter(&b)}
	for _, s := range settings {
		switch {
		case s.Default && !all:
		case strings.HasPrefix(s.Path, clustersPath+"["):
			w.printf("# %s: %s\n", s.Path, s.Value)
		default:
			indent, key := w.open(s.Path)
			w.printf("%s%s: %s\n", indent, key, s.Value)
		}
	}
	_ = w.out.Flush() // a strings.Builder does not fail
	return b.String()
}
