package state

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// ParseKey parses a key file: 32 bytes, or their base64 encoding on one line.
func ParseKey(content []byte) ([]byte, error) {
	if len(content) == KeySize {
		return content, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil || len(key) != KeySize {
		return nil, fmt.Errorf("must contain a key of %d bytes, raw or in base64 (head -c %[1]d /dev/urandom | base64), not %d bytes", KeySize, len(content))
	}
	return key, nil
}

// newAEAD returns what encrypts the file with an identity, nil without a key. Each file has its own
// key, so the number of random nonces per key is small.
func newAEAD(key, identity []byte) (cipher.AEAD, error) {
	if key == nil {
		return nil, nil
	}
	own, err := hkdf.Key(sha256.New, key, identity, "kubeweir state image", KeySize)
	if err != nil {
		return nil, fmt.Errorf("key of a state file: %w", err)
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, fmt.Errorf("key of a state file: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// randomIdentity returns the identity of a new file.
func randomIdentity() []byte {
	id := make([]byte, identitySize)
	_, _ = rand.Read(id) // never fails
	return id
}
