package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file, maxValues the number of its values with aliases
// expanded.
const (
	maxFileBytes = 1 << 20
	maxValues    = 100_000
)

// fileReader reads a YAML file into typed fields. It is strict: a field that does not exist, is set
// twice or has a value of another type is an error with its line. It works on the YAML tree.
// Decoders into structs would name Go types in their errors, and would lose the line numbers that
// validation needs.
type fileReader struct {
	name    string
	lines   map[string]int // by path, of the fields that are set
	errs    []error        // maxErrors at most
	unknown int            // fields that do not exist; twice those like none that does
	// clusters is the list of clusters, which is read last.
	clusters *yaml.Node
	values   int // that were read, an alias for all that it stands for
}

func (r *fileReader) report(line int, format string, args ...any) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.name, line, fmt.Sprintf(format, args...)))
	}
}

// readFile sets the fields of p that the file has, and records their lines and the errors of the
// file.
func readFile(name string, p *program) (*fileReader, error) {
	content, err := readLimited(name)
	if err != nil {
		return nil, err
	}
	return readContent(name, content, p), nil
}

// readContent parses the contents of a file.
func readContent(name string, content []byte, p *program) *fileReader {
	r := &fileReader{name: name, lines: make(map[string]int)}
	r.parse(content, p)
	r.resolvePaths(p, "")
	return r
}

func readLimited(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, plainFileError(name, err)
	}
	defer f.Close()
	return readAllLimited(name, f)
}

func readAllLimited(name string, in io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, plainFileError(name, err)
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %v, which no configuration is", name, Bytes(maxFileBytes))
	}
	return content, nil
}

func (r *fileReader) parse(content []byte, p *program) {
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return // empty: all defaults
	case err != nil:
		r.syntaxError(err)
		return
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.report(max(second.Line, 1), "there is a second YAML document; put everything into one")
		return
	case !errors.Is(err, io.EOF):
		r.syntaxError(err)
		return
	}
	if root := document.Content[0]; !isNull(root) {
		r.decode(root, reflect.ValueOf(p.document).Elem(), "")
	}
}

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError prefixes a YAML error with its line.
func (r *fileReader) syntaxError(err error) {
	text, _, _ := strings.Cut(err.Error(), "\n")
	line := 1
	if m := yamlErrorLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	r.report(line, "not valid YAML: %s", text)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// decode sets v from a node.
func (r *fileReader) decode(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.values++; r.values >= maxValues {
		if r.values == maxValues {
			r.errs = []error{fmt.Errorf("%s has more than %d values, which no configuration has", r.name, maxValues)}
		}
		return
	}
	if path != "" {
		r.lines[path] = n.Line
	}
	switch v.Kind() {
	case reflect.Struct:
		r.decodeStruct(n, v, path)
		return
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[[]Cluster]() {
			if path == clustersPath {
				r.clusters = n
			}
			return
		}
		r.decodeList(n, v, path)
		return
	}
	if isNull(n) {
		r.report(n.Line, "%s has no value; give it one or remove the line", path)
	} else if n.Kind != yaml.ScalarNode || !rightTag(n, v) || !setText(v, n.Value) {
		r.report(n.Line, "%s must be %s, not %s", path, expectation(v.Type()), describe(n, v.Type() == stringType))
	}
}

// rightTag reports whether YAML gives the scalar the type of v. Text that looks like a number or a
// boolean is a string only if it is quoted.
func rightTag(n *yaml.Node, v reflect.Value) bool {
	switch t := v.Type(); {
	case t == durationType, t == windowType:
		return n.Tag == "!!str" || n.Value == "0"
	case t == bytesType:
		return n.Tag == "!!str" || n.Tag == "!!int"
	}
	switch v.Kind() {
	case reflect.Bool:
		return n.Tag == "!!bool"
	case reflect.Int:
		return n.Tag == "!!int"
	case reflect.Float64:
		return n.Tag == "!!int" || n.Tag == "!!float"
	}
	if v.Type().Implements(choiceType) && n.Tag == "!!bool" {
		return true // some choices are true and false
	}
	return n.Tag == "!!str"
}

// describe describes a node for the end of an error, "not ...". With unquoted, it suggests quotes
// if a quoted value would be valid.
func describe(n *yaml.Node, unquoted bool) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a group of fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag == "!!str", strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Sprintf("%q", short(n.Value))
	}
	if unquoted {
		return fmt.Sprintf("the unquoted %s; put it in quotes", short(n.Value))
	}
	return short(n.Value)
}

// short truncates a text for use in a message.
func short(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}

func (r *fileReader) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			what := "text" // which is not shown: the file may be one of keys or tokens
			if n.Kind == yaml.SequenceNode {
				what = "a list"
			}
			r.report(n.Line, "the file must hold fields such as \"listen: 127.0.0.1:8443\", not %s", what)
		} else {
			r.report(n.Line, "%s must be %s, not %s", path, expectation(v.Type()), describe(n, false))
		}
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, ok := fieldNamed(v, key.Value)
		if !ok || key.Kind != yaml.ScalarNode {
			r.unknownField(key, v.Type(), path)
			continue
		}
		if first, twice := seen[key.Value]; twice {
			r.report(key.Line, "%s is given twice, first on line %d; remove one", join(path, key.Value), first)
			continue
		}
		seen[key.Value] = key.Line
		r.decode(value, field, join(path, key.Value))
	}
}

// looksLikeName matches text that was probably meant as the name of a field.
var looksLikeName = regexp.MustCompile(`^[\w.<-]{0,64}$`)

func (r *fileReader) unknownField(key *yaml.Node, t reflect.Type, path string) {
	names := fieldNames(t)
	if t == reflect.TypeFor[Cluster]() {
		names = slices.DeleteFunc(names, OfProcess)
	}
	where := "of the file"
	if path != "" {
		where = "of " + path
	}
	if similar := Nearest(key.Value, names); similar != "" {
		r.unknown++
		r.report(key.Line, "%q is not a field %s; did you mean %q?", key.Value, where, similar)
		return
	}
	r.unknown += 2
	shown := "this" // the file may be one of keys or tokens
	if looksLikeName.MatchString(key.Value) {
		shown = strconv.Quote(key.Value)
	}
	r.report(key.Line, "%s is not a field %s; there are %s", shown, where, strings.Join(names, ", "))
}

// decodeList sets a list; of strings or of structs.
func (r *fileReader) decodeList(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		r.report(n.Line, "%s must be %s, not %s", path, expectation(v.Type()), describe(n, false))
		return
	}
	items := n.Content[:min(len(n.Content), maxValues)]
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		r.decode(item, list.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(list)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func fieldName(f reflect.StructField) string { return f.Tag.Get("json") }

// fieldNames returns the names of a struct's fields, including those of embedded structs.
func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			names = append(names, fieldNames(f.Type)...)
		} else {
			names = append(names, fieldName(f))
		}
	}
	slices.Sort(names)
	return names
}

func fieldNamed(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Anonymous:
			if field, ok := fieldNamed(v.Field(i), name); ok {
				return field, true
			}
		case fieldName(f) == name:
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// resolvePaths makes relative paths in the file relative to its directory. prefix precedes the
// paths of p's settings in r.lines.
func (r *fileReader) resolvePaths(p *program, prefix string) {
	for _, s := range p.settings() {
		for _, file := range s.files() {
			if _, set := r.lines[prefix+s.path]; set && *file != "" && *file != "-" && !filepath.IsAbs(*file) {
				*file = filepath.Join(filepath.Dir(r.name), *file)
			}
		}
	}
}
