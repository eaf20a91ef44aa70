package kustomize

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// serviceAccountFolder is the path that client libraries use.
const serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// A pod is a rendered pod on this machine: a folder for each volume, filled as the kubelet would,
// and a port for each port. Only paths and ports differ from the manifest; all other arguments and
// settings of the containers are unchanged.
type pod struct {
	t         *testing.T
	dir       string
	namespace string
	spec      corev1.PodSpec
	objects   []*unstructured.Unstructured
	ports     map[string]string // local addresses by the pod's ports
	secrets   map[string]map[string][]byte
}

// newPod builds a folder, creates its objects in the cluster and fills the volumes of its pod.
func newPod(ctx context.Context, t *testing.T, folder string, change func(*corev1.PodSpec)) *pod {
	t.Helper()
	p := &pod{t: t, dir: t.TempDir(), ports: make(map[string]string), secrets: make(map[string]map[string][]byte)}
	p.objects = build(ctx, t, folder)
	newJudge(t, kube.AdminConfig()).apply(ctx, t, p.objects)
	p.namespace = find(t, p.objects, "Namespace", "").GetName()
	p.spec = podTemplate(t, p.objects).Spec
	if change != nil {
		change(&p.spec)
	}
	serving, err := kube.IssueServingCert("127.0.0.1", "localhost")
	must(t, err)
	p.secrets["kubeweir-tls"] = map[string][]byte{"tls.crt": read(t, serving.CertFile), "tls.key": read(t, serving.KeyFile)}
	p.secrets["kubeweir-tokens"] = map[string][]byte{"tokens.csv": []byte("first,admin,1,system:masters\n")}
	for _, volume := range p.spec.Volumes {
		p.makeVolume(ctx, &volume)
	}
	return p
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	return content
}

func (p *pod) volume(name string) string { return filepath.Join(p.dir, "volumes", name) }

func (p *pod) makeVolume(ctx context.Context, v *corev1.Volume) {
	p.t.Helper()
	dir := p.volume(v.Name)
	must(p.t, os.MkdirAll(dir, 0o755))
	if v.EmptyDir != nil {
		must(p.t, os.Chmod(dir, 0o777)) // the mode that the kubelet sets
	}
	sources := []corev1.VolumeProjection{}
	if v.ConfigMap != nil {
		sources = append(sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference}})
	}
	if v.Projected != nil {
		sources = append(sources, v.Projected.Sources...)
	}
	for _, source := range sources {
		for path, content := range p.project(ctx, source) {
			must(p.t, os.WriteFile(filepath.Join(dir, path), content, 0o600))
		}
	}
}

// project returns the files of one source of a projected volume.
func (p *pod) project(ctx context.Context, source corev1.VolumeProjection) map[string][]byte {
	p.t.Helper()
	switch {
	case source.ServiceAccountToken != nil:
		return map[string][]byte{source.ServiceAccountToken.Path: []byte(p.token(ctx))}
	case source.DownwardAPI != nil:
		return map[string][]byte{source.DownwardAPI.Items[0].Path: []byte(p.namespace)}
	case source.ConfigMap != nil && source.ConfigMap.Name == "kube-root-ca.crt":
		return map[string][]byte{"ca.crt": read(p.t, kube.ServingCAFile())}
	case source.ConfigMap != nil:
		files := make(map[string][]byte)
		data, _, err := unstructured.NestedStringMap(find(p.t, p.objects, "ConfigMap", source.ConfigMap.Name).Object, "data")
		must(p.t, err)
		for name, text := range data {
			files[name] = []byte(p.local(text))
		}
		return files
	case source.Secret != nil:
		files := make(map[string][]byte)
		for _, item := range source.Secret.Items {
			content, ok := p.secrets[source.Secret.Name][item.Key]
			if !ok {
				p.t.Fatalf("the README does not say to create the Secret %s with %s", source.Secret.Name, item.Key)
			}
			files[item.Path] = content
		}
		return files
	}
	p.t.Fatalf("unknown source of a volume: %v", source)
	return nil
}

// token returns a token of the pod's service account.
func (p *pod) token(ctx context.Context) string {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(p.t, err)
	request, err := client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, p.spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(p.t, err)
	return request.Status.Token
}

// container returns the pod's container with the name.
func (p *pod) container(name string) *corev1.Container {
	p.t.Helper()
	for _, list := range [][]corev1.Container{p.spec.InitContainers, p.spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	p.t.Fatalf("the pod has no container %s", name)
	return nil
}

// listenAddress matches the addresses on which kubeweir listens.
var listenAddress = regexp.MustCompile(`(127\.0\.0\.1)?:(8443|9444|6443|9443|19443|19444)\b`)

// local replaces ports, and paths mounted in the container kubeweir, with those of this machine.
func (p *pod) local(text string) string {
	text = listenAddress.ReplaceAllStringFunc(text, p.address)
	var paths []string
	for _, mount := range p.container("kubeweir").VolumeMounts {
		paths = append(paths, mount.MountPath, p.volume(mount.Name))
	}
	return strings.NewReplacer(paths...).Replace(text)
}

// address returns the local address for a port of the pod.
func (p *pod) address(listen string) string {
	_, port, err := net.SplitHostPort(listen)
	must(p.t, err)
	if p.ports[port] == "" {
		address, release, err := realkube.ReservePort()
		must(p.t, err)
		p.t.Cleanup(release)
		p.ports[port] = address
	}
	return p.ports[port]
}

// mounted returns the local path of a path in a container.
func (p *pod) mounted(c *corev1.Container, path string) string {
	p.t.Helper()
	for _, mount := range c.VolumeMounts {
		if rest, ok := strings.CutPrefix(path, mount.MountPath); ok && (rest == "" || rest[0] == '/') {
			return p.volume(mount.Name) + rest
		}
	}
	p.t.Fatalf("nothing of %s is mounted in %s", path, c.Name)
	return ""
}

// start runs the container kubeweir until the end of the test and waits for its probes. A gateway
// gets a kubeconfig that names the files of its service account, because the test may not be able
// to write to the path that they have in a pod.
func (p *pod) start(ctx context.Context) *realkube.Program {
	p.t.Helper()
	c := p.container("kubeweir")
	var args []string
	for _, arg := range c.Args {
		args = append(args, p.local(arg))
	}
	if args[0] == "gateway" {
		args = append(args, "--kubeconfig", p.kubeconfig(ctx, c))
	}
	log := filepath.Join(p.dir, "kubeweir.log")
	program, err := realkube.StartProgram(ctx, "", log, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		program.Kill()
		if p.t.Failed() {
			p.t.Logf("the gateway printed\n%s", read(p.t, log))
		}
	})
	p.probe(ctx, c)
	return program
}

func (p *pod) kubeconfig(ctx context.Context, c *corev1.Container) string {
	p.t.Helper()
	dir := p.volume("automounted")
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == serviceAccountFolder }) {
		dir = p.mounted(c, serviceAccountFolder)
	} else {
		must(p.t, os.MkdirAll(dir, 0o755))
		must(p.t, os.WriteFile(filepath.Join(dir, "token"), []byte(p.token(ctx)), 0o600))
		must(p.t, os.WriteFile(filepath.Join(dir, "ca.crt"), read(p.t, kube.ServingCAFile()), 0o600))
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["pod"] = &clientcmdapi.Cluster{Server: kube.URL(), CertificateAuthority: filepath.Join(dir, "ca.crt")}
	cfg.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(dir, "token")}
	cfg.Contexts["pod"] = &clientcmdapi.Context{Cluster: "pod", AuthInfo: "pod", Namespace: p.namespace}
	cfg.CurrentContext = "pod"
	file := filepath.Join(p.dir, "kubeconfig")
	must(p.t, clientcmd.WriteToFile(*cfg, file))
	return file
}

// probe waits until all probes of a container succeed.
func (p *pod) probe(ctx context.Context, c *corev1.Container) {
	p.t.Helper()
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		port := probe.HTTPGet.Port.String()
		if i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port }); i >= 0 {
			port = fmt.Sprint(c.Ports[i].ContainerPort)
		}
		url := "http://" + p.address(":"+port) + probe.HTTPGet.Path
		eventually(ctx, p.t, func() error {
			resp, err := http.Get(url)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
			}
			return err
		})
	}
}
