package app

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

// A program in a pod finds kube-apiserver by KUBERNETES_SERVICE_HOST and _PORT, trusts
// the ca.crt of its service account's folder and nothing else, and presents the token
// beside it. So that it reaches the gateway beside it without a change, it is given
// another folder in that place, which this file fills. The token is not the pod's: that
// one is worth something everywhere, has to be kept up to date, and would be reviewed by
// the cluster to learn what is known. It is one that this gateway alone knows, on a
// listener that nobody outside of the pod reaches.

// fillServiceAccountDir writes the files and returns the token; "" if none is asked for.
func fillServiceAccountDir(c *config.Gateway, cert *gatewayCert) (authn.Token, error) {
	dir := c.ServiceAccountDir
	if dir == "" {
		return "", nil
	}
	if cert == nil || cert.dir == "" {
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

// namespaceOf is the pod's namespace, or that of the kubeconfig's context.
func namespaceOf(c *config.Gateway) (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: c.Context},
	).Namespace()
	return namespace, err
}

// serviceAccountToken makes the token of the CA's key, which is as secret as it and kept:
// programs read the token again once a minute only, and are not to be refused after a
// restart. Each folder and address has its own: gateways may share a CA, those of pods know
// their folders by the same name, and those of one host's network reach each other.
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

// writeShared writes a file that everyone who may list the folder may read, such as programs of other
// users that share a pod's volume. A file that is right already is not touched.
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
