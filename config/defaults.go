package config

import (
	"bufio"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteDefaults writes a configuration file that has every setting at its default, with a
// description.
func (f *Flags[C]) WriteDefaults(out io.Writer) error {
	p := f.defaults().program()
	w := &defaultsWriter{out: bufio.NewWriter(out)}
	w.printf("# Every setting of kubeweir %s, at its default.\n", p.name)
	w.comment("", fmt.Sprintf("kubeweir %s --config FILE reads it; a file needs to have only what differs. Flags win over the file. "+
		"Relative paths are relative to the file. Durations are written 90s, 10m, 1h30m; sizes 64Mi, 1Gi or as a number of bytes.", p.name))
	for _, section := range p.sections {
		w.printf("\n# ---- %s ----\n", section.title)
		for _, s := range section.settings {
			if err := w.setting(&s); err != nil {
				return err
			}
		}
	}
	return w.out.Flush()
}

// defaultsWriter writes settings as YAML. Settings of the same group must follow each other. The
// buffer keeps the first write error.
type defaultsWriter struct {
	out   *bufio.Writer
	group []string // that the last setting was in
}

func (w *defaultsWriter) printf(format string, args ...any) { fmt.Fprintf(w.out, format, args...) }

// commentWidth is the maximum width of comment lines.
const commentWidth = 100

// comment writes a paragraph.
func (w *defaultsWriter) comment(indent, text string) {
	line := indent + "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > commentWidth {
			w.printf("%s\n", line)
			line = indent + "#"
		}
		line += " " + word
	}
	w.printf("%s\n", line)
}

func (w *defaultsWriter) setting(s *setting) error {
	w.printf("\n")
	indent, key := w.open(s.path)
	w.comment(indent, s.description())
	if example := examples[s.path]; example != "" {
		w.printf("%s# %s:\n", indent, key)
		for _, line := range strings.Split(strings.TrimSpace(example), "\n") {
			w.printf("%s# %s\n", indent, line)
		}
	}
	value, err := yamlOf(reflect.ValueOf(s.value).Elem())
	w.printf("%s%s: %s\n", indent, key, value)
	return err
}

// open writes the groups that path is in and the last setting was not in, and returns the
// indentation and the key.
func (w *defaultsWriter) open(path string) (indent, key string) {
	keys := strings.Split(path, ".")
	group := keys[:len(keys)-1]
	same := 0
	for same < min(len(group), len(w.group)) && group[same] == w.group[same] {
		same++
	}
	for depth := same; depth < len(group); depth++ {
		w.printf("%s%s:\n", strings.Repeat("  ", depth), group[depth])
	}
	w.group = group
	return strings.Repeat("  ", len(group)), keys[len(keys)-1]
}

// description returns the full text of a setting without its name and default.
func (s *setting) description() string {
	parts := []string{s.text()}
	if s.bounds != nil {
		parts = append(parts, sentence(s.allowed()))
	}
	if s.flag != "" {
		parts = append(parts, "Flag: --"+s.flag+".")
	}
	return strings.Join(parts, " ")
}

// yamlOf formats a value on one line, quoted if necessary.
func yamlOf(v reflect.Value) (string, error) {
	var value any = getText(v)
	switch v.Kind() {
	case reflect.Slice:
		if v.Len() == 0 {
			return "[]", nil
		}
		list := yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		if err := list.Encode(v.Interface()); err != nil {
			return "", err
		}
		list.Style = yaml.FlowStyle
		value = &list
	case reflect.Bool:
		value = v.Bool()
	case reflect.Int:
		value = v.Int()
	case reflect.Float64:
		value = v.Float()
	case reflect.Int64: // a duration or a size, which may look like a number
		return getText(v), nil
	}
	text, err := yaml.Marshal(value)
	return strings.TrimSpace(string(text)), err
}

// examples are examples of the settings without a flag.
var examples = map[string]string{rulesPath: rulesExample, clustersPath: clustersExample}
