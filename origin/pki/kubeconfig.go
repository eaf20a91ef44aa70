package pki

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the name of the cluster and of the context in kubeconfigs.
const contextName = "kubeweir"

// Kubeconfig is a kubeconfig by which client is a user of the server at an address
// such as "https://127.0.0.1:6443". CA and client's certificate are embedded: the
// file can be copied elsewhere, and is as secret as the key.
func (m *Material) Kubeconfig(server string, client *KeyPair) ([]byte, error) {
	user := client.Certificate.Subject.CommonName
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: m.Roots()}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.CertPEM, ClientKeyData: client.KeyPEM}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user}
	config.CurrentContext = contextName
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("pki: encoding a kubeconfig: %w", err)
	}
	return text, nil
}

// WriteKubeconfig writes the admin's kubeconfig with mode 0600, in place of one that
// is there.
func (m *Material) WriteKubeconfig(path, server string) error {
	text, err := m.Kubeconfig(server, m.Admin)
	if err != nil {
		return err
	}
	if err := WriteFile(path, text); err != nil {
		return fmt.Errorf("pki: the admin's kubeconfig: %w", err)
	}
	return nil
}

// WriteClusterKubeconfig writes a kubeconfig of the server at an address whose
// credentials are those of user in another kubeconfig: kubectl merges the files of
// KUBECONFIG. user may be "".
func (m *Material) WriteClusterKubeconfig(path, server, user string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: m.Roots()}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user}
	config.CurrentContext = contextName
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("pki: encoding a kubeconfig: %w", err)
	}
	return WriteFile(path, text)
}

// RESTConfig returns the contents of Kubeconfig for client-go in the same process. The caller may
// change it.
func (m *Material) RESTConfig(server string, client *KeyPair) *rest.Config {
	return &rest.Config{
		Host: server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: m.CA.CertPEM, CertData: client.CertPEM, KeyData: client.KeyPEM,
		},
	}
}
