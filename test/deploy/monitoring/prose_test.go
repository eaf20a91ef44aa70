package monitoring

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// typed maps the commands in the sentences and console blocks of the runbooks and of
// troubleshooting.md to the commands that the test runs instead: with names in place of
// placeholders, and with shorter timeouts. "" means unchanged.
var typed = map[string]string{
	"kubectl -n kubeweir describe replicasets --show-events":                     "",
	"kubectl -n kubeweir describe pods --show-events":                            "",
	"kubectl -n kubeweir get pods -o wide":                                       "",
	"kubectl auth can-i list RESOURCE --all-namespaces --as NAME_OF_THE_GATEWAY": "kubectl auth can-i list pods --all-namespaces --as kubeweir | grep -x no",
	"kubectl auth whoami":                              "",
	"kubectl delete events --all --all-namespaces":     "",
	"kubectl get apiservices":                          "",
	"kubeweir rbac":                                    "",
	"kubeweir verify":                                  `kubeweir verify --admin "$ADMIN"`,
	"kubeweir top":                                     `kubeweir top --admin "$ADMIN"`,
	"kubectl -n kubeweir exec POD -- /kubeweir verify": kubelet,
	"curl -k https://ADDRESS/livez":                    "curl -sSf -k https://ADDRESS/livez",
	`curl -sf -o cpu.pprof "$ADMIN/debug/pprof/profile?seconds=10"`:                            `curl -sf -o "$DIR/cpu.pprof" "$ADMIN/debug/pprof/profile?seconds=1" && ls "$DIR/cpu.pprof"`,
	"export ETCDCTL_ENDPOINTS=http://127.0.0.1:2379":                                           "export ETCDCTL_ENDPOINTS=http://127.0.0.1:2379; env | grep ETCDCTL",
	"kubectl -n kubeweir rollout restart deployment/kubeweir":                                  helm,
	"kubectl -n kubeweir delete pod POD":                                                       helm,
	"helm upgrade kubeweir deploy/charts/kubeweir -n kubeweir --reuse-values --set replicas=3": helm,
	"kubectl -n kubeweir describe certificates":                                                "not here: needs cert-manager",
	"kubectl -n kubeweir logs POD --previous":                                                  kubelet,
	"kubectl -n kubeweir logs POD --since 30m":                                                 kubelet,
	"kubectl -n kubeweir port-forward POD 9444 &":                                              kubelet,
	"kubectl port-forward":                                                                     kubelet,
	"kubectl auth can-i":                                                                       "kubectl auth can-i get pods",
	"openssl x509 -in tls.crt -noout -pubkey":                                                  `openssl x509 -in "$CERT" -noout -pubkey`,
	"openssl pkey -in tls.key -pubout":                                                         `openssl pkey -in "$KEY" -pubout`,
	"iostat -x 1":                                                                              "iostat -x 1 1",
	"etcdctl endpoint health":                                                                  etcdctl,
	"etcdctl endpoint status -w table":                                                         etcdctl,
	`etcdctl compact "$(etcdctl endpoint status -w json | grep -o '"revision":[0-9]*' | head -n 1 | cut -d: -f2)"`: etcdctl,
	"etcdctl defrag":                     etcdctl,
	"etcdctl alarm disarm":               etcdctl,
	"systemctl restart kubeweir-gateway": systemd,
	"journalctl -u kubeweir-gateway":     systemd,
	"helm upgrade kubeweir deploy/charts/kubeweir -n kubeweir --reuse-values --set config.limits.historyBytes=128Mi": helm,
}

// The reasons why this test does not run a command.
const (
	kubelet = "not here: needs a kubelet"
	etcdctl = "not here: TestEtcdFailures runs it"
	systemd = "not here: needs systemd"
	helm    = "not here: TestDocumentedCommands of test/deploy/charts runs it"
)

var (
	block   = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	inline  = regexp.MustCompile("`([^`]+)`")
	command = regexp.MustCompile(`^(kubectl|kubeweir|curl|helm|openssl|etcdctl|iostat|systemctl|journalctl) `)
	remark  = regexp.MustCompile(` {2,}# .*$`)
)

// commands returns the commands of a page outside of sh blocks, which runbooks runs.
func commands(page string) (list []string) {
	for _, b := range block.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(b[2]) {
			if line, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok && b[1] == "console" {
				list = append(list, remark.ReplaceAllString(line, ""))
			}
		}
	}
	for _, span := range inline.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		if text := strings.Join(strings.Fields(span[1]), " "); command.MatchString(text) {
			list = append(list, text)
		}
	}
	return list
}

// prose runs the commands in the sentences of the runbooks against a cluster behind a gateway.
func prose(t *testing.T, folder string, p *process, cluster *realkube.Cluster) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, file := range append(files, filepath.Join(folder, "..", "troubleshooting.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands(string(text)) {
			if _, known := typed[c]; !known {
				t.Errorf("%s: no test runs %s; add it to typed", filepath.Base(file), c)
			}
			seen[c] = true
		}
	}
	env := shellOf(t, cluster, p)
	for c, as := range typed {
		if !seen[c] {
			t.Errorf("no page contains %s; remove it from typed", c)
		}
		if strings.HasPrefix(as, "not here: ") {
			continue
		}
		if as == "" {
			as = c
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(as, "ADDRESS", strings.TrimPrefix(cluster.URL(), "https://")))
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", as, err, out)
		}
		cancel()
	}
}

// shellOf returns the environment of a cluster administrator.
func shellOf(t *testing.T, cluster *realkube.Cluster, p *process) []string {
	t.Helper()
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := cluster.IssueServingCert("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, cluster.URL(), cluster.ServingCAFile(), cluster.AdminToken()); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig,
		"KUBECACHEDIR="+dir, "DIR="+dir, "ADMIN="+p.admin, "CERT="+pair.CertFile, "KEY="+pair.KeyFile)
}
