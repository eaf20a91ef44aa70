package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("limits:\n  historyAge: soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.yaml")
	if err := os.WriteFile(good, []byte("dataDir: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	several := filepath.Join(t.TempDir(), "several.yaml")
	if err := os.WriteFile(several, []byte("clusters:\n- name: a\n- name: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	unmade := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args   []string
		code   int
		stdout string // what it begins with
		stderr string // what it contains; one line
	}{
		{[]string{"version"}, 0, "kubeweir ", ""},
		{[]string{"standalone", "--data-dir", unmade, "--listen", taken.Addr().String()}, 1, "", "kubeweir: --listen: "},
		{[]string{"help"}, 0, "kubeweir serves the Kubernetes API", ""},
		{[]string{"help", "gateway"}, 0, "Usage: kubeweir gateway", ""},
		{[]string{"help", "standalone"}, 0, "Usage: kubeweir standalone", ""},
		{[]string{"help", "me"}, 2, "", `kubeweir: unknown command "me"`},
		{[]string{"gateway", "--help"}, 0, "Usage: kubeweir gateway", ""},
		{[]string{"standalone", "--help"}, 0, "Usage: kubeweir standalone", ""},
		{[]string{"standalone", "--data-dri", "x"}, 2, "", "kubeweir: --data-dri is not a flag; did you mean --data-dir?"},
		{[]string{"standalone", "--config", bad}, 2, "", "bad.yaml:2: limits.historyAge "},
		{[]string{"standalone", "--data-dir", bad}, 1, "", "kubeweir: --data-dir: "},
		{[]string{"--version"}, 0, "kubeweir ", ""},
		{[]string{"-h"}, 0, "kubeweir serves the Kubernetes API", ""},
		{[]string{"help", "help"}, 0, "Usage: kubeweir help [COMMAND]", ""},
		{[]string{"help", "gateway", "me"}, 2, "", `kubeweir: kubeweir gateway has no command "me"`},
		{[]string{"gatway"}, 2, "", `kubeweir: unknown command "gatway"; did you mean kubeweir gateway?`},
		{[]string{"gatway", "--help"}, 2, "", `kubeweir: unknown command "gatway"; did you mean kubeweir gateway?`},
		{[]string{"version", "1"}, 2, "", `kubeweir: unexpected argument "1"; see kubeweir version --help`},
		{[]string{"gateway", "start"}, 2, "", `kubeweir: unexpected argument "start"; settings are given as flags`},
		{[]string{"gateway", "--help=maybe"}, 2, "", `kubeweir: --help cannot be "maybe"; see kubeweir gateway --help`},
		{[]string{"--listen", "x"}, 2, "", "kubeweir: --listen is no flag without a command; see kubeweir --help"},
		{[]string{"top", "--sort-askers", "cpu"}, 2, "", "kubeweir: --sort-askers is now --sort-clients"},
		{[]string{"-x"}, 2, "", "kubeweir: -x is not a flag; see kubeweir --help"},
		{[]string{"version", "-o", "json"}, 0, "{\n", ""},
		{[]string{"version", "-o", "yaml"}, 2, "", `kubeweir: --output must be text or json, not "yaml"`},
		{[]string{"version", "--output"}, 2, "", "kubeweir: --output needs a value: a format"},
		{[]string{"version", "-o"}, 2, "", "kubeweir: --output needs a value: a format"},
		{[]string{"version", "-x"}, 2, "", "kubeweir: -x is not a flag; see kubeweir version --help"},
		{[]string{"config", "check", ""}, 2, "", `kubeweir: "" does not exist`},
		{[]string{"config", "chek"}, 2, "", `kubeweir: unknown command "chek"; did you mean kubeweir config check?`},
		{[]string{"config", "defaults"}, 0, "# Every setting of kubeweir gateway", ""},
		{[]string{"config", "defaults", "standalone"}, 0, "# Every setting of kubeweir standalone", ""},
		{[]string{"config", "defaults", "gatway"}, 2, "", `kubeweir: "gatway" has no configuration; did you mean gateway?`},
		{[]string{"config", "defaults", "gateway", "me"}, 2, "", `kubeweir: unexpected argument "me"`},
		{[]string{"config", "check"}, 2, "", "kubeweir: a file is required; see kubeweir config check --help"},
		{[]string{"config", "check", "/nonexistent"}, 2, "", "kubeweir: /nonexistent does not exist"},
		{[]string{"config", "check", "--mode", "x", bad}, 2, "", `kubeweir: --mode: "x" has no configuration; use gateway or standalone`},
		{[]string{"config", "check", "--mode=gateway", bad}, 2, "", "bad.yaml:2: limits.historyAge "},
		{[]string{"config", "check", good}, 0, good + ": ok (standalone)\n", ""},
		{[]string{"completion"}, 2, "", "kubeweir: a shell is required"},
		{[]string{"completion", "tcsh"}, 2, "", `kubeweir: there is no completion for "tcsh"; there is for bash, zsh, fish, powershell`},
		{[]string{"completion", "bash"}, 0, "# bash completion V2 for kubeweir", ""},
		{[]string{"completion", "zsh"}, 0, "#compdef kubeweir", ""},
		{[]string{"completion", "fish"}, 0, "# fish completion for kubeweir", ""},
		{[]string{"completion", "powershell"}, 0, "# powershell completion for kubeweir", ""},
		{[]string{"rbac"}, 0, "apiVersion: v1\nkind: ServiceAccount\n", ""},
		{[]string{"rbac", "-o", "json", "--client-ca-file", "/not/here.crt"}, 0, "{\n", ""},
		{[]string{"rbac", "--resources", "pods,deployment.apps"}, 2, "", `kubeweir: --resources: "deployment.apps": the group apps has no such resource that can be watched; did you mean deployments.apps?`},
		{[]string{"rbac", "--resources", ""}, 2, "", "kubeweir: --resources must not be empty; give plural names such as pods"},
		{[]string{"rbac", "--resources", "pods,"}, 2, "", `kubeweir: --resources: "" is not a resource`},
		{[]string{"rbac", "--resources", `"`}, 2, "", `kubeweir: --resources cannot be`},
		{[]string{"rbac", "-o", "xml"}, 2, "", `kubeweir: --output must be yaml or json, not "xml"`},
		{[]string{"rbac", "-n", "Kube System"}, 2, "", `kubeweir: --namespace must be a name`},
		{[]string{"rbac", "-n", "a.b"}, 2, "", `kubeweir: --namespace must be a name`},
		{[]string{"rbac", "--service-account", ""}, 2, "", `kubeweir: --service-account must be a name`},
		{[]string{"rbac", "--name", "a/b"}, 2, "", `kubeweir: --name must be the name of a ClusterRole, not "a/b"`},
		{[]string{"rbac", "--impersonation", "unconstrained"}, 2, "", "kubeweir: --impersonation has no effect without --client-ca-file"},
		{[]string{"rbac", "--client-ca-file", "ca.crt", "--impersonation", "auto"}, 2, "", `kubeweir: --impersonation must be constrained or unconstrained, not "auto"`},
		{[]string{"rbac", "--config", bad}, 2, "", "bad.yaml:2: limits.historyAge "},
		{[]string{"rbac", "--clientca-file", "x"}, 2, "", "kubeweir: --clientca-file is not a flag; did you mean --client-ca-file?"},
		{[]string{"rbac", "--config", several, "--cluster", "a"}, 0, "apiVersion: v1\nkind: ServiceAccount\n", ""},
		{[]string{"rbac", "--config", several}, 2, "", "kubeweir: the configuration has several clusters; set --cluster to one of a, b"},
		{[]string{"rbac", "--config", several, "--cluster", "c"}, 2, "", `kubeweir: --cluster must be one of a, b, not "c"`},
		{[]string{"rbac", "--cluster", "a"}, 2, "", "kubeweir: --cluster requires a configuration with clusters"},
		{[]string{"rbac", "--hub", "--clusterprofile-provider-file", "/not/here.json"}, 0, "apiVersion: v1\nkind: ServiceAccount\n", ""},
		{[]string{"rbac", "--hub"}, 2, "", "kubeweir: --hub prints the permissions in the hub of ClusterProfiles, and --clusterprofile-provider-file, which turns them on, is not set"},
		{[]string{"rbac", "--hub", "--config", several, "--cluster", "a"}, 2, "", "kubeweir: --cluster selects permissions in a cluster, and --hub prints those in the hub"},
		{[]string{"rbac", "--clusterprofile-namespace", "fleet"}, 2, "", "kubeweir: --clusterprofile-namespace has no effect without --clusterprofile-provider-file"},
		{[]string{"rbac", "pods"}, 2, "", `kubeweir: unexpected argument "pods"`},
		{[]string{"serve"}, 2, "", `kubeweir: unknown command "serve"`},
		{[]string{"gateway", "--lisen", "x"}, 2, "", "kubeweir: --lisen is not a flag; did you mean --listen?"},
		{[]string{"gateway", "--config", bad}, 2, "", "bad.yaml:2: limits.historyAge "},
		{[]string{"gateway", "--kubeconfig", "/nonexistent"}, 2, "", "--kubeconfig"},
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), c.args, &stdout, &stderr)
		if code != c.code || !strings.HasPrefix(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%v: code %d\n%s\n%s", c.args, code, stdout.String(), stderr.String())
		}
		if strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("%v: more than one line: %s", c.args, stderr.String())
		}
	}
	if _, err := os.Stat(unmade); err == nil {
		t.Error("a port in use left a data folder behind")
	}
	var stdout bytes.Buffer
	if err := printVersion(&stdout); err != nil || !strings.Contains(stdout.String(), "serves Kubernetes ") {
		t.Errorf("%q, %v", stdout.String(), err)
	}
	var stderr bytes.Buffer
	if code := command(t.Context(), nil, &bytes.Buffer{}, &stderr); code != 2 || !strings.Contains(stderr.String(), "Usage:") {
		t.Errorf("no command: %d %s", code, stderr.String())
	}
}

// TestHelp: every command says what it is for, how it is called and with which flags.
func TestHelp(t *testing.T) {
	var all func(c *cobra.Command)
	all = func(c *cobra.Command) {
		var help bytes.Buffer
		if err := printHelp(&help, c); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"Usage: " + c.CommandPath(), c.Short, "Examples:\n  "} {
			if !strings.Contains(help.String(), want) {
				t.Errorf("%s: no %q in the help", c.CommandPath(), want)
			}
		}
		if c.Short == "" || c.Long == "" || !strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q, %q", c.CommandPath(), c.Short, c.Long)
		}
		for line := range strings.Lines(help.String()) {
			if len(line) > helpWidth+1 {
				t.Errorf("%s: a long line: %s", c.CommandPath(), line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(help.String(), "--"+f.Name) && f.Name != "help" {
				t.Errorf("%s: --%s is not in the help", c.CommandPath(), f.Name)
			}
		})
		if flags := flagSections(c); len(flags) > 2 && slices.ContainsFunc(flags, func(s flagSection) bool { return s.title == "Flags" }) {
			t.Errorf("%s: a flag without a section", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			all(sub)
		}
	}
	all(newRoot())
}

// TestExamples: the commands of the examples are those that there are.
func TestExamples(t *testing.T) {
	var all func(c *cobra.Command)
	all = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			_, call, found := strings.Cut(line, "kubeweir ")
			if !found || strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			call, _, _ = strings.Cut(call, "#")
			for _, end := range []string{" > ", " < ", " | ", ")", "\n"} {
				call, _, _ = strings.Cut(call, end)
			}
			args := strings.Fields(strings.ReplaceAll(call, `""`, "''"))
			called, rest, err := newRoot().Find(args)
			if err != nil || called.Name() == "kubeweir" {
				t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
				continue
			}
			called.InitDefaultHelpFlag()
			if err := called.ParseFlags(rest); err != nil {
				t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
			} else if err := called.ValidateArgs(called.Flags().Args()); err != nil {
				t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
			}
		}
		for _, sub := range c.Commands() {
			all(sub)
		}
	}
	all(newRoot())
}

func TestCompletion(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("contexts: [{name: b, context: {}}, {name: a, context: {}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"gatew", "gateway Serve a cluster through a cache. :4"},
		{"gateway --consistency ", "strict session :4"},
		{"gateway --anonymous-auth=", "true false :4"},
		{"gateway --log-level ", "debug info warn error :4"},
		{"gateway --listen ", ":4"},
		{"gateway --kubeconfig ", ":0"}, // files
		{"gateway --cert-dir ", ":16"},  // folders
		{"gateway --kubeconfig " + kubeconfig + " --context ", "a b :4"},
		{"gateway --context ", ":4"},
		{"gateway ", ":4"},
		{"config check ", ":0"},
		{"config defaults ", "gateway standalone :4"},
		{"config check --mode ", "gateway standalone :4"},
		{"completion ", "bash zsh fish powershell :4"},
		{"version -o ", "text json :4"},
		{"help config ", "check Check a configuration file. defaults Print a file with every setting at its default. :4"},
	} {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), append([]string{"__complete"}, strings.Split(c.line, " ")...), &stdout, &stderr)
		if got := strings.Join(strings.Fields(stdout.String()), " "); code != 0 || got != c.want {
			t.Errorf("%s: %d %s %s, want %s", c.line, code, got, stderr.String(), c.want)
		}
	}
}

func TestBuild(t *testing.T) {
	info := &debug.BuildInfo{
		Main:     debug.Module{Version: "(devel)"},
		Deps:     []*debug.Module{{Path: "k8s.io/kubernetes", Version: "v1.2.3"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}},
	}
	for _, c := range []struct {
		b    build
		main string // version of the module
		want string
	}{
		{build{}, "(devel)", "kubeweir devel-0123456789ab-modified (commit 0123456789abcdef 2026-01-02T03:04:05Z, go, p, serves Kubernetes v1.2.3)"},
		{build{}, "v0.2.0", "kubeweir v0.2.0 (commit 0123456789abcdef 2026-01-02T03:04:05Z, go, p, serves Kubernetes v1.2.3)"},
		{build{Version: "v0.1.0", Commit: "fedc", Date: "2026-02-02T00:00:00Z"}, "(devel)", "kubeweir v0.1.0 (commit fedc 2026-02-02T00:00:00Z, go, p, serves Kubernetes v1.2.3)"},
	} {
		c.b.Go, c.b.Platform = "go", "p"
		info.Main.Version = c.main
		if c.b.complete(info); c.b.String() != c.want {
			t.Errorf("got  %s\nwant %s", c.b, c.want)
		}
	}
	if got := (build{Version: "devel", Go: "go", Platform: "p", Kubernetes: "v1"}).String(); got != "kubeweir devel (commit unknown, go, p, serves Kubernetes v1)" {
		t.Error(got)
	}
}

func TestClientsThatLeaveAreNoErrors(t *testing.T) {
	var out bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	log := slog.New(lowered{slog.NewTextHandler(&out, options)})
	gone := fmt.Errorf("in-process connection: %w", net.ErrClosed)
	log.Error("Error on socket receive", "err", gone)
	log.Error("Failed to encode watch event", "n", 1, "err", gone.Error())
	log.Error("Post-timeout activity", "method", "GET", "path", "/api", "result", nil)
	log.Error("Post-timeout activity", "method", "GET", "path", "/api", "result", "a panic")
	log.Error("Failed to decode", "err", io.ErrUnexpectedEOF)
	got := out.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "Failed to decode") || !strings.Contains(got, "a panic") {
		t.Errorf("logged: %s", got)
	}
}
