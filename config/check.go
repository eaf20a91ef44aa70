package config

import (
	"fmt"
	"io"
)

// Modes are the commands that have a configuration.
func Modes() []string { return []string{"gateway", "standalone"} }

// Checked is the result of CheckFile.
type Checked struct {
	Mode   string // the command that the file was read for
	Errors []error
	// Unsure is true if the mode was guessed although the file has unknown fields.
	Unsure bool
}

// CheckFile returns all errors of a configuration file, each with its line. mode is one of Modes;
// "" selects the mode whose settings the file has. With elsewhere, another machine will use the
// file, so files that it names are not checked. CheckFile fails only if the file cannot be read.
func CheckFile(name, mode string, elsewhere bool) (Checked, error) {
	content, err := readLimited(name)
	if err != nil {
		return Checked{}, err
	}
	return checkContent(name, content, mode, elsewhere)
}

// CheckInput is CheckFile for the contents of in. Relative paths in them are relative to the
// working directory.
func CheckInput(in io.Reader, mode string, elsewhere bool) (Checked, error) {
	const name = "standard input"
	content, err := readAllLimited(name, in)
	if err != nil {
		return Checked{}, err
	}
	return checkContent(name, content, mode, elsewhere)
}

func checkContent(name string, content []byte, mode string, elsewhere bool) (Checked, error) {
	modes := Modes()
	if mode != "" {
		modes = []string{mode}
	}
	var best Checked
	var leastUnknown int
	for i, mode := range modes {
		p, err := programOf(mode)
		if err != nil {
			return Checked{}, err
		}
		o := newOrigins(p)
		o.file, o.elsewhere, o.alone = readContent(name, content, p), elsewhere, true
		if p.expand != nil {
			p.expand(o.file, o.isSet)
		}
		if i == 0 || o.file.unknown < leastUnknown {
			best, leastUnknown = Checked{Mode: mode, Errors: checkRead(o, p)}, o.file.unknown
		}
	}
	best.Unsure = mode == "" && leastUnknown > 0
	return best, nil
}

func programOf(mode string) (*program, error) {
	switch mode {
	case "gateway":
		return Default().program(), nil
	case "standalone":
		return DefaultStandalone().program(), nil
	}
	return nil, fmt.Errorf("%q is no mode; use %s", mode, alternatives(Modes()))
}

// checkRead checks a configuration that was read from a file.
func checkRead(o *origins, p *program) []error {
	if len(o.file.errs) == 0 {
		p.check(o)
		return o.errs
	}
	// Settings that were not read have their defaults, which are within their bounds. But the other
	// checks would not see the settings that depend on them.
	o.errs = o.file.errs
	for _, s := range p.settings() {
		s.check(o)
	}
	return o.errs
}
