package charts

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A container runs the program as the chart starts it: with its arguments and its files, below a
// folder instead of /.
type container struct {
	t     *testing.T
	root  string
	spec  corev1.Container
	admin string // address

	program *realkube.Program // the program started last
	url     string
}

// newContainer lays out the files that a rendered Deployment or StatefulSet mounts, taken from the
// rendered ConfigMaps and Secrets.
func newContainer(t *testing.T, list []*unstructured.Unstructured) *container {
	t.Helper()
	i := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool { return pod(o.DeepCopy()) != nil })
	if i < 0 {
		t.Fatal("no workload is rendered")
	}
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod(list[i].DeepCopy()).Object, &p); err != nil {
		t.Fatal(err)
	}
	c := &container{t: t, root: t.TempDir(), spec: p.Spec.Containers[0]}
	var release func()
	var err error
	if c.admin, release, err = realkube.ReservePort(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	volumes := make(map[string]map[string]string)
	for _, v := range p.Spec.Volumes {
		volumes[v.Name] = c.files(&v, list)
	}
	// Mounts inside other mounts come after them.
	slices.SortFunc(c.spec.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
	for _, m := range c.spec.VolumeMounts {
		files, ok := volumes[m.Name]
		if !ok {
			t.Fatalf("%s is mounted but is not a volume", m.Name)
		}
		c.mount(&m, files)
	}
	return c
}

// files returns the files of a volume by name. Volumes that are initially empty have none.
func (c *container) files(v *corev1.Volume, list []*unstructured.Unstructured) map[string]string {
	var data map[string]string
	var items []corev1.KeyToPath
	switch {
	case v.ConfigMap != nil:
		data, _, _ = unstructured.NestedStringMap(find(c.t, list, "ConfigMap", v.ConfigMap.Name).Object, "data")
		items = v.ConfigMap.Items
	case v.Secret != nil:
		encoded, _, _ := unstructured.NestedStringMap(find(c.t, list, "Secret", v.Secret.SecretName).Object, "data")
		data, items = make(map[string]string), v.Secret.Items
		for key, value := range encoded {
			b, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				c.t.Fatalf("%s: %v", key, err)
			}
			data[key] = string(b)
		}
	}
	if items == nil {
		return data
	}
	chosen := make(map[string]string)
	for _, item := range items {
		if _, ok := data[item.Key]; !ok {
			c.t.Fatalf("the volume %s needs %s, which is missing", v.Name, item.Key)
		}
		chosen[item.Path] = data[item.Key]
	}
	return chosen
}

func (c *container) mount(m *corev1.VolumeMount, files map[string]string) {
	at := filepath.Join(c.root, m.MountPath)
	if m.SubPath != "" {
		content, ok := files[m.SubPath]
		if !ok {
			c.t.Fatalf("%s is mounted but is not in the volume", m.SubPath)
		}
		files, at = map[string]string{filepath.Base(at): content}, filepath.Dir(at)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for name, content := range files {
		// The mode that members of the fsGroup see in a Secret's volume.
		if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o440); err != nil {
			c.t.Fatal(err)
		}
	}
}

// args returns the container's arguments, with loopback addresses and paths below root.
func (c *container) args(extra ...string) []string {
	var args []string
	for _, arg := range c.spec.Args {
		arg = strings.ReplaceAll(arg, "=/etc/", "="+c.root+"/etc/")
		arg = strings.ReplaceAll(arg, "=/var/", "="+c.root+"/var/")
		arg = strings.ReplaceAll(arg, "$(POD_IP)", "127.0.0.1")
		switch {
		case strings.HasPrefix(arg, "--listen="):
			arg = "--listen=127.0.0.1:0"
		case strings.HasPrefix(arg, "--admin-listen="):
			arg = "--admin-listen=" + c.admin
		}
		args = append(args, arg)
	}
	return append(args, extra...)
}

var ready = regexp.MustCompile(`(?m)^kubeweir: ready on (https://\S+)`)

// start runs the program until the test ends. It returns when the program is ready.
func (c *container) start(extra ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), realkube.StartTime) // the program may have to be built
	defer cancel()
	var err error
	c.program, err = realkube.StartProgram(ctx, "", filepath.Join(c.root, "log"), c.args(extra...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(c.program.Kill)
	c.url = ready.FindStringSubmatch(c.program.Log())[1]
}

// stop ends the program with the signal that a node sends.
func (c *container) stop() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), waitTimeout)
	defer cancel()
	if err := c.program.Stop(ctx); err != nil {
		c.t.Fatalf("%v\n%s", err, c.program.Log())
	}
}

// probe sends the HTTP request of a kubelet's probe.
func (c *container) probe(p *corev1.Probe) {
	c.t.Helper()
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.String() != "metrics" {
		c.t.Fatalf("%+v is not a probe of the admin listener", p)
	}
	resp, err := http.Get("http://" + c.admin + p.HTTPGet.Path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		c.t.Errorf("%s: %s %s", p.HTTPGet.Path, resp.Status, body)
	}
}
