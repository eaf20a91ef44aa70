package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

var rewrite = flag.Bool("rewrite", false, "write the messages of bad files that have none yet")

// inPod makes a kubeconfig unnecessary.
func inPod(t testing.TB) { t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1") }

func TestGoodFiles(t *testing.T) {
	inPod(t)
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if _, err := Parse([]string{"--config", file}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestBadFiles: beside each X.bad.yaml is the message in X.bad.txt.
func TestBadFiles(t *testing.T) {
	inPod(t)
	badFiles(t, "testdata/*.bad.yaml", 20, func(args []string) error {
		_, err := Parse(args)
		return err
	})
}

func badFiles(t *testing.T, pattern string, least int, parse func(args []string) error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".bad.yaml"), func(t *testing.T) {
			err := parse([]string{"--config", file})
			if err == nil {
				t.Fatal("accepted")
			}
			expected := strings.TrimSuffix(file, ".yaml") + ".txt"
			want, readErr := os.ReadFile(expected)
			if *rewrite && errors.Is(readErr, os.ErrNotExist) {
				want, readErr = []byte(err.Error()+"\n"), os.WriteFile(expected, []byte(err.Error()+"\n"), 0o644)
			}
			if readErr != nil {
				t.Fatal(readErr)
			}
			if err.Error()+"\n" != string(want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
			checkSentence(t, err)
			if !strings.HasPrefix(err.Error(), file+":") {
				t.Errorf("%q does not say where", err)
			}
		})
	}
}

// checkSentence: one line, without the traces of libraries.
func checkSentence(t *testing.T, err error) {
	t.Helper()
	for _, trace := range []string{"\n", "reflect", "yaml: ", "!!", "strconv", "unmarshal", "%!"} {
		if strings.Contains(err.Error(), trace) {
			t.Errorf("%q holds %q", err, trace)
		}
	}
}

func TestBadFlags(t *testing.T) {
	const kubeconfig = "--kubeconfig=testdata/files/kubeconfig"
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "--kubeconfig is not set and this is not a pod; give the kubeconfig of the cluster"},
		{[]string{"--kubeconfig"}, "--kubeconfig needs a value: a string"},
		{[]string{"--kubeconfig", "/dev/zero"}, "--kubeconfig must be a file, and /dev/zero is a device"},
		{[]string{"--kubeconfig", "testdata/nothing"}, "--kubeconfig cannot be used: testdata/nothing does not exist"},
		{[]string{"--kubeconfg=x"}, "--kubeconfg is not a flag; did you mean --kubeconfig?"},
		{[]string{"--replicas=3"}, "--replicas is not a flag; see kubeweir gateway --help"},
		{[]string{"-k", "x"}, "-k is not a flag; see kubeweir gateway --help"},
		{[]string{"-listen", "x"}, "-listen is not a flag; did you mean --listen?"},
		{[]string{"--=x"}, "--=x is not a flag; see kubeweir gateway --help"},
		{[]string{kubeconfig, "start"}, `unexpected argument "start"; settings are given as flags, see kubeweir gateway --help`},
		{[]string{kubeconfig, "--anonymous-auth=maybe"}, `--anonymous-auth must be true or false, not "maybe"`},
		{[]string{kubeconfig, "--max-watches=many"}, `--max-watches must be a whole number, not "many"`},
		{[]string{kubeconfig, "--max-watches=99999999999999999999"}, `--max-watches must be a whole number, not "99999999999999999999"`},
		{[]string{kubeconfig, "--history-age=600"}, `--history-age must be a duration such as "30s" or "10m", not "600"`},
		{[]string{kubeconfig, "--history-bytes=64MB"}, `--history-bytes must be a size in bytes such as "64Mi" or "1000000", not "64MB"`},
		{[]string{kubeconfig, "--consistency=eventual"}, `--consistency must be strict or session, not "eventual"`},
		{[]string{kubeconfig, "--log-level=loud"}, `--log-level must be debug, info, warn or error, not "loud"`},
		{[]string{kubeconfig, "--listen=8443"}, `--listen must be a host:port such as 127.0.0.1:8443 or [::]:8443, not "8443"`},
		{[]string{kubeconfig, "--listen="}, "--listen must not be empty without --insecure-listen; give a host:port such as 127.0.0.1:8443"},
		{[]string{kubeconfig, "--insecure-listen=10.0.0.1:80"}, `--insecure-listen must be a loopback address or a unix socket, not "10.0.0.1:80": everyone who reaches it has the gateway's own rights`},
		{[]string{kubeconfig, "--insecure-listen=example.com:80"}, `--insecure-listen must be a loopback address or a unix socket, not "example.com:80": everyone who reaches it has the gateway's own rights`},
		{[]string{kubeconfig, "--insecure-listen=unix"}, `--insecure-listen must be a loopback host:port such as 127.0.0.1:8080, or unix:/path, not "unix"`},
		{[]string{kubeconfig, "--admin-listen=127.0.0.1:8443"}, "--admin-listen is 127.0.0.1:8443, as --listen is; give each listener its own"},
		{[]string{kubeconfig, "--tls-cert-file=testdata/files/tls.crt"}, "--tls-cert-file is set without --tls-private-key-file; give both or none"},
		{[]string{kubeconfig, "--tls-min-version=VersionTLS11"}, `--tls-min-version must be VersionTLS12 or VersionTLS13, not "VersionTLS11"`},
		{[]string{kubeconfig, "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA"}, `--tls-cipher-suites has no cipher suite of TLS 1.2 that is called "TLS_RSA_WITH_RC4_128_SHA"` + cipherSuitesThereAre},
		{[]string{kubeconfig, "--tls-cipher-suites=TLS_AES_128_GCM_SHA256"}, `--tls-cipher-suites has no cipher suite of TLS 1.2 that is called "TLS_AES_128_GCM_SHA256"` + cipherSuitesThereAre},
		{[]string{kubeconfig, "--tls-private-key-file=testdata/files/tls.key"}, "--tls-private-key-file is set without --tls-cert-file; give both or none"},
		{[]string{kubeconfig, "--client-ca-file=testdata/files/junk"}, "--client-ca-file must be a file of certificates in PEM, and testdata/files/junk is not: it has none"},
		{[]string{kubeconfig, "--requestheader-client-ca-file=testdata/files/tls.key"}, "--requestheader-client-ca-file must be a file of certificates in PEM, and testdata/files/tls.key is not: it has none"},
		{[]string{kubeconfig, "--tls-cert-file=testdata/files/junk", "--tls-private-key-file=testdata/files/tls.key"}, "--tls-cert-file must be a file of certificates in PEM, and testdata/files/junk is not: it has none"},
		{[]string{kubeconfig, "--tls-cert-file=testdata/files/tls.crt", "--tls-private-key-file=testdata/files/junk"}, "--tls-private-key-file must be the file of the private key of testdata/files/tls.crt, in PEM, and testdata/files/junk is not: failed to find any PEM data in key input"},
		{[]string{kubeconfig, "--tls-cert-file=testdata/files/tls.crt", "--tls-private-key-file=testdata/files/other.key"}, "--tls-private-key-file must be the file of the private key of testdata/files/tls.crt, in PEM, and testdata/files/other.key is not: private key does not match public key"},
		{[]string{kubeconfig, "--service-account-dir=d", "--listen=:8443"}, `--service-account-dir needs a loopback address in --listen, such as 127.0.0.1:8443, not ":8443": its token has the gateway's own rights`},
		{[]string{kubeconfig, "--service-account-dir=d", "--listen=", "--insecure-listen=127.0.0.1:0"}, `--service-account-dir needs a loopback address in --listen, such as 127.0.0.1:8443, not "": its token has the gateway's own rights`},
		{[]string{kubeconfig, "--service-account-dir=d", "--tls-cert-file=testdata/files/tls.crt", "--tls-private-key-file=testdata/files/tls.key"}, "--service-account-dir needs a certificate that the gateway makes itself; leave out --tls-cert-file"},
		{[]string{kubeconfig, "--max-header-bytes=100Mi"}, "--max-header-bytes must be at most 16Mi, not 100Mi"},
		{[]string{kubeconfig, "--sidecar-hosts=a,b:1"}, `--sidecar-hosts must hold host names without port, not "b:1"`},
		{[]string{kubeconfig, "--requestheader-allowed-names=a"}, "--requestheader-allowed-names has no effect without --requestheader-client-ca-file; set that too"},
		{[]string{"--config", ""}, "--config must name a file"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/nothing"}, "--tracing-config-file cannot be used: testdata/files/nothing does not exist"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files"}, "--tracing-config-file must be a file, and testdata/files is a directory"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/junk"}, "--tracing-config-file cannot be used: testdata/files/junk is not a TracingConfiguration of apiserver.config.k8s.io/v1: it has no apiVersion and kind"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/tracing-syntax.yaml"}, "--tracing-config-file cannot be used: testdata/files/tracing-syntax.yaml is not YAML: line 2: mapping values are not allowed in this context"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/tracing-field.yaml"}, "--tracing-config-file cannot be used: testdata/files/tracing-field.yaml is not a TracingConfiguration of apiserver.config.k8s.io/v1: strict decoding error: unknown field \"samplingRate\""},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/tracing-rate.yaml"}, "--tracing-config-file cannot be used: testdata/files/tracing-rate.yaml is invalid: samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million"},
		{[]string{kubeconfig, "--tracing-config-file=testdata/files/tracing-scheme.yaml"}, "--tracing-config-file cannot be used: testdata/files/tracing-scheme.yaml is invalid: endpoint: Invalid value: \"https://127.0.0.1:4317\": unsupported scheme: https.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"},
		{[]string{"--config", "testdata/nothing.yaml"}, "--config: testdata/nothing.yaml does not exist"},
		{[]string{"--config", "testdata"}, "--config: testdata cannot be read: is a directory"},
		// If a flag overrides a field of the file, the error names the flag. It names the other
		// field as the file has it.
		{[]string{"--config", "testdata/minimal.good.yaml", "--listen=x"}, `--listen must be a host:port such as 127.0.0.1:8443 or [::]:8443, not "x"`},
		{[]string{"--config", "testdata/full.good.yaml", "--audit-log-path=-", "--tls-cert-file="}, "testdata/full.good.yaml:12: tls.privateKeyFile is set without --tls-cert-file; give both or none"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			_, err := Parse(test.args)
			if err == nil || err.Error() != test.want {
				t.Fatalf("got  %v\nwant %s", err, test.want)
			}
			checkSentence(t, err)
		})
	}
}

func TestPlainFileError(t *testing.T) {
	for err, want := range map[error]string{
		&os.PathError{Op: "open", Path: "x", Err: os.ErrPermission}: "x may not be read",
		&os.PathError{Op: "open", Path: "x", Err: os.ErrNotExist}:   "x does not exist",
		&os.PathError{Op: "read", Path: "x", Err: os.ErrClosed}:     "x cannot be read: file already closed",
	} {
		if got := plainFileError("x", err); got.Error() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func TestLargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, []byte(strings.Repeat("# x\n", maxFileBytes/4+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse([]string{"--config", file}); err == nil || !strings.Contains(err.Error(), "larger than 1Mi") {
		t.Errorf("err = %v", err)
	}
}

func TestDefaults(t *testing.T) {
	inPod(t)
	for _, args := range [][]string{nil, {"--config", "testdata/empty.good.yaml"}, {"--config", "testdata/null.good.yaml"}} {
		g, err := Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(g, Default()) {
			t.Errorf("%v: %+v", args, g)
		}
	}
}

// TestEveryFieldHasAFlag, but rules, which flags cannot say.
func TestEveryFieldHasAFlag(t *testing.T) {
	for _, c := range []configuration{Default(), DefaultStandalone()} {
		everyFieldHasAFlag(t, c.program())
	}
}

func everyFieldHasAFlag(t *testing.T, p *program) {
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if f.Anonymous {
					walk(v.Field(i), path)
					continue
				}
				if fieldName(f) == "" {
					t.Errorf("%s.%s has no name", path, f.Name)
				}
				walk(v.Field(i), join(path, fieldName(f)))
			}
			return
		}
		i := slices.IndexFunc(p.settings(), func(s setting) bool { return s.path == path })
		if i < 0 {
			t.Errorf("%s: %s has no flag", p.name, path)
		} else if p.settings()[i].value != v.Addr().Interface() {
			t.Errorf("%s: --%s sets another field than %s", p.name, p.settings()[i].flag, path)
		}
	}
	walk(reflect.ValueOf(p.document).Elem(), "")
	flags := make(map[string]bool)
	for _, s := range p.settings() {
		if flags[s.flag] && s.flag != "" {
			t.Errorf("%s: --%s twice", p.name, s.flag)
		}
		flags[s.flag] = true
	}
}

const cipherSuitesThereAre = "; there are TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, " +
	"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, " +
	"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, " +
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"

// TestFullFile: the file sets every field, to something else than the default,
// and each flag wins over it.
func TestFullFile(t *testing.T) {
	const file = "testdata/full.good.yaml"
	g, err := Parse([]string{"--config", file})
	if err != nil {
		t.Fatal(err)
	}
	def := Default().program().settings()
	for i, s := range g.program().settings() {
		if s.path == "serviceAccountDir" || s.path == clustersPath || strings.HasPrefix(s.path, profilesPath+".") { // go without a certificate of one's own, without a kubeconfig; with files of their own
			continue
		}
		if reflect.DeepEqual(s.value, def[i].value) {
			t.Errorf("%s is %v, the default", s.path, getText(reflect.ValueOf(s.value).Elem()))
		}
	}
	wantRules := []Rule{
		{Match: Match{Users: []string{"alice", "system:serviceaccount:ci:*"}, Groups: []string{"admins"}, UserAgents: []string{"Headlamp*", "k9s*"},
			Resources: []string{"pods", "deployments.apps"}}, Consistency: Strict},
		{Match: Match{UserAgents: []string{"*"}}, Consistency: Session, Coalesce: NoWindow, WatchBytesPerSecond: 100_000,
			UpstreamRequestsPerSecond: 5, UpstreamBytesPerSecond: 10_000_000, OverBudget: CachedOverBudget},
		{Match: Match{Users: []string{"mallory"}}, Block: On},
		{Match: Match{Groups: []string{"system:nodes"}}, Offline: Deny},
	}
	if !reflect.DeepEqual(g.Rules, wantRules) {
		t.Errorf("rules %+v", g.Rules)
	}
	if g.Kubeconfig != "testdata/files/kubeconfig" || g.Audit.Path != "testdata/audit.log" {
		t.Errorf("paths %q, %q are not relative to the file", g.Kubeconfig, g.Audit.Path)
	}
	if g.Limits.CollapsedBodyBytes != 3<<29 || g.Limits.SnapshotBytes != 100_000_000 || g.Limits.IdleCollectionTimeout != 90*time.Minute {
		t.Errorf("%+v", g.Limits)
	}

	// All flags with their defaults, which the file does not have.
	args := []string{"--config", file}
	for i, s := range def {
		switch s.path {
		case "kubeconfig", "context", // must go together
			rulesPath, clustersPath: // have no flag
			continue
		}
		args = append(args, "--"+def[i].flag+"="+getText(reflect.ValueOf(s.value).Elem()))
	}
	args = slices.DeleteFunc(args, func(a string) bool {
		return strings.HasSuffix(a, "-names=") || strings.HasSuffix(a, "-hosts=") || strings.HasSuffix(a, "-servers=") || strings.HasSuffix(a, "-groups=") || strings.HasSuffix(a, "-fields=") || strings.HasSuffix(a, "-exclude=") || strings.HasSuffix(a, "-suites=")
	})
	args = append(args, "--requestheader-client-ca-file=testdata/files/ca.crt")
	g, err = Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range g.program().settings() {
		switch s.path {
		case "kubeconfig", "context", rulesPath, "sidecarHosts", "upstreamServers", "cacheAggregatedGroups", "dropManagedFields", "state.exclude", "tls.cipherSuites", "authentication.requestHeader.allowedNames", "authentication.requestHeader.caFile":
			continue
		}
		if !reflect.DeepEqual(s.value, def[i].value) {
			t.Errorf("--%s did not win: %v", s.flag, getText(reflect.ValueOf(s.value).Elem()))
		}
	}
}

func TestListsOfFlags(t *testing.T) {
	inPod(t)
	g, err := Parse([]string{"--sidecar-hosts", "a, b", "--sidecar-hosts=c", "--anonymous-auth"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.SidecarHosts, []string{"a", "b", "c"}) || !g.Authentication.Anonymous {
		t.Errorf("%q, %v", g.SidecarHosts, g.Authentication.Anonymous)
	}
}

func TestAliases(t *testing.T) {
	inPod(t)
	g, err := Parse([]string{"--config", "testdata/anchors.good.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Headlamp*", "k9s*"}; !slices.Equal(g.Rules[0].UserAgents, want) || !slices.Equal(g.Rules[1].UserAgents, want) {
		t.Errorf("%+v", g.Rules)
	}
}

func TestHelp(t *testing.T) {
	if _, err := Parse([]string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("err = %v", err)
	}
	help := GatewayFlags().Set().FlagUsages()
	for _, s := range Default().program().settings() {
		if s.flag != "" && !strings.Contains(help, "--"+s.flag+" ") {
			t.Errorf("--%s is not in the help", s.flag)
		}
	}
}

func TestBytesString(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1536: "1536", 64 << 20: "64Mi", 1 << 30: "1Gi", 3 << 29: "1536Mi", -1024: "-1Ki"} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
		if n, ok := parseBytes(want); !ok || n != int64(b) {
			t.Errorf("%s is read as %d, %v", want, n, ok)
		}
	}
}

// FuzzFile: any file is read or refused in one sentence.
func FuzzFile(f *testing.F) {
	for _, pattern := range []string{"testdata/*.good.yaml", "testdata/*.bad.yaml", "testdata/standalone/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content)
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("<<: {listen: x}"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("log: {level: !x \"a\\nb\"}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		inPod(t)
		for _, c := range []configuration{Default(), DefaultStandalone()} {
			p := c.program()
			r := &fileReader{name: "f", lines: make(map[string]int)}
			r.parse(content, p)
			errs := r.errs
			if len(errs) == 0 {
				o := newOrigins(p)
				o.file = r
				p.check(o)
				errs = o.errs
			}
			for _, err := range errs {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%q", err)
				}
			}
		}
	})
}
