package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("limits:\n  historyAge: soon\n"), 0o600); err != nil {
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
		{[]string{"-x"}, 2, "", "kubeweir: -x is not a flag; flags begin with two dashes, see kubeweir --help"},
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

func TestClosedConnectionsAreNoErrors(t *testing.T) {
	var out bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	log := slog.New(lowered{slog.NewTextHandler(&out, options)})
	gone := fmt.Errorf("in-process connection: %w", net.ErrClosed)
	log.Error("Error on socket receive", "err", gone)
	log.Error("Failed to encode watch event", "n", 1, "err", gone.Error())
	log.Error("Failed to decode", "err", io.ErrUnexpectedEOF)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "Failed to decode") {
		t.Errorf("logged: %s", got)
	}
}
