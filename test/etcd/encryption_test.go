package etcd

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kms "k8s.io/kms/pkg/service"
	"k8s.io/utils/ptr"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/test/realkube"
)

var (
	secrets             = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	podTemplates        = schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
	controllerRevisions = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
)

// plugin is a KMS plugin with one key.
type plugin struct{ aead cipher.AEAD }

// startPlugin serves a KMS plugin on a Unix socket and returns its endpoint.
func startPlugin(t *testing.T) string {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "kms.sock")
	server := kms.NewGRPCService(socket, time.Minute, &plugin{aead})
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}

func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*kms.EncryptResponse, error) {
	return &kms.EncryptResponse{Ciphertext: p.aead.Seal(nil, nil, data, nil), KeyID: "1"}, nil
}

func (p *plugin) Decrypt(_ context.Context, _ string, req *kms.DecryptRequest) ([]byte, error) {
	return p.aead.Open(nil, nil, req.Ciphertext, nil)
}

func (p *plugin) Status(context.Context) (*kms.StatusResponse, error) {
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "1"}, nil
}

// encryptionKey returns a key of the file by a letter.
func encryptionKey(name, letter string) string {
	return fmt.Sprintf("{name: %s, secret: %s}", name, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32))))
}

// encryptionFile writes an EncryptionConfiguration with providers by resources.
func encryptionFile(t *testing.T, providers ...[2]string) string {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	for _, p := range providers {
		text += fmt.Sprintf("- resources: [%s]\n  providers: [%s]\n", p[0], p[1])
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEncryptionLikeKubeAPIServer runs kube-apiserver and kubeweir on one etcd with the same
// EncryptionConfiguration: each reads what the other has written, etcd has no plain text, and with other
// keys both respond alike.
func TestEncryptionLikeKubeAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	endpoint := startPlugin(t)
	secretbox := func(keys ...string) [2]string {
		return [2]string{"secrets", "{secretbox: {keys: [" + strings.Join(keys, ", ") + "]}}, {identity: {}}"}
	}
	everywhere := [][2]string{
		{"configmaps", "{aesgcm: {keys: [" + encryptionKey("key1", "b") + "]}}, {identity: {}}"},
		{"'*.apps'", "{kms: {apiVersion: v2, name: test, endpoint: '" + endpoint + "'}}, {identity: {}}"},
	}
	first, second := encryptionKey("key1", "a"), encryptionKey("key2", "c")
	file := encryptionFile(t, append(everywhere, secretbox(first, second),
		[2]string{"podtemplates", "{aescbc: {keys: [" + encryptionKey("key1", "d") + "]}}"},
		[2]string{"tides.test.kubeweir.io", "{aesgcm: {keys: [" + encryptionKey("key1", "e") + "]}}"},
		[2]string{"'*.*'", "{secretbox: {keys: [" + encryptionKey("rest", "f") + "]}}, {identity: {}}"})...)
	c := start(t, realkube.Options{ExtraArgs: []string{"--encryption-provider-config=" + file}})
	kube := newFace(t, "kube-apiserver", c.AdminConfig())
	weir := func(name, file string) face {
		t.Helper()
		s, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{Dir: t.TempDir(), Cluster: c, SharedStore: true, ExtraArgs: []string{"--encryption-provider-config", file}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		cfg, err := s.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		return newFace(t, name, cfg)
	}
	ours := weir("kubeweir", file)
	kube.create(ctx, t, definitions, tideDefinition)

	// These start while they can read everything: kube-apiserver waits a minute for objects that it cannot read.
	otherFile := encryptionFile(t, append(everywhere, secretbox(second, first),
		[2]string{"podtemplates", "{aescbc: {keys: [" + encryptionKey("other", "d") + "]}}"},
		[2]string{"tides.test.kubeweir.io", "{aesgcm: {keys: [" + encryptionKey("key1", "x") + "]}}"},
		[2]string{"'*.*'", "{secretbox: {keys: [" + encryptionKey("rest", "f") + "]}}, {identity: {}}"})...)
	rotated := weir("kubeweir with other keys", otherFile)
	peer, err := c.StartPeer(ctx, "--encryption-provider-config="+otherFile)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	theirs := newFace(t, "kube-apiserver with other keys", peer.AdminConfig())

	engine, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{c.EtcdURL()}})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, engine)
	stored := func(key string) []byte {
		t.Helper()
		result, err := engine.Range(ctx, storage.RangeOptions{Prefix: "/registry/" + key, Exact: true})
		if err != nil || len(result.KVs) != 1 {
			t.Fatalf("%s: %+v, %v", key, result, err)
		}
		return result.KVs[0].Value
	}

	const plain = "in-plain-text"
	kinds := []struct {
		gvr           schema.GroupVersionResource
		object        string
		key, storedAs string
	}{
		{secrets, `"apiVersion":"v1","kind":"Secret","stringData":{"a":"` + plain + `"}`, "secrets/default/", "k8s:enc:secretbox:v1:key1:"},
		{configMaps, `"apiVersion":"v1","kind":"ConfigMap","data":{"a":"` + plain + `"}`, "configmaps/default/", "k8s:enc:aesgcm:v1:key1:"},
		{podTemplates, `"apiVersion":"v1","kind":"PodTemplate","template":{"spec":{"containers":[{"name":"a","image":"` + plain + `"}]}}`, "podtemplates/default/", "k8s:enc:aescbc:v1:key1:"},
		{controllerRevisions, `"apiVersion":"apps/v1","kind":"ControllerRevision","revision":1,"data":{"a":"` + plain + `"}`, "controllerrevisions/default/", "k8s:enc:kms:v2:test:"},
		{tides, `"apiVersion":"test.kubeweir.io/v1","kind":"Tide","spec":{"height":1}`, "test.kubeweir.io/tides/default/", "k8s:enc:aesgcm:v1:key1:"},
		{services, `"apiVersion":"v1","kind":"Service","spec":{"type":"NodePort","ports":[{"port":80,"name":"` + plain + `"}]}`, "services/specs/default/", "k8s:enc:secretbox:v1:rest:"},
	}
	for _, kind := range kinds {
		for _, writer := range []face{kube, ours} {
			reader := kube
			if writer == kube {
				reader = ours
			}
			name := strings.ReplaceAll(strings.Fields(writer.name)[0], "-", "")
			w, err := reader.in(kind.gvr).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			for apierrors.IsNotFound(err) && ctx.Err() == nil {
				w, err = reader.in(kind.gvr).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			}
			if err != nil {
				t.Fatal(err)
			}
			made := writer.create(ctx, t, kind.gvr, `{"metadata":{"name":"`+name+`"},`+kind.object+`}`)
			await(ctx, t, reader, w, made, watch.Added)
			w.Stop()
			same(ctx, t, kind.gvr, made, kube, ours)
			value := stored(kind.key + name)
			if !bytes.HasPrefix(value, []byte(kind.storedAs)) || bytes.Contains(value, []byte(plain)) || bytes.Contains(value, []byte(name)) {
				t.Errorf("%s of %s are stored as %q", kind.gvr.Resource, writer.name, value)
			}
		}
	}
	for _, f := range []face{kube, ours} {
		list, err := f.in(secrets).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("%s: %v, %v", f.name, list, err)
		}
	}
	// kube-apiserver does not encrypt the bitmap of node ports, even by *.*, and reads it.
	if value := stored("ranges/servicenodeports"); bytes.HasPrefix(value, []byte("k8s:enc:")) {
		t.Errorf("node ports are stored as %q", value)
	}

	// A write that changes nothing encrypts again.
	before, err := rotated.in(secrets).Get(ctx, "kubeapiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := rotated.in(secrets).Update(ctx, before, metav1.UpdateOptions{})
	if err != nil || after.GetResourceVersion() == before.GetResourceVersion() {
		t.Errorf("%v, %v", after, err)
	}
	if value := stored("secrets/default/kubeapiserver"); !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:key2:")) {
		t.Errorf("stored as %q", value)
	}
	same(ctx, t, secrets, after, kube, ours, rotated)

	// With a wrong key or without it, reads and writes fail.
	for _, gvr := range []schema.GroupVersionResource{podTemplates, tides} {
		for request, do := range map[string]func(f face) error{
			"get": func(f face) error { _, err := f.in(gvr).Get(ctx, "kubeweir", metav1.GetOptions{}); return err },
			"patch": func(f face) error {
				_, err := f.in(gvr).Patch(ctx, "kubeweir", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
				return err
			},
			"delete": func(f face) error { return f.in(gvr).Delete(ctx, "kubeweir", metav1.DeleteOptions{}) },
		} {
			kubes, weirs := do(theirs), do(rotated)
			if kubes == nil || weirs == nil || kubes.Error() != weirs.Error() {
				t.Errorf("%s %s of kube-apiserver:\n%v\nof kubeweir:\n%v", request, gvr.Resource, kubes, weirs)
			}
		}
		// A list of kube-apiserver waits for its watch cache.
		if _, err := rotated.in(gvr).List(ctx, metav1.ListOptions{}); apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
			t.Errorf("list %s: %v", gvr.Resource, err)
		}
		same(ctx, t, gvr, get(ctx, t, kube, gvr, "kubeweir"), ours)
		// An option deletes objects that cannot be read.
		for name, f := range map[string]face{"kubeapiserver": theirs, "kubeweir": rotated} {
			if err := f.in(gvr).Delete(ctx, name, metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: ptr.To(true)}); err != nil {
				t.Errorf("%s: delete %s %s: %v", f.name, gvr.Resource, name, err)
			}
			if _, err := ours.in(gvr).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get %s %s: %v", gvr.Resource, name, err)
			}
		}
	}
}

func get(ctx context.Context, t *testing.T, f face, gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := f.in(gvr).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}
