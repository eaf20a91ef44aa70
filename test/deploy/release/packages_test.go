package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchive unpacks the archive and runs the program in it.
func TestArchive(t *testing.T) {
	root := t.TempDir()
	command(t, "tar", "-xzf", file(t, prefix+"tar.gz"), "-C", root)
	dir := filepath.Join(root, strings.TrimSuffix(prefix, "."))
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "THIRD_PARTY_LICENSES", "man/kubeweir.1", "man/kubeweir-gateway.1",
		"completions/kubeweir.bash", "completions/_kubeweir", "completions/kubeweir.fish", "completions/kubeweir.ps1"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is not in the archive, or empty: %v", name, err)
		}
	}
	if version := command(t, filepath.Join(dir, "kubeweir"), "version"); !strings.Contains(version, "v0.0.1-test.1") {
		t.Errorf("kubeweir version: %s", version)
	}
	if texts := string(read(t, dir, "THIRD_PARTY_LICENSES")); !strings.Contains(texts, "k8s.io/kubernetes@v") || !strings.Contains(texts, "the Go standard library") {
		t.Error("THIRD_PARTY_LICENSES names neither Kubernetes nor Go")
	}
}

// TestChecksums verifies the files against SHA256SUMS.
func TestChecksums(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = filepath.Dir(file(t, "SHA256SUMS"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") < 6 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDebian installs the package into an empty root, changes its configuration, installs it again,
// removes it, and purges it.
func TestDebian(t *testing.T) {
	root := emptyRoot(t)
	deb := file(t, prefix+"deb")
	dpkg := func(args ...string) {
		t.Helper()
		command(t, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--force-confold", "--log=/dev/null"}, args...)...)
	}
	dpkg("--install", deb)
	expectUser(t, root)
	if version := command(t, filepath.Join(root, "usr/bin/kubeweir"), "version"); !strings.Contains(version, "v0.0.1-test.1") {
		t.Errorf("kubeweir version: %s", version)
	}
	const ours = "listen: 127.0.0.1:7443\n"
	settings := filepath.Join(root, "etc/kubeweir/gateway.yaml")
	if err := os.WriteFile(settings, []byte(ours), 0o640); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(root, "var/lib/kubeweir/object")
	if err := os.WriteFile(object, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb)
	dpkg("--remove", "kubeweir")
	if got := string(read(t, settings)); got != ours {
		t.Errorf("a changed configuration is %q after an upgrade and a removal", got)
	}
	expectGone(t, filepath.Join(root, "usr/bin/kubeweir"), false)
	expectGone(t, object, true)
	dpkg("--purge", "kubeweir")
	expectGone(t, filepath.Join(root, "etc/kubeweir/gateway.yaml"), false)
	expectGone(t, filepath.Join(root, "var/lib/kubeweir"), false)
}

// emptyRoot returns a root that looks to dpkg like a machine without packages.
func emptyRoot(t *testing.T) string {
	t.Helper()
	debian(t, "dpkg", "dpkg")
	root := t.TempDir()
	for _, dir := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:1::::::\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func expectUser(t *testing.T, root string) {
	t.Helper()
	passwd := string(read(t, root, "etc/passwd"))
	if strings.Count(passwd, "\nkubeweir:") != 1 || !strings.Contains(passwd, "/usr/sbin/nologin") {
		t.Errorf("/etc/passwd after installing:\n%s", passwd)
	}
}

func expectGone(t *testing.T, path string, there bool) {
	t.Helper()
	if _, err := os.Lstat(path); (err == nil) != there {
		t.Errorf("%s: exists: %v, want %v (%v)", path, err == nil, there, err)
	}
}

// TestDebianControl checks the package's metadata.
func TestDebianControl(t *testing.T) {
	debian(t, "dpkg-deb", "dpkg")
	deb := file(t, prefix+"deb")
	for _, want := range []string{"Package: kubeweir", "Version: 0.0.1~test.1", "Architecture: amd64", "Maintainer: ", "Pre-Depends: passwd"} {
		if fields := command(t, "dpkg-deb", "--field", deb); !strings.Contains(fields, want) {
			t.Errorf("no %q in\n%s", want, fields)
		}
	}
	files := command(t, "dpkg-deb", "--contents", deb)
	for name, want := range map[string]string{
		"./etc/kubeweir/":                                   "drwxr-x--- root/kubeweir",
		"./etc/kubeweir/gateway.yaml":                       "-rw-r----- root/kubeweir",
		"./var/lib/kubeweir/":                               "drwx------ kubeweir/kubeweir",
		"./usr/bin/kubeweir":                                "-rwxr-xr-x root/root",
		"./usr/lib/systemd/system/kubeweir-gateway.service": "-rw-r--r-- root/root",
		"./usr/share/man/man1/kubeweir.1.gz":                "-rw-r--r-- root/root",
	} {
		if !hasLine(files, want, name) {
			t.Errorf("no %s %s in\n%s", want, name, files)
		}
	}
	if got := command(t, "dpkg-deb", "--info", deb, "conffiles"); got != "/etc/kubeweir/gateway.yaml\n/etc/kubeweir/standalone.yaml\n" {
		t.Errorf("conffiles:\n%s", got)
	}
}

// TestRPM checks the package with rpm.
func TestRPM(t *testing.T) {
	debian(t, "rpm", "rpm")
	rpm := file(t, prefix+"rpm")
	if out := command(t, "rpm", "--checksig", "--nosignature", rpm); !strings.Contains(out, "digests OK") {
		t.Errorf("rpm --checksig: %s", out)
	}
	files := command(t, "rpm", "--query", "--package", "--list", "--verbose", rpm)
	for name, want := range map[string]string{
		"/etc/kubeweir/standalone.yaml":                       "-rw-r-----",
		"/usr/bin/kubeweir":                                   "-rwxr-xr-x",
		"/var/lib/kubeweir":                                   "drwx------",
		"/usr/lib/systemd/system/kubeweir-standalone.service": "-rw-r--r--",
	} {
		if !hasLine(files, want, name) {
			t.Errorf("no %s %s in\n%s", want, name, files)
		}
	}
	query := command(t, "rpm", "--query", "--package", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE}", rpm)
	if query != "kubeweir 0.0.1~test.1 1 x86_64 Apache-2.0" {
		t.Errorf("the package's query output is %q", query)
	}
	if got := command(t, "rpm", "--query", "--package", "--configfiles", rpm); got != "/etc/kubeweir/gateway.yaml\n/etc/kubeweir/standalone.yaml\n" {
		t.Errorf("configuration files:\n%s", got)
	}
	for _, script := range []string{"preinstall", "postinstall", "preuninstall", "postuninstall"} {
		if got := command(t, "rpm", "--query", "--package", "--scripts", rpm); !strings.Contains(got, script+" scriptlet") {
			t.Errorf("no %s scriptlet", script)
		}
	}
}

func hasLine(lines, start, end string) bool {
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, start) && strings.HasSuffix(line, " "+end) {
			return true
		}
	}
	return false
}

// TestUnits verifies the systemd units and their security settings.
func TestUnits(t *testing.T) {
	debian(t, "systemd-analyze", "systemd")
	debian(t, "dpkg-deb", "dpkg")
	root := t.TempDir()
	command(t, "dpkg-deb", "--extract", file(t, prefix+"deb"), root)
	for _, name := range []string{"kubeweir-gateway.service", "kubeweir-standalone.service"} {
		unit := filepath.Join(root, "usr/lib/systemd/system", name)
		// The program is at the path in the unit, but below another root.
		text := strings.ReplaceAll(string(read(t, unit)), "/usr/bin/kubeweir", filepath.Join(root, "usr/bin/kubeweir"))
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := command(t, "systemd-analyze", "verify", "--man=no", unit); out != "" {
			t.Errorf("%s:\n%s", name, out)
		}
		// The threshold 20 means 2.0 of the 10 that a service without any restrictions has.
		command(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit)
	}
}

// TestConfigurationFilesAreValid checks each configuration file of the package, as far as possible
// without its folders.
func TestConfigurationFilesAreValid(t *testing.T) {
	debian(t, "dpkg-deb", "dpkg")
	root := t.TempDir()
	command(t, "dpkg-deb", "--extract", file(t, prefix+"deb"), root)
	program := filepath.Join(root, "usr/bin/kubeweir")
	for _, mode := range []string{"gateway", "standalone"} {
		command(t, program, "config", "check", "--skip-files", filepath.Join(root, "etc/kubeweir", mode+".yaml"))
	}
}
