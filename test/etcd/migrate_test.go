package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// migrate runs `kubeweir migrate`, and kills it after a time unless that is 0. It returns the error and the
// output of a process that has ended by itself.
func migrate(t *testing.T, kill time.Duration, args ...string) (output string, err error) {
	t.Helper()
	program, err := realkube.Kubeweir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if kill > 0 {
		ctx, cancel = context.WithTimeout(ctx, kill)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"migrate"}, args...)...)
	cmd.Env = realkube.KubeweirEnv()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// untilItSucceeds runs `kubeweir migrate` and kills it ever later, until it ends by itself. target must not exist
// after each kill.
func untilItSucceeds(t *testing.T, target string, args ...string) string {
	t.Helper()
	kills := 0
	for wait := 20 * time.Millisecond; ; wait += 20 * time.Millisecond {
		out, err := migrate(t, wait, args...)
		if _, missing := os.Stat(target); missing == nil {
			// It may have been killed when its work was done.
			t.Logf("%d kills: %s", kills, out)
			return out
		}
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("kubeweir migrate %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		kills++
	}
}

// objectsOf returns the objects of the namespace default, and the version at which all of them are current.
func objectsOf(ctx context.Context, t *testing.T, f face, kinds []schema.GroupVersionResource) (objects map[schema.GroupVersionResource][]unstructured.Unstructured, version string) {
	t.Helper()
	objects = map[schema.GroupVersionResource][]unstructured.Unstructured{}
	for _, gvr := range kinds {
		list, err := f.in(gvr).List(ctx, metav1.ListOptions{})
		for apierrors.IsNotFound(err) && ctx.Err() == nil { // until the server has seen the definition
			list, err = f.in(gvr).List(ctx, metav1.ListOptions{})
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", f.name, gvr.Resource, err)
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "moved-") {
				objects[gvr] = append(objects[gvr], o)
			}
		}
		version = list.GetResourceVersion()
	}
	return objects, version
}

// expired checks that informers which have used another server before list again if history is missing.
func (f face) expired(ctx context.Context, t *testing.T, older string) {
	t.Helper()
	w, err := f.in(configMaps).Watch(ctx, metav1.ListOptions{ResourceVersion: older})
	if err == nil {
		if event := <-w.ResultChan(); event.Type == watch.Error {
			err = apierrors.FromObject(event.Object)
		}
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("%s: watch from %s: %v, want 410", f.name, older, err)
	}
}

// continues checks that informers of the latest version miss nothing.
func (f face) continues(ctx context.Context, t *testing.T, latest, name string) {
	t.Helper()
	w, err := f.in(configMaps).Watch(ctx, metav1.ListOptions{ResourceVersion: latest})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made := f.create(ctx, t, configMaps, configMap(name, "1"))
	await(ctx, t, f, w, made, watch.Added)
	if number(t, made.GetResourceVersion()) <= number(t, latest) {
		t.Errorf("%s: the next write has version %s after %s", f.name, made.GetResourceVersion(), latest)
	}
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMigrate moves objects from kube-apiserver's etcd to a data folder, changes some of them through a
// standalone, and moves them to an etcd from which kube-apiserver starts. Each process is killed on the way.
func TestMigrate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	encryption := "--encryption-provider-config=" + encryptionFile(t, [2]string{"secrets", "{secretbox: {keys: [" + encryptionKey("key1", "a") + "]}}"},
		[2]string{"configmaps", "{kms: {apiVersion: v2, name: test, endpoint: '" + startPlugin(t) + "'}}"})
	c := start(t, realkube.Options{ExtraArgs: []string{encryption}})
	kube := newFace(t, "kube-apiserver", c.AdminConfig())
	kube.create(ctx, t, definitions, tideDefinition)
	events := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	kinds := []schema.GroupVersionResource{secrets, services, deployments, tides, events, configMaps}
	for gvr, objects := range map[schema.GroupVersionResource][]string{
		configMaps:  {configMap("moved-1", "1"), configMap("moved-2", "2"), configMap("moved-3", "3")},
		secrets:     {`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"moved-1"},"stringData":{"a":"b"}}`},
		services:    {service("moved-1")},
		deployments: {strings.Replace(webDeployment, `"metadata":{"name":"web"}`, `"metadata":{"name":"moved-1"}`, 1)},
		tides:       {`{"apiVersion":"test.kubeweir.io/v1","kind":"Tide","metadata":{"name":"moved-1"},"spec":{"height":1}}`},
		events:      {`{"apiVersion":"v1","kind":"Event","metadata":{"name":"moved-1"},"involvedObject":{"namespace":"default"},"reason":"A"}`},
	} {
		for _, o := range objects {
			kube.create(ctx, t, gvr, o)
		}
	}
	kube.patch(ctx, t, "moved-1", "changed")
	if err := kube.in(configMaps).Delete(ctx, "moved-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// These make the command take long enough for kills.
	client := plainClient(t, c)
	for i := range 3000 {
		if _, err := client.Put(ctx, fmt.Sprintf("/registry/test.kubeweir.io/filling/%d", i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	revision, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	before, _ := objectsOf(ctx, t, kube, kinds)
	if err := c.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	latest, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	out := untilItSucceeds(t, filepath.Join(data, "store"), "--etcd-servers", c.EtcdURL(), "--data-dir", data)
	if want := fmt.Sprintf("of revision %d, continues at revision %d\n", latest, latest+1); out != "" && !strings.HasSuffix(out, want) {
		t.Errorf("the output is %q, want %q at its end", out, want)
	}
	s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: dir, Cluster: c, ExtraArgs: []string{encryption}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cfg, err := s.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	weir := newFace(t, "kubeweir", cfg)
	weir.has(ctx, t, before)
	weir.expired(ctx, t, fmt.Sprint(revision-1))
	weir.continues(ctx, t, fmt.Sprint(latest), "moved-4")
	weir.patch(ctx, t, "moved-2", "changed")
	if err := weir.in(secrets).Delete(ctx, "moved-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before, _ = objectsOf(ctx, t, weir, kinds)
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, "etcd.snapshot")
	out = untilItSucceeds(t, file, "--data-dir", data, "--etcd-snapshot", file)
	if err := c.StopEtcd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.RestoreEtcdSnapshot(ctx, file); err != nil {
		t.Fatal(err)
	}
	if err := c.StartEtcd(ctx); err != nil {
		t.Fatal(err)
	}
	moved, err := c.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("continues at revision %d\n", moved); out != "" && !strings.HasSuffix(out, want) {
		t.Errorf("the output is %q, want %q at its end", out, want)
	}
	if got, err := client.Get(ctx, "/registry/configmaps/default/moved-4"); err != nil || len(got.Kvs) != 1 || !bytes.HasPrefix(got.Kvs[0].Value, []byte("k8s:enc:kms:v2:test:")) {
		t.Errorf("what the standalone has written with a key of the plugin: %v, %v", got, err)
	}
	leases, err := client.Leases(ctx)
	if err != nil || len(leases.Leases) == 0 {
		t.Errorf("%v, %v, want the lease of the Event", leases, err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	kube.has(ctx, t, before)
	// Like any kube-apiserver that starts, it has no history.
	kube.expired(ctx, t, fmt.Sprint(revision))
	if u := kube.patch(ctx, t, "moved-2", "changed again"); number(t, u.GetResourceVersion()) <= uint64(moved) {
		t.Errorf("the next write has version %s after %d", u.GetResourceVersion(), moved)
	}
}

// has checks that all objects exist unchanged, and no others.
func (f face) has(ctx context.Context, t *testing.T, want map[schema.GroupVersionResource][]unstructured.Unstructured) {
	t.Helper()
	for gvr, objects := range want {
		got, _ := objectsOf(ctx, t, f, []schema.GroupVersionResource{gvr})
		if len(got[gvr]) != len(objects) {
			t.Errorf("%s has %d %s, want %d", f.name, len(got[gvr]), gvr.Resource, len(objects))
		}
		for i := range objects {
			same(ctx, t, gvr, &objects[i], f)
		}
	}
}

// TestExportOfChangingKeys checks that an export fails if it is not of one moment.
func TestExportOfChangingKeys(t *testing.T) {
	c := start(t, realkube.Options{EtcdOnly: true})
	ctx := t.Context()
	client := plainClient(t, c)
	const keys = 3000
	for i := range keys {
		if _, err := client.Put(ctx, fmt.Sprintf("/registry/%04d", i), "a"); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, engine)
	for _, changed := range []bool{false, true} {
		x, err := engine.Export(ctx, "/registry/")
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			if _, err := client.Put(ctx, "/registry/2999", "b"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Put(ctx, "/registry-of-others/0", "b"); err != nil {
			t.Fatal(err)
		}
		n := 0
		var last storage.Entry
		for ; err == nil; n++ {
			var e storage.Entry
			if e, err = x.Next(ctx); err == nil {
				last = e
			}
		}
		want := io.EOF
		if changed {
			want = etcd.ErrChanged
		}
		if !errors.Is(err, want) || n != keys+1 || string(last.Value) != "a" {
			t.Errorf("%d keys, the last one %+v, then %v, want %v", n-1, last, err, want)
		}
	}
}
