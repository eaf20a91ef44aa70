package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ContinueToken identifies where the next page of a list begins. Its encoding is kube-apiserver's
// (k8s.io/apiserver/pkg/storage/continue.go), so that a list begun here can be continued there and
// vice versa.
type ContinueToken struct {
	// ResourceVersion is the version that all pages show. A negative one (-1) means the latest
	// version: it continues a list whose version expired.
	ResourceVersion int64
	// Start is the first key of the page, relative to the listed collection or namespace, without a
	// leading "/": "namespace/name" or "name". It is usually the last key of the previous page plus
	// "\x00".
	Start string
	// Within names the namespaces that the list is restricted to, "" for all. Other servers ignore
	// it.
	Within string
}

// continueVersion is the version of the token format.
const continueVersion = "meta.k8s.io/v1"

// continueToken is the JSON inside a token.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
	Within          string `json:"within,omitempty"`
}

var (
	errContinueKey        = errors.New("continue key is not valid")
	errContinueVersion    = errors.New("continue key is not valid: server does not recognize this encoded version")
	errContinueStartRV    = errors.New("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	errContinueEmptyStart = errors.New("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
)

// DecodeContinue decodes a continue token. It accepts start keys with and without a leading "/",
// because kube-apiserver's watch cache and its store differ in that. The error is the 400 of the
// upstream.
func DecodeContinue(token string) (ContinueToken, error) {
	decoded, err := decodeContinue(token)
	if err != nil {
		return ContinueToken{}, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	return decoded, nil
}

func decodeContinue(token string) (ContinueToken, error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return ContinueToken{}, fmt.Errorf("%w: %v", errContinueKey, err)
	}
	var wire continueToken
	if err := json.Unmarshal(data, &wire); err != nil {
		// The message contains the name of the Go type, which is in another package upstream.
		text := strings.Replace(err.Error(), "type api.", "type storage.", 1)
		return ContinueToken{}, fmt.Errorf("%w: %s", errContinueKey, text)
	}
	switch {
	case wire.APIVersion != continueVersion:
		return ContinueToken{}, fmt.Errorf("%w %v", errContinueVersion, wire.APIVersion)
	case wire.ResourceVersion == 0:
		return ContinueToken{}, errContinueStartRV
	case wire.StartKey == "":
		return ContinueToken{}, errContinueEmptyStart
	}
	key := wire.StartKey
	if !strings.HasPrefix(key, "/") {
		key = "/" + key
	}
	// A key that is not clean could point outside the collection.
	if path.Clean(key) != key {
		return ContinueToken{}, fmt.Errorf("%w: %v", errContinueKey, wire.StartKey)
	}
	return ContinueToken{ResourceVersion: wire.ResourceVersion, Start: key[1:], Within: wire.Within}, nil
}

// Encode is the inverse of DecodeContinue. The start key gets a leading "/", as
// in the tokens of kube-apiserver's watch cache.
func (t ContinueToken) Encode() string {
	data, err := json.Marshal(continueToken{continueVersion, t.ResourceVersion, "/" + t.Start, t.Within})
	if err != nil {
		// Two strings and a number always marshal.
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}
