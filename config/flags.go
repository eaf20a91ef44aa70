package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flagValue makes a field a pflag.Value. A list is replaced by the first use of
// its flag and extended by the others.
type flagValue struct {
	field reflect.Value
	given []string // the texts that were set
}

func (f *flagValue) String() string {
	if !f.field.IsValid() {
		return "" // of the zero flagValue that pflag makes to know a default
	}
	return getText(f.field)
}

func (f *flagValue) Set(text string) error {
	defer func() { f.given = append(f.given, text) }()
	if list, ok := f.field.Addr().Interface().(*[]string); ok {
		if len(f.given) == 0 {
			*list = nil
		}
		for item := range strings.SplitSeq(text, ",") {
			*list = append(*list, strings.TrimSpace(item))
		}
		return nil
	}
	if !setText(f.field, text) {
		return fmt.Errorf("must be %s, not %q", expectation(f.field.Type()), short(text))
	}
	return nil
}

// Type returns the placeholder in the help of flags whose usage does not name one.
func (f *flagValue) Type() string {
	if f.field.Kind() == reflect.Bool {
		return "bool"
	}
	return "value"
}

// Annotations of the flags, for help and completion.
const (
	// SectionAnnotation is the title of the flag's section.
	SectionAnnotation = "kubeweir_section"
	// ChoicesAnnotation lists the values of a flag that has few.
	ChoicesAnnotation = "kubeweir_choices"
)

// newFlagSet binds all flags to p's fields, which hold the defaults.
func newFlagSet(p *program, file *string) *pflag.FlagSet {
	fs := pflag.NewFlagSet("kubeweir "+p.name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // errors are the caller's to print
	fs.StringVar(file, "config", "", p.configUsage)
	annotate(fs.Lookup("config"), SectionAnnotation, "Configuration file")
	for _, section := range p.sections {
		for _, s := range section.settings {
			if s.flag == "" {
				continue
			}
			field := reflect.ValueOf(s.value).Elem()
			flag := fs.VarPF(&flagValue{field: field}, s.flag, "", s.usage)
			if field.Kind() == reflect.Bool {
				flag.NoOptDefVal = "true"
			}
			annotate(flag, SectionAnnotation, section.title)
			annotate(flag, ChoicesAnnotation, s.choices()...)
		}
	}
	return fs
}

func annotate(flag *pflag.Flag, annotation string, values ...string) {
	if len(values) == 0 {
		return
	}
	if flag.Annotations == nil {
		flag.Annotations = make(map[string][]string)
	}
	flag.Annotations[annotation] = values
}

// FlagError returns a one-sentence error for err, the failure to parse the flags of a command.
func FlagError(err error, fs *pflag.FlagSet, command string) error {
	var (
		unknown  *pflag.NotExistError
		noValue  *pflag.ValueRequiredError
		badValue *pflag.InvalidValueError
		syntax   *pflag.InvalidSyntaxError
	)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		return unknownFlag(unknown, fs, command)
	case errors.As(err, &noValue):
		flag := noValue.GetFlag()
		return fmt.Errorf("--%s needs a value: %s", flag.Name, expectationOfFlag(flag))
	case errors.As(err, &badValue):
		flag := badValue.GetFlag()
		if _, ours := flag.Value.(*flagValue); ours {
			return fmt.Errorf("--%s %w", flag.Name, errors.Unwrap(badValue))
		}
		return fmt.Errorf("--%s cannot be %q; see %s --help", flag.Name, short(badValue.GetValue()), command)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is not a flag; see %s --help", syntax.GetSpecifiedFlag(), command)
	}
	return err
}

func unknownFlag(err *pflag.NotExistError, fs *pflag.FlagSet, command string) error {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	dashes, name := "--", err.GetSpecifiedName()
	if shorts := err.GetSpecifiedShortnames(); shorts != "" {
		dashes, name = "-", shorts // -listen is read as -l, -i and so on
	}
	if similar := Nearest(name, names); similar != "" {
		return fmt.Errorf("%s%s is not a flag; did you mean --%s?", dashes, name, similar)
	}
	return fmt.Errorf("%s%s is not a flag; see %s --help", dashes, name, command)
}

func expectationOfFlag(flag *pflag.Flag) string {
	if v, ok := flag.Value.(*flagValue); ok {
		return expectation(v.field.Type())
	}
	kind, _ := pflag.UnquoteUsage(flag)
	return "a " + kind
}

// Nearest returns the name that differs from s in the fewest letters, or "" if all differ in many.
func Nearest(s string, names []string) string {
	if len(s) > 64 {
		return ""
	}
	best, bestDistance := "", 1+len(s)/4
	for _, name := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(name)); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(previous[j]+cost, previous[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
