package server

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeweir/kubeweir/origin/builtin/encryption"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// secretKeys is an EncryptionConfiguration of Secrets with keys named by letters, the first of which
// writes.
func secretKeys(letters ...string) []byte {
	var keys []string
	for _, letter := range letters {
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", letter, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))))
	}
	return fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{aesgcm: {keys: [%s]}}]}]\n", strings.Join(keys, ", "))
}

// failedReloads returns how many changed files were rejected.
func failedReloads(t *testing.T) (n float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_encryption_config_controller_automatic_reloads_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "status" && l.GetValue() == "failure" {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestEncryptionConfigReloads checks that a changed file applies to writes, and that a faulty file does
// not.
func TestEncryptionConfigReloads(t *testing.T) {
	interval := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	t.Cleanup(func() { controller.EncryptionConfigFileChangePollDuration = interval })
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(secretKeys("a"))
	encrypted, err := encryption.Load(file, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(encrypted.Close)
	s := buildWith(t, Options{Encryption: encrypted})
	ctx, config := run(t, s)
	secrets := client(t, config).CoreV1().Secrets("default")
	secret, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := func() []byte {
		t.Helper()
		result, err := s.opts.Engine.Range(ctx, storage.RangeOptions{Prefix: "/registry/secrets/default/s", Exact: true})
		if err != nil || len(result.KVs) != 1 {
			t.Fatalf("%+v, %v", result, err)
		}
		return result.KVs[0].Value
	}
	if value := stored(); !bytes.HasPrefix(value, []byte("k8s:enc:aesgcm:v1:a:")) {
		t.Errorf("stored as %q", value)
	}
	write([]byte("junk"))
	for failedReloads(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil || !bytes.HasPrefix(stored(), []byte("k8s:enc:aesgcm:v1:a:")) {
		t.Errorf("with a faulty file: %v, stored as %q", err, stored())
	}
	write(secretKeys("b", "a"))
	for !bytes.HasPrefix(stored(), []byte("k8s:enc:aesgcm:v1:b:")) {
		if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, body := get(t, config, "/readyz/kms-providers"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := get(t, config, "/livez/kms-providers"); status != 404 {
		t.Errorf("%d %s", status, body)
	}
}
