package certs

import (
	"fmt"

	"k8s.io/client-go/util/keyutil"

	"github.com/kubeweir/kubeweir/config"
)

// TokenKeys returns the key that signs service account tokens, generated if no file has one, and others
// that verify them.
func TokenKeys(s *config.ServiceAccounts, generated any) (signing any, public []any, err error) {
	signing = generated
	if s.SigningKeyFile != "" {
		if signing, err = keyutil.PrivateKeyFromFile(s.SigningKeyFile); err != nil {
			return nil, nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
	}
	for _, file := range s.KeyFiles {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		public = append(public, keys...)
	}
	return signing, public, nil
}
