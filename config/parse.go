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

// Parse returns the configuration for the arguments after "gateway": defaults, then the file of
// --config, then the other flags. It checks that the files exist. An error is one sentence.
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

// GatewayFlags returns the flags of `kubeweir gateway`.
func GatewayFlags() *Flags[*Gateway] { return newFlags(Default) }

// StandaloneFlags returns the flags of `kubeweir standalone`.
func StandaloneFlags() *Flags[*Standalone] { return newFlags(DefaultStandalone) }

func newFlags[C configuration](defaults func() C) *Flags[C] {
	f := &Flags[C]{defaults: defaults}
	f.set = newFlagSet(defaults().program(), &f.file)
	return f
}

// Set returns the flag set: every setting that has a flag, and --config.
func (f *Flags[C]) Set() *pflag.FlagSet { return f.set }

// File returns the value of --config, or "".
func (f *Flags[C]) File() string { return f.file }

// Parse parses the arguments and loads the configuration.
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

// CheckArgs rejects arguments that are not flags.
func (f *Flags[C]) CheckArgs(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; settings are given as flags, see %s --help", args[0], f.set.Name())
	}
	return nil
}

// Load returns the configuration: defaults, then the file of --config, then the flags that were
// set. The files that the settings name must be on this machine.
func (f *Flags[C]) Load() (C, error) { return f.load(false) }

// LoadElsewhere is Load for a configuration that another machine will use: it does not check the
// files that are named, nor look for a cluster.
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

// apply sets the fields of p whose flags were set.
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

// program is a command's configuration with its document, its settings and its validation.
type program struct {
	name        string // of the command
	configUsage string // of --config
	document    any    // pointer to the struct that the file is read into
	sections    []section
	validate    func(o *origins) // reports what check does not
	// expand, if not nil, sets the values that depend on other settings after the file and the
	// flags are read. r is nil without a file.
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

// check reports all errors.
func (p *program) check(o *origins) {
	settings := p.settings()
	for _, s := range settings {
		s.check(o)
	}
	checkFiles(o, settings)
	p.validate(o)
}

// origins records where the value of a field came from, so that errors name the flag or line, and
// collects the errors.
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

// maxErrors is the number of errors reported at once.
const maxErrors = 50

func newOrigins(p *program) *origins {
	o := &origins{flags: make(map[string]string), given: func(string) bool { return false }}
	for _, s := range p.settings() {
		o.flags[s.path] = s.flag
	}
	return o
}

// isSet reports whether the file or a flag sets the field at path.
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

// clusterErrorf returns an error about the field at path of a cluster, or nil if the top level has
// reported it.
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

// errorf returns an error about the field at path.
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

// name returns the user's name for the field at path, for an error about another field: the key in
// the file if there is a file, else the flag.
func (o *origins) name(path string) string {
	if flag := o.flags[path]; o.file == nil || o.given(flag) {
		return "--" + flag
	}
	return path
}

// plainFileError returns a short text why a file cannot be used.
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

// shownPath formats a path for messages: quoted if it could disturb a terminal, and truncated if no
// file can have such a name.
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
