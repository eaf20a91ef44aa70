package config

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestSettingsInForce: all settings are shown as they are in force, as YAML, and passwords are not.
func TestSettingsInForce(t *testing.T) {
	g, err := Parse([]string{"--config", "testdata/full.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	list := g.SettingsInForce()
	find := func(path string) SettingInForce {
		i := slices.IndexFunc(list, func(s SettingInForce) bool { return s.Path == path })
		if i < 0 {
			t.Fatalf("%s is not shown", path)
		}
		return list[i]
	}
	if s := find("console.actions"); s.Value != "true" || s.Default || s.Flag != "console-actions" || s.About == "" {
		t.Errorf("%+v", s)
	}
	if s := find("rules"); !strings.Contains(s.Value, "system:nodes") || strings.Contains(s.Value, "\n") || strings.Contains(s.Value, "selfReviews") {
		t.Errorf("%+v", s)
	}
	var document map[string]any
	if err := yaml.Unmarshal([]byte(InForceText(list, true)), &document); err != nil || document["console"] == nil {
		t.Errorf("%v\n%s", err, InForceText(list, true))
	}
	if text := InForceText(Default().SettingsInForce(), false); text != "" {
		t.Errorf("of the defaults differs\n%s", text)
	}
	for text, want := range map[string]string{
		"https://jane:secret@10.0.0.1:6443/x":    "https://jane:***@10.0.0.1:6443/x",
		"https://token@10.0.0.1":                 "https://***@10.0.0.1",
		"https://jane:se@cret@10.0.0.1:6443":     "https://jane:***@10.0.0.1:6443",
		"[https://a:b@c:1, https://d:2, e@f.gh]": "[https://a:***@c:1, https://d:2, e@f.gh]",
		"https://10.0.0.1:6443/a@b":              "https://10.0.0.1:6443/a@b",
	} {
		if got := MaskPasswords(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestFlagsInForce returns what /flagz shows.
func TestFlagsInForce(t *testing.T) {
	c, err := ParseStandalone([]string{"--data-dir=d", "--event-ttl=5m", "--controllers=namespace,job", "--etcd-servers=https://192.0.2.1:2379"})
	if err != nil {
		t.Fatal(err)
	}
	flags := c.FlagsInForce()
	for name, want := range map[string]string{
		"data-dir": "d", "event-ttl": "5m", "anonymous-auth": "true", "controllers": "[namespace, job]", "etcd-servers": "['https://192.0.2.1:2379']",
	} {
		if flags[name] != want {
			t.Errorf("--%s is %q, want %q", name, flags[name], want)
		}
	}
}
