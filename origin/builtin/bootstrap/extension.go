package bootstrap

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// extensionConfigMap tells API servers behind the aggregator, kube-scheduler and
// kube-controller-manager by what to authenticate their callers.
const extensionConfigMap = "extension-apiserver-authentication"

// expiredFor is how long an expired CA is kept
// (pkg/controlplane/controller/clusterauthenticationtrust).
const expiredFor = 5 * time.Minute

// extensionAuthentication adds this server's CAs and headers to what others that
// share the store have written.
func (b *bootstrapper) extensionAuthentication() task {
	return b.configMap(extensionConfigMap, func(data map[string]string) error {
		if err := addCAs(data, "client-ca-file", b.ClientCA); err != nil || len(b.RequestHeaderCA) == 0 {
			return err
		}
		if err := addCAs(data, "requestheader-client-ca-file", b.RequestHeaderCA); err != nil {
			return err
		}
		for key, values := range map[string][]string{
			"requestheader-username-headers":     {"X-Remote-User"},
			"requestheader-uid-headers":          {"X-Remote-Uid"},
			"requestheader-group-headers":        {"X-Remote-Group"},
			"requestheader-extra-headers-prefix": {"X-Remote-Extra-"},
			"requestheader-allowed-names":        b.RequestHeaderAllowedNames,
		} {
			if err := addStrings(data, key, values); err != nil {
				return err
			}
		}
		return nil
	})
}

// addCAs adds certificates to a PEM bundle, each once, and takes out those that have
// expired.
func addCAs(data map[string]string, key string, bundle []byte) error {
	var out bytes.Buffer
	var seen []*x509.Certificate
	for _, text := range [][]byte{[]byte(data[key]), bundle} {
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if time.Since(cert.NotAfter) > expiredFor || slices.ContainsFunc(seen, cert.Equal) {
				continue
			}
			seen = append(seen, cert)
			if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}); err != nil {
				return err
			}
		}
	}
	if out.Len() > 0 {
		data[key] = out.String()
	}
	return nil
}

// addStrings adds strings to a JSON list, each once.
func addStrings(data map[string]string, key string, values []string) error {
	have := []string{}
	if text := data[key]; text != "" {
		if err := json.Unmarshal([]byte(text), &have); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	for _, v := range values {
		if !slices.Contains(have, v) {
			have = append(have, v)
		}
	}
	text, err := json.Marshal(have)
	if err != nil {
		return err
	}
	data[key] = string(text)
	return nil
}
