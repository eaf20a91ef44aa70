package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
)

// Parse makes the configuration of the arguments after "gateway": defaults, then
// the file of --config, then the other flags. It reads files to check that they
// are there. An error is one sentence.
func Parse(args []string) (*Gateway, error) { return GatewayFlags().Parse(args) }

// ParseStandalone is Parse for "standalone".
func ParseStandalone(args []string) (*Standalone, error) { return StandaloneFlags().Parse(args) }

// Flags are the settings of a command as flags. They produce the configuration of the command. The
// caller parses the flag set, with Parse or the command line's framework, and then calls Load.
type Flags[C configuration] struct {
	set      *pflag.FlagSet
	defaults func() C
	file     string // of --config
}

// GatewayFlags are the flags of `kubeweir gateway`.
func GatewayFlags() *Flags[*Gateway] { return newFlags(Default) }

// StandaloneFlags are the flags of `kubeweir standalone`.
func StandaloneFlags() *Flags[*Standalone] { return newFlags(DefaultStandalone) }

func newFlags[C configuration](defaults func() C) *Flags[C] {
	f := &Flags[C]{defaults: defaults}
	f.set = newFlagSet(defaults().program(), &f.file)
	return f
}

// Set is the flag set: every setting that has a flag, and --config.
func (f *Flags[C]) Set() *pflag.FlagSet { return f.set }

// File is what --config names, "" without it.
func (f *Flags[C]) File() string { return f.file }

// Parse parses the arguments and loads.
func (f *Flags[C]) Parse(args []string) (C, error) {
	var none C
	if err := f.set.Parse(args); err != nil {
		return none, FlagError(err, f.set, f.set.Name())
	}
	if err := f.CheckArgs(f.set.Args()); err != nil {
		return none, err
	}
	return f.Load()
}

// CheckArgs refuses arguments that are no flags.
func (f *Flags[C]) CheckArgs(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; settings are given as flags, see %s --help", args[0], f.set.Name())
	}
	return nil
}

// Load makes the configuration: defaults, then the file of --config, then the flags that were
// given. The files that the settings name must be on this machine.
func (f *Flags[C]) Load() (C, error) { return f.load(false) }

// LoadElsewhere is Load for a configuration that another machine will run with: it does
// not look for the files that are named, nor for a cluster.
func (f *Flags[C]) LoadElsewhere() (C, error) { return f.load(true) }

func (f *Flags[C]) load(elsewhere bool) (C, error) {
	var none C
	c := f.defaults()
	p := c.program()
	o := newOrigins(p)
	o.given, o.elsewhere = f.set.Changed, elsewhere
	if f.set.Changed("config") {
		if f.file == "" {
			return none, errors.New("--config must name a file")
		}
		read, err := readFile(f.file, p)
		if err != nil {
			return none, fmt.Errorf("--config: %w", err)
		}
		if len(read.errs) > 0 {
			return none, read.errs[0]
		}
		o.file = read
	}
	if err := f.apply(p); err != nil {
		return none, err
	}
	if p.expand != nil {
		p.expand(o.file, o.isSet)
		if o.file != nil && len(o.file.errs) > 0 {
			return none, o.file.errs[0]
		}
	}
	if p.check(o); len(o.errs) > 0 {
		return none, o.errs[0]
	}
	return c, nil
}

// apply sets the fields of p whose flags were given.
func (f *Flags[C]) apply(p *program) error {
	var file string
	fields := newFlagSet(p, &file)
	var errs []error
	f.set.VisitAll(func(given *pflag.Flag) { // not Visit: the flags may have been parsed as part of another set
		if from, ok := given.Value.(*flagValue); ok && given.Changed {
			into := fields.Lookup(given.Name).Value
			for _, text := range from.given {
				errs = append(errs, into.Set(text))
			}
		}
	})
	return errors.Join(errs...)
}

// program is a command's configuration as a document, as settings and as something
// that can be wrong.
type program struct {
	name        string // of the command
	configUsage string // of --config
	document    any    // pointer to the struct that the file is read into
	sections    []section
	validate    func(o *origins) // reports what check does not
	// expand, if there is one, sets what builds on all that was said, by a file, if there
	// is one, or by flags.
	expand func(r *fileReader, isSet func(path string) bool)
}

type configuration interface{ program() *program }

// settings returns the settings of all sections.
func (p *program) settings() (all []setting) {
	for _, section := range p.sections {
		all = append(all, section.settings...)
	}
	return all
}

// check reports everything that is wrong.
func (p *program) check(o *origins) {
	settings := p.settings()
	for _, s := range settings {
		s.check(o)
	}
	checkFiles(o, settings)
	p.validate(o)
}

// origins knows where the value of a field came from, to name it in an error as
// the user knows it, and collects the errors.
type origins struct {
	flags     map[string]string // flag of a path
	given     func(flag string) bool
	file      *fileReader // nil without a file
	elsewhere bool        // another machine will run with this
	alone     bool        // the file is checked without the flags that will come with it
	errs      []error     // maxErrors at most
	// cluster is the path in the file of the cluster whose own settings are checked, "" for none.
	// Errors in settings that the cluster inherits from the top level are reported as errors of the
	// cluster if inherits is set: the settings were valid at the top level.
	cluster  string
	inherits bool
}

// maxErrors is how many mistakes are told at once.
const maxErrors = 50

func newOrigins(p *program) *origins {
	o := &origins{flags: make(map[string]string), given: func(string) bool { return false }}
	for _, s := range p.settings() {
		o.flags[s.path] = s.flag
	}
	return o
}

// isSet reports whether the file or a flag has the field at path.
func (o *origins) isSet(path string) bool {
	if o.given(o.flags[path]) {
		return true
	}
	if o.file == nil {
		return false
	}
	_, set := o.file.lines[path]
	return set
}

// report adds an error about the field at path.
func (o *origins) report(path, format string, args ...any) {
	if o.cluster == "" {
		o.add(o.errorf(path, format, args...))
	} else if err := o.clusterErrorf(path, format, args...); err != nil {
		o.add(err)
	}
}

func (o *origins) add(err error) {
	if len(o.errs) < maxErrors {
		o.errs = append(o.errs, err)
	}
}

// clusterErrorf is an error about the field at path of a cluster; nil if it was reported of
// the top level.
func (o *origins) clusterErrorf(path, format string, args ...any) error {
	text := fmt.Errorf(format, args...)
	if line, own := o.file.lines[o.cluster+"."+path]; own {
		return fmt.Errorf("%s:%d: %s.%s %w", o.file.name, line, o.cluster, path, text)
	}
	if !o.inherits {
		return nil
	}
	return fmt.Errorf("%s:%d: %s: %s %w", o.file.name, o.file.lines[o.cluster], o.cluster, path, text)
}

// errorf is an error about the field at path.
func (o *origins) errorf(path, format string, args ...any) error {
	text := fmt.Errorf(format, args...)
	flag := o.flags[path]
	hasFlag := flag != ""
	if o.file != nil && !(hasFlag && o.given(flag)) {
		if line, ok := o.file.lines[path]; ok {
			return fmt.Errorf("%s:%d: %s %w", o.file.name, line, path, text)
		}
	}
	if hasFlag {
		return fmt.Errorf("--%s %w", flag, text)
	}
	return fmt.Errorf("%s %w", path, text)
}

// name is how the user knows the field at path, to be mentioned in an error
// about another one: by the file, if there is one.
func (o *origins) name(path string) string {
	if flag := o.flags[path]; o.file == nil || o.given(flag) {
		return "--" + flag
	}
	return path
}

// plainFileError says in a few words why a file cannot be used.
func plainFileError(name string, err error) error {
	name = shownPath(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be read", name)
	}
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	return fmt.Errorf("%s cannot be read: %w", name, err)
}

// shownPath is a path as it is told of: in quotes if it could disturb a terminal, and
// cut where no file has such a name.
func shownPath(path string) string {
	const longest = 4096
	if len(path) > longest {
		return short(path)
	}
	if path == "" || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(path)
	}
	return path
}
