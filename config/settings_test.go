package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestSettings: each says what its user must know.
func TestSettings(t *testing.T) {
	for _, c := range []configuration{Default(), DefaultStandalone()} {
		p := c.program()
		titles := make(map[string]bool)
		for _, section := range p.sections {
			if titles[section.title] || len(section.settings) == 0 {
				t.Errorf("%s: section %q is there twice, or empty", p.name, section.title)
			}
			titles[section.title] = true
			for _, s := range section.settings {
				checkSetting(t, &s)
			}
		}
	}
}

func checkSetting(t *testing.T, s *setting) {
	field := reflect.TypeOf(s.value).Elem()
	isNumber := field.Kind() == reflect.Int || field.Kind() == reflect.Int64
	if isNumber != (s.bounds != nil) {
		t.Errorf("%s: bounds %v of a %v", s.path, s.bounds, field)
	}
	if s.flag != "" && field.Kind() != reflect.Bool && s.placeholder() == "" {
		t.Errorf("%s: nothing in backquotes in %q", s.path, s.usage)
	}
	if field.Kind() == reflect.String && (strings.HasSuffix(s.path, "File") || strings.HasSuffix(s.path, "Dir")) && len(s.files()) == 0 {
		t.Errorf("%s: neither `file` nor `folder` in %q", s.path, s.usage)
	}
	for _, phrase := range []string{s.usage, s.cost} {
		if strings.HasSuffix(phrase, ".") || strings.ToLower(phrase[:min(1, len(phrase))]) != phrase[:min(1, len(phrase))] && !startsWithName(phrase) {
			t.Errorf("%s: %q is not a phrase", s.path, phrase)
		}
	}
}

// startsWithName reports whether the phrase begins with an abbreviation: PEM, IP.
func startsWithName(phrase string) bool {
	return len(phrase) > 1 && strings.ToUpper(phrase[:2]) == phrase[:2]
}

// TestAllErrors: what is wrong is told at once, each mistake once.
func TestAllErrors(t *testing.T) {
	g := Default()
	g.Limits.MaxConnections, g.Limits.HistoryAge, g.TLS.CertFile, g.Kubeconfig = 0, 0, "none.crt", "none"
	p := g.program()
	o := newOrigins(p)
	p.check(o)
	var got []string
	for _, err := range o.errs {
		got = append(got, err.Error())
	}
	want := []string{
		"--max-connections must be at least 1, not 0",
		"--history-age must be at least 1s, not 0s",
		"--kubeconfig cannot be used: none does not exist",
		"--tls-cert-file cannot be used: none.crt does not exist",
		"--tls-cert-file is set without --tls-private-key-file; give both or none",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	o = newOrigins(p)
	o.elsewhere = true
	if p.check(o); len(o.errs) != 3 {
		t.Errorf("of a configuration for another machine: %v", o.errs)
	}
}

func TestDurationText(t *testing.T) {
	for text, want := range map[string]string{"0s": "0s", "90s": "1m30s", "10m": "10m", "1h": "1h", "24h0m1s": "24h0m1s", "1h30m": "1h30m", "20m0.5s": "20m0.5s", "100ms": "100ms"} {
		g := Default()
		if !setText(reflect.ValueOf(&g.Limits.HistoryAge).Elem(), text) || durationText(g.Limits.HistoryAge) != want {
			t.Errorf("%s: %s, want %s", text, durationText(g.Limits.HistoryAge), want)
		}
	}
}

// TestBounds: what the reference says that may be may be, and nothing beyond it.
func TestBounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bounds.yaml")
	for _, c := range []configuration{Default(), DefaultStandalone()} {
		p := c.program()
		for _, s := range p.settings() {
			if s.bounds == nil {
				continue
			}
			try := func(n int64) error {
				content, depth := "", strings.Split(s.path, ".")
				for i, key := range depth {
					content += strings.Repeat("  ", i) + key + ":"
					if i < len(depth)-1 {
						content += "\n"
					}
				}
				if err := os.WriteFile(file, []byte(content+" "+s.show(n)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				checked, err := CheckFile(file, p.name, true)
				return errors.Join(append(checked.Errors, err)...)
			}
			if err := try(s.bounds.least); err != nil {
				t.Errorf("%s at its least: %v", s.path, err)
			}
			if err := try(s.bounds.least - 1); err == nil || !strings.Contains(err.Error(), s.path) {
				t.Errorf("%s below its least: %v", s.path, err)
			}
			if s.bounds.most == 0 {
				continue
			}
			if err := try(s.bounds.most); err != nil {
				t.Errorf("%s at its most: %v", s.path, err)
			}
			if err := try(s.bounds.most + 1); err == nil || !strings.Contains(err.Error(), s.path) {
				t.Errorf("%s above its most: %v", s.path, err)
			}
		}
	}
}
