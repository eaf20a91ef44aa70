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

// A container is the program as the chart has it started: its arguments and its files, below a folder instead of /.
type container struct {
	t     *testing.T
	root  string
	spec  corev1.Container
	admin string // address

	program *realkube.Program // the one started last
	url     string
}

// newContainer lays out the files that a rendered Deployment or StatefulSet mounts, from the ConfigMaps and Secrets that are
// rendered beside it.
func newContainer(t *testing.T, list []*unstructured.Unstructured) *container {
	t.Helper()
	i := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool { return pod(o.DeepCopy()) != nil })
	if i < 0 {
		t.Fatal("nothing runs")
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
	// What is mounted inside another mount comes after it.
	slices.SortFunc(c.spec.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
	for _, m := range c.spec.VolumeMounts {
		files, ok := volumes[m.Name]
		if !ok {
			t.Fatalf("%s is mounted and is no volume", m.Name)
		}
		c.mount(&m, files)
	}
	return c
}

// files are those of a volume by name, none of one that is empty at first.
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
			c.t.Fatalf("the volume %s wants %s, which is not there", v.Name, item.Key)
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
			c.t.Fatalf("%s is mounted and is not in the volume", m.SubPath)
		}
		files, at = map[string]string{filepath.Base(at): content}, filepath.Dir(at)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for name, content := range files {
		// As a Secret's volume is seen by who is in its fsGroup.
		if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o440); err != nil {
			c.t.Fatal(err)
		}
	}
}

// args are those of the container, with loopback addresses and paths below root.
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

// start runs the program until the test ends, and returns when it is ready.
func (c *container) start(extra ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), realkube.StartTime) // it may have to be built
	defer cancel()
	var err error
	c.program, err = realkube.StartProgram(ctx, "", filepath.Join(c.root, "log"), c.args(extra...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(c.program.Kill)
	c.url = ready.FindStringSubmatch(c.program.Log())[1]
}

// stop ends the program as a node does.
func (c *container) stop() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.program.Stop(ctx); err != nil {
		c.t.Fatalf("%v\n%s", err, c.program.Log())
	}
}

// probe asks as a kubelet does for one of the probes.
func (c *container) probe(p *corev1.Probe) {
	c.t.Helper()
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.String() != "metrics" {
		c.t.Fatalf("%+v is no probe of the admin listener", p)
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
