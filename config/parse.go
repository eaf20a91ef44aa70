package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
)

// ErrHelp is returned by Parse for --help.
var ErrHelp = pflag.ErrHelp

// Parse makes the configuration of the arguments after "gateway": defaults, then
// the file of --config, then the other flags. It reads files to check that they
// are there. An error is one sentence.
func Parse(args []string) (*Gateway, error) { return parse(args, Default) }

// Help lists the flags of the gateway with their defaults.
func Help() string { return Default().program().help() }

// ParseStandalone is Parse for "standalone".
func ParseStandalone(args []string) (*Standalone, error) { return parse(args, DefaultStandalone) }

// HelpStandalone is Help for "standalone".
func HelpStandalone() string { return DefaultStandalone().program().help() }

// program is a command's configuration as a document, as flags and as something
// that can be wrong.
type program struct {
	name        string // of the command
	configUsage string // of --config
	document    any    // pointer to the struct that the file is read into
	settings    []setting
	files       map[string]*string // the fields that are paths of files, by path
	validate    func(o *origins) error
}

type configuration interface{ program() *program }

func parse[C configuration](args []string, defaults func() C) (C, error) {
	var none C
	var file string
	c := defaults()
	// The flags are parsed twice: first to learn of the file, then to win over it.
	first := newFlagSet(c.program(), &file)
	if err := first.Parse(args); err != nil {
		return none, flagError(err, first)
	}
	if first.NArg() > 0 {
		return none, fmt.Errorf("unexpected argument %q; settings are given as flags, see %s --help", first.Arg(0), first.Name())
	}
	o := origins{flags: make(map[string]string)}
	if first.Changed("config") {
		if file == "" {
			return none, errors.New("--config must name a file")
		}
		c = defaults()
		p := c.program()
		read, err := readFile(file, p)
		if err != nil {
			return none, err
		}
		read.resolvePaths(p)
		o.file = read
		second := newFlagSet(p, &file)
		if err := second.Parse(args); err != nil {
			return none, flagError(err, second)
		}
	}
	p := c.program()
	for _, s := range p.settings {
		o.flags[s.path] = s.flag
	}
	o.given = first.Changed
	if err := p.validate(&o); err != nil {
		return none, err
	}
	return c, nil
}

// origins knows where the value of a field came from, to name it in an error as
// the user knows it.
type origins struct {
	flags map[string]string // flag of a path
	given func(flag string) bool
	file  *fileReader // nil without a file
}

// errorf is an error about the field at path.
func (o *origins) errorf(path, format string, args ...any) error {
	text := fmt.Errorf(format, args...)
	flag, hasFlag := o.flags[path]
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
