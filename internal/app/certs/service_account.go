package certs

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/origin/pki"
	"github.com/kubeweir/kubeweir/proxy/authn"
)

// FillServiceAccountDir fills --service-account-dir and returns the token in it; "" without that flag.
//
// A program in a pod finds kube-apiserver by KUBERNETES_SERVICE_HOST and _PORT, trusts only the
// ca.crt of its service account directory, and presents the token beside it. To reach the sidecar
// without a change, it gets this directory instead. The token is not the pod's, which is valid
// everywhere, expires, and would have to be reviewed by the cluster. It is known to this gateway
// alone, on a listener that is reachable only within the pod.
func FillServiceAccountDir(c *config.Gateway, cert *Generated) (authn.Token, error) {
	dir := c.ServiceAccountDir
	if dir == "" {
		return "", nil
	}
	if cert == nil || !cert.IsPersistent() {
		return "", errors.New("--service-account-dir: the CA cannot be kept, so programs would not trust the gateway after a restart; set --cert-dir to a writable folder")
	}
	namespace, err := namespaceOf(c)
	if err != nil {
		return "", fmt.Errorf("--service-account-dir: %w", err)
	}
	token, err := serviceAccountToken(cert.material.Load().CA.KeyPEM, dir, c.Listen)
	if err != nil {
		return "", fmt.Errorf("--service-account-dir: %w", err)
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{"ca.crt", cert.material.Load().CA.CertPEM}, {"namespace", []byte(namespace)}, {"token", []byte(token)}} {
		if err := writeShared(dir, file.name, file.content); err != nil {
			return "", fmt.Errorf("--service-account-dir: %w", err)
		}
	}
	return token, nil
}

// namespaceOf returns the pod's namespace, or that of the kubeconfig's context.
func namespaceOf(c *config.Gateway) (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: c.Context},
	).Namespace()
	return namespace, err
}

// serviceAccountToken derives the token from the CA's key, which is equally secret and is kept:
// programs read the token only once a minute and must not be rejected after a restart. The directory
// and the address are part of it, because gateways may share a CA, the directory has the same name in
// all pods, and pods in the host's network reach each other.
func serviceAccountToken(caKeyPEM []byte, dir, listen string) (authn.Token, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	secret, err := hkdf.Key(sha256.New, caKeyPEM, nil, "kubeweir service account token for "+dir+" at "+listen, sha256.Size)
	if err != nil {
		return "", err
	}
	return authn.NewGatewayToken([sha256.Size]byte(secret)), nil
}

// writeShared writes a file that everyone who may list the directory may read, such as programs of
// other users that share a pod's volume. It does not touch a file that is already right.
func writeShared(dir, name string, content []byte) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o750); err == nil {
			info, err = os.Stat(dir)
		}
	}
	if err != nil {
		return err
	}
	mode := info.Mode()&0o444 | 0o400
	path := filepath.Join(dir, name)
	if there, err := os.Stat(path); err == nil && there.Mode().Perm() == mode {
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			return nil
		}
	}
	if err := pki.WriteFile(path, content); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
