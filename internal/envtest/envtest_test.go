package envtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/kubenames"
)

const server = "--etcd-servers=http://127.0.0.1:2379"

func TestParseAPIServer(t *testing.T) {
	a, err := ParseAPIServer([]string{
		server, "--secure-port", "0", "--bind-address=127.0.0.1", "--authorization-mode=Node,RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://127.0.0.1:1/", "--allow-privileged", "--feature-gates=kube:A=true,B=false", "--runtime-config=api/ga=true,batch/v1=true", "--etcd-cafile=../../config/testdata/files/ca.crt",
		"--audit-log-path=-", "--audit-log-maxsize=5", "--audit-log-maxbackup=0", "-v", "4", "--encryption-provider-config=", "--tracing-config-file=",
		"--request-timeout=60s", "--allow-privileged=1", "--etcd-compaction-interval=0", "--delete-collection-workers=2",
	}, "namespace, -job")
	if err != nil {
		t.Fatal(err)
	}
	c := a.Config
	if c.Listen != "127.0.0.1:0" || c.AdminListen != "" || c.Authorization.Mode != config.AuthorizeNodes || !c.Authentication.Anonymous ||
		c.Authentication.ServiceAccounts.Issuer != "https://127.0.0.1:1/" || c.Audit.MaxSize != 5<<20 || c.Audit.MaxBackups != 10000 || len(c.Etcd.Servers) != 1 || c.Shutdown.Drain != 0 ||
		!slices.Equal(c.Controllers, []string{"namespace", "-job"}) || a.Further.HistoryAge != -1 {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(a.FeatureGates, []string{"A=true", "B=false"}) || !slices.Equal(a.Ignored, []string{"--delete-collection-workers", "--v"}) {
		t.Errorf("gates %v, ignored %v", a.FeatureGates, a.Ignored)
	}
}

// TestAuthorizationDefaults checks that kube-apiserver's defaults apply: everything is allowed, but not
// to anonymous clients.
func TestAuthorizationDefaults(t *testing.T) {
	for _, args := range [][]string{{server}, {server, "--anonymous-auth=true", "--authorization-mode=RBAC,AlwaysAllow"}} {
		a, err := ParseAPIServer(args, "")
		if err != nil || !slices.Contains(a.Config.Authorization.Modes(), config.AuthorizeAlways) || a.Config.Authentication.Anonymous {
			t.Errorf("%v: %+v, %v", args, a, err)
		}
	}
}

func TestCertDir(t *testing.T) {
	dir := t.TempDir()
	a, err := ParseAPIServer([]string{server, "--cert-dir", dir}, "")
	if err != nil || a.Config.TLS.CertFile != "" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, name := range []string{"apiserver.crt", "apiserver.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("junk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ParseAPIServer([]string{server, "--cert-dir", dir}, ""); err == nil || !strings.Contains(err.Error(), "apiserver.crt") {
		t.Error(err)
	}
}

func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "--etcd-servers must be specified",
		"pods":                                   `unexpected argument "pods": kube-apiserver takes flags only`,
		"--insecure-port=0":                      "--insecure-port is not a flag of kube-apiserver; did you mean --secure-port?",
		"--cloud-provider=x":                     "--cloud-provider is not a flag of kube-apiserver; see kube-apiserver --help",
		"--secure-prt=1":                         "--secure-prt is not a flag of kube-apiserver; did you mean --secure-port?",
		"--secure-port":                          "--secure-port needs a value",
		server + " --authorization-mode=Webhook": "--authorization-mode needs --authorization-webhook-config-file, because it has the mode Webhook",
		server + " --authorization-mode=ABAC":    "--authorization-mode must be of RBAC, Node, Webhook, AlwaysAllow, AlwaysDeny, not \"ABAC\"",
		server + " --authorization-policy-file=x":                                          "--authorization-policy-file is not supported: there is no authorization mode ABAC",
		server + " --authorization-mode=RBAC --authorization-config=x":                     "--authorization-config cannot be set together with --authorization-mode",
		server + " --authorization-mode=Webhook --authorization-webhook-config-file=/none": "--authorization-webhook-config-file cannot be used: /none does not exist",
		server + " --bind-address=localhost":                                               `--bind-address must be an IP address, not "localhost"`,
		server + " --secure-port=https":                                                    `--secure-port must be a port, not "https"`,
		server + " --audit-log-maxsize=5Mi":                                                `--audit-log-maxsize must be a number, not "5Mi"`,
		server + " --request-timeout=5s":                                                   `--request-timeout must be 1m0s, not "5s": requests have this timeout`,
		server + " --allow-privileged=false":                                               `--allow-privileged must be true, not "false": pods may be privileged`,
		server + " --etcd-compaction-interval=-1s":                                         `--etcd-compaction-interval must be a duration such as 5m, or 0 for no compaction, not "-1s"`,
		server + " --admission-control=X":                                                  `--admission-control must name admission plugins, and there is no "X"; there are ` + strings.Join(kubenames.AdmissionPlugins(), ", "),
		server + " --enable-admission-plugins=Prioriti":                                    `--enable-admission-plugins must name admission plugins, and there is no "Prioriti"; did you mean "Priority"?`,
		server + " --disable-http2-serving":                                                "--disable-http2-serving is not supported: HTTP/2 is served",
		server + " --service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24":                     `--service-cluster-ip-range must be one CIDR, or one of IPv4 and one of IPv6, not "10.0.0.0/24,10.1.0.0/24"`,
		server + " --service-account-issuer=https://a --service-account-issuer=":           "--service-account-issuer must not be empty",
		server + " --service-account-max-token-expiration=1m":                              `--service-account-max-token-expiration must be a duration between 1h and 2^32 seconds, not "1m"`,
		server + " --admission-control= --disable-admission-plugins=ServiceAccount":        "--admission-control cannot be set together with --enable-admission-plugins or --disable-admission-plugins",
		server + " --requestheader-client-ca-file=/none":                                   "--requestheader-client-ca-file must be a file of certificates: open /none: no such file or directory",
		server + " --requestheader-client-ca-file=../../config/testdata/files/ca.crt --client-ca-file=../../config/testdata/files/ca.crt": "--requestheader-allowed-names must be set, because --requestheader-client-ca-file and --client-ca-file have a certificate in common",
		server + " --proxy-client-cert-file=/none":                             "--proxy-client-cert-file and --proxy-client-key-file must be files of a certificate and of its key: open /none: no such file or directory",
		server + " --kubelet-client-key=/none":                                 "--kubelet-client-certificate and --kubelet-client-key must be files of a certificate and of its key: open : no such file or directory",
		server + " --kubelet-certificate-authority=/none":                      "--kubelet-certificate-authority must be a file of certificates: open /none: no such file or directory",
		server + " --service-account-jwks-uri=http://a":                        `--service-account-jwks-uri must be a URL that begins with https://, not "http://a"`,
		server + " --authorization-mode=RBAC --service-account-key-file=/none": "--service-account-key-file cannot be used: /none does not exist",
	} {
		if _, err := ParseAPIServer(strings.Fields(args), ""); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", args, err, want)
		}
	}
	if _, err := ParseAPIServer([]string{server}, "namespaces"); err == nil || err.Error() != `KUBEWEIR_CONTROLLERS must name controllers, and there is no "namespaces"; did you mean "namespace"?` {
		t.Error(err)
	}
	for _, args := range []string{"pods", "--listen-client-urls=https://127.0.0.1:1", "--data-dir="} {
		if e, err := ParseEtcd(strings.Fields(args)); err == nil {
			t.Errorf("%s: %+v", args, e)
		}
	}
}

// serve runs an etcd and returns its URL.
func serve(t *testing.T, onDisk bool) string {
	t.Helper()
	e, err := ParseEtcd([]string{"--data-dir", t.TempDir(), "--listen-client-urls=http://127.0.0.1:0,http://127.0.0.1:1", "--unsafe-no-fsync"})
	if err != nil || !slices.Equal(e.Ignored, []string{"--unsafe-no-fsync"}) {
		t.Fatal(e, err)
	}
	e.OnDisk = onDisk
	ctx, stop := context.WithCancel(t.Context())
	addr, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- e.Serve(ctx, func(a net.Addr) { addr <- a }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + (<-addr).String()
}

func TestStoreInMemoryHasOneUser(t *testing.T) {
	url := serve(t, false)
	first, err := FindStore(t.Context(), []string{url})
	if err != nil || !first.StandIn || first.DataDir != "" {
		t.Fatal(first, err)
	}
	if second, err := FindStore(t.Context(), []string{url}); err == nil {
		t.Errorf("%+v", second)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) { // until etcd has seen the end
		again, err := FindStore(t.Context(), []string{url})
		if err == nil {
			_ = again.Close()
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

// TestNoEtcd checks that the error says what happened, after the attempts of a few seconds.
func TestNoEtcd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	_, err = FindStore(t.Context(), []string{"http://" + l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "refused") || !strings.HasSuffix(err.Error(), "is etcd running?") {
		t.Error(err)
	}
}

// TestHonoredFlags checks that each honored flag is read.
func TestHonoredFlags(t *testing.T) {
	source, err := os.ReadFile("apiserver.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Flags() {
		if f.Effect == Honored && !strings.Contains(string(source), `"`+f.Name+`"`) {
			t.Errorf("--%s is not read", f.Name)
		}
	}
}

func TestStoreOnDisk(t *testing.T) {
	url := serve(t, true)
	for range 2 {
		s, err := FindStore(t.Context(), []string{url})
		if err != nil || !s.StandIn || !filepath.IsAbs(s.DataDir) {
			t.Fatal(s, err)
		}
		defer func() { _ = s.Close() }()
	}
}

func TestFillAssets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "assets")
	program := filepath.Join(t.TempDir(), "kubeweir")
	t.Setenv("PATH", dir) // a kubectl of an earlier call does not count
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "etcd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := FillAssets(other, program); err == nil || errors.Is(err, ErrNoKubectl) {
		t.Errorf("a file of somebody else was replaced: %v", err)
	}
	for range 2 {
		if err := FillAssets(dir, program); !errors.Is(err, ErrNoKubectl) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(program), "kubectl"+suffix()), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := FillAssets(dir, program); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if _, err := os.Lstat(filepath.Join(dir, name+suffix())); err != nil {
			t.Error(err)
		}
	}
}

func TestFillAssetsOfGoRun(t *testing.T) {
	for program, want := range map[string]bool{
		"/tmp/go-build123/b001/exe/kubeweir": true, "/home/me/.cache/go-build/0a/0a1-d/kubeweir": true,
		"/src/go-builder/kubeweir": false, "/src/kubeweir/bin/go-build1": false,
	} {
		if got := isOfGoRun(program); got != want {
			t.Errorf("%s: %v", program, got)
		}
	}
	dir := filepath.Join(t.TempDir(), "assets")
	if err := FillAssets(dir, "/tmp/go-build123/b001/exe/kubeweir"); err == nil || !strings.Contains(err.Error(), "build the program first: go build") {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the folder was made")
	}
}

var update = flag.Bool("update", false, "write docs/envtest.md")

// TestFlagsAreDocumented compares the flags in docs/envtest.md with flags.txt.
func TestFlagsAreDocumented(t *testing.T) {
	const page, begin, end = "../../docs/envtest.md", "<!-- flags -->\n", "<!-- end of flags -->\n"
	var honored, ignored, rejected strings.Builder
	for _, f := range Flags() {
		switch f.Effect {
		case Honored:
			fmt.Fprintf(&honored, "`--%s` ", f.Name)
		case Fixed:
			fmt.Fprintf(&rejected, "| `--%s`, unless it is `%s` | %s |\n", f.Name, f.Value, f.Reason)
		case Rejected:
			fmt.Fprintf(&rejected, "| `--%s` | %s |\n", f.Name, f.Reason)
		case Ignored:
			fmt.Fprintf(&ignored, "`--%s` ", f.Name)
		}
	}
	want := "\nHonored: " + strings.TrimSpace(honored.String()) + "\n\nWithout effect: " + strings.TrimSpace(ignored.String()) + "\n\n| rejected | reason |\n|---|---|\n" + rejected.String() + "\n"
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(content), begin)
	got, after, found := strings.Cut(rest, end)
	switch {
	case !found:
		t.Fatalf("%s has no flags", page)
	case got == want:
	case !*update:
		t.Errorf("%s is not current; run this test with -update", page)
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
