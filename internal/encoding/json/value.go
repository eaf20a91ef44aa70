package json

import (
	"bytes"
	"fmt"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// valueText turns a JSON token other than a string into the text that a field selector compares:
// what fmt.Sprint prints for the value that the API server decodes from it. The scan has validated
// the token.
func valueText(token []byte) ([]byte, error) {
	switch token[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token, nil
	case '{', '[':
		// CRDs cannot declare such a field selectable, but an object from before the CRD changed
		// can still have one.
		var v any
		if err := utiljson.Unmarshal(token, &v); err != nil {
			return nil, fmt.Errorf("selectable field: %w", err)
		}
		return []byte(fmt.Sprint(v)), nil
	}
	if plainInteger(token) {
		return token, nil
	}
	if i, err := strconv.ParseInt(string(token), 10, 64); err == nil {
		return strconv.AppendInt(nil, i, 10), nil // -0 becomes 0
	}
	f, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return nil, fmt.Errorf("selectable field: %w", err)
	}
	return []byte(fmt.Sprint(f)), nil
}

// plainInteger reports whether the number certainly prints as it is written.
func plainInteger(token []byte) bool {
	return len(token) < 19 && !bytes.ContainsAny(token, ".eE") && token[0] != '-' ||
		len(token) == 1
}
