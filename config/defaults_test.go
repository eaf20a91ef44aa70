package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestWriteDefaults: the file has every setting, sets none of them to something else,
// and has nothing wrong.
func TestWriteDefaults(t *testing.T) {
	inPod(t)
	var gateway, standalone bytes.Buffer
	if err := GatewayFlags().WriteDefaults(&gateway); err != nil {
		t.Fatal(err)
	}
	if err := StandaloneFlags().WriteDefaults(&standalone); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for mode, content := range map[string]string{"gateway": gateway.String(), "standalone": standalone.String()} {
		file := filepath.Join(dir, mode+".yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if checked, err := CheckFile(file, "", false); err != nil || checked.Mode != mode || len(checked.Errors) > 0 {
			t.Errorf("%+v, %v", checked, err)
		}
		p, err := programOf(mode)
		if err != nil {
			t.Fatal(err)
		}
		read, err := readFile(file, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.settings() {
			if _, ok := read.lines[s.path]; !ok {
				t.Errorf("%s: %s is missing", mode, s.path)
			}
			if s.flag != "" && !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(content, "#", "")), " "), "Flag: --"+s.flag+".") {
				t.Errorf("%s: --%s is not mentioned", mode, s.flag)
			}
		}
		for line := range strings.Lines(content) {
			if len(line) > commentWidth+1 {
				t.Errorf("%s: a long line: %s", mode, line)
			}
		}
	}
	g, err := Parse([]string{"--config", filepath.Join(dir, "gateway.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	if g.Rules = nil; !reflect.DeepEqual(nonNil(g), nonNil(Default())) {
		t.Errorf("%+v", g)
	}
	if _, err := ParseStandalone([]string{"--config", filepath.Join(dir, "standalone.yaml"), "--data-dir", "x"}); err != nil {
		t.Error(err)
	}
}

// nonNil writes a configuration so that an empty list is as good as none.
func nonNil(g *Gateway) []string {
	var out []string
	for _, s := range g.program().settings() {
		if s.flag != "" {
			out = append(out, s.path+"="+getText(reflect.ValueOf(s.value).Elem()))
		}
	}
	return out
}

func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name, content, mode string
		wantMode            string
		want                []string // with FILE for its name
	}{
		{"empty", "", "", "gateway", nil},
		{"gateway", "kubeconfig: none\ncontext: x\n", "", "gateway", []string{"FILE:1: kubeconfig cannot be used: DIR/none does not exist"}},
		{"context alone", "context: x\n", "", "gateway", nil},
		{"standalone", "dataDir: x\nlimits:\n  maxConnections: 0\n", "", "standalone", []string{"FILE:3: limits.maxConnections must be at least 1, not 0"}},
		{"near", "dataDri: x\n", "", "standalone", []string{`FILE:1: "dataDri" is not a field of the file; did you mean "dataDir"?`}},
		{"told", "kubeconfig: x\nlistn: x\n", "standalone", "standalone", []string{
			`FILE:1: "kubeconfig" is not a field of the file; there are adminListen, admission, advertiseAddress, audit, authentication, authorization, console, controllers, dataDir, encryption, etcd, eventTTL, fakeNodes, limits, listen, log, priorityAndFairness, profiling, scheduler, services, shutdown, timeouts, tls, tracing, watchListCompression`,
			`FILE:2: "listn" is not a field of the file; did you mean "listen"?`}},
		{"many", "listen: 8443\nlimits:\n  maxWatchs: 1\n  historyAge: soon\n  historyBytes: 1\nlog: loud\n", "", "gateway", []string{
			`FILE:1: listen must be a string, not the unquoted 8443; put it in quotes`,
			`FILE:3: "maxWatchs" is not a field of limits; did you mean "maxWatches"?`,
			`FILE:4: limits.historyAge must be a duration such as "30s" or "10m", not "soon"`,
			`FILE:6: log must be a group of fields, not "loud"`,
			`FILE:5: limits.historyBytes must be at least 1Mi, not 1`,
		}},
		{"rules", "rules:\n- consistency: session\n- users: [\"\"]\n  consistency: strict\n", "", "gateway", []string{
			`FILE:2: rules[0] does not say whom it is for; add users, groups, userAgents or resources, or users: ["*"] for everybody`,
			`FILE:3: rules[1].users[0] must not be empty; remove it, or use "*" for everything`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(test.name, " ", "-"))
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			checked, err := CheckFile(file, test.mode, false)
			if err != nil || checked.Mode != test.wantMode {
				t.Errorf("mode %s, %v", checked.Mode, err)
			}
			if unsure := test.mode == "" && strings.Contains(strings.Join(test.want, ""), "is not a field"); checked.Unsure != unsure {
				t.Errorf("unsure: %v", checked.Unsure)
			}
			var got []string
			for _, err := range checked.Errors {
				got = append(got, strings.ReplaceAll(strings.ReplaceAll(err.Error(), file, "FILE"), dir, "DIR"))
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	if checked, err := CheckInput(strings.NewReader("dataDir: x\ntls: {certFile: none}\n"), "", false); err != nil || checked.Mode != "standalone" || len(checked.Errors) != 2 ||
		checked.Errors[0].Error() != "standard input:2: tls.certFile cannot be used: none does not exist" {
		t.Errorf("%+v, %v", checked, err)
	}
	if _, err := CheckFile(filepath.Join(dir, "none"), "", false); err == nil || !strings.HasSuffix(err.Error(), "none does not exist") {
		t.Errorf("err = %v", err)
	}
	if _, err := CheckFile(filepath.Join(dir, "empty"), "sidecar", false); err == nil || err.Error() != `"sidecar" is no mode; use gateway or standalone` {
		t.Errorf("err = %v", err)
	}
}

func TestManyErrorsAreBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "many")
	if err := os.WriteFile(file, []byte("sidecarHosts: ["+strings.Repeat("1, ", 1000)+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if checked, err := CheckFile(file, "", false); err != nil || len(checked.Errors) != maxErrors {
		t.Errorf("%d errors, %v", len(checked.Errors), err)
	}
}

// TestCheckFileOfSecrets: a file of keys or tokens that is checked by mistake is not
// shown.
func TestCheckFileOfSecrets(t *testing.T) {
	for _, content := range []string{
		"s3cr3t,admin,1,\"system:masters\"\n",
		"-----BEGIN PRIVATE KEY-----\ns3cr3t\n-----END PRIVATE KEY-----\n",
		"root:$6$s3cr3t:20228:0:99999:7::\ndaemon:*:20228:0:99999:7::\n",
		"- s3cr3t\n",
		"token: s3cr3t\n",
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		checked, err := CheckFile(file, "", false)
		if err != nil || len(checked.Errors) == 0 {
			t.Errorf("%q: %v, %v", content, checked.Errors, err)
		}
		for _, err := range checked.Errors {
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Error(err)
			}
		}
	}
}

// TestHostileFiles: whatever a file has, it is told in short and printable lines.
func TestHostileFiles(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, content := range []string{
		"listen: " + long,
		"insecureListen: " + long,
		"sidecarHosts: [\":" + long + "\"]",
		"cacheAggregatedGroups: [\":" + long + "\"]",
		"dropManagedFields: [\":" + long + "\"]",
		"rules:\n- consistency: strict\n  resources: [\":" + long + "\"]",
		"kubeconfig: " + long,
		"audit:\n  path: " + long + "/" + long,
		long + ": 1",
		"dataDir: x\nadvertiseAddress: " + long,
		"kubeconfig: \"a\\e[31m\\0\"",
	} {
		file := filepath.Join(t.TempDir(), "hostile")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		checked, err := CheckFile(file, "", false)
		if err != nil || len(checked.Errors) == 0 {
			t.Errorf("%.60q: %v, %v", content, checked.Errors, err)
		}
		for _, err := range checked.Errors {
			if text := err.Error(); len(text) > 800 || strings.ContainsAny(text, "\n\x1b\x00") {
				t.Errorf("%.60q: %.900q", content, text)
			}
		}
	}
}

// TestValuesAreBounded: long lists, and a small file whose aliases stand for a large one.
func TestValuesAreBounded(t *testing.T) {
	for _, content := range []string{
		"sidecarHosts: [" + strings.Repeat("x,", maxValues+1) + "]",
		"rules:\n- &r {consistency: session, users: [" + strings.Repeat("x,", 1_000) + "]}\n" + strings.Repeat("- *r\n", 200),
	} {
		file := filepath.Join(t.TempDir(), "bomb")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		checked, err := CheckFile(file, "gateway", false)
		if err != nil || len(checked.Errors) != 1 || checked.Errors[0].Error() != file+" has more than 100000 values, which no configuration has" {
			t.Errorf("%v, %v", checked.Errors, err)
		}
	}
}
