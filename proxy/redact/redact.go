// Package redact rewrites responses in JSON for clients that see a redacted view: it takes the data of
// Secrets, and what else may hold secrets, out of objects, lists and events of a watch.
//
// Package proxy forwards reads that the cache cannot serve and redacts the responses. A response that
// cannot be redacted is an error.
package redact

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Redactor redacts the responses to one request.
type Redactor struct {
	// Secret is true if the response has Secrets, which need not say that they are.
	Secret bool
	// Tables is true if the cells of Tables are known to hold no secrets.
	Tables bool
}

// Object returns a redacted object, list or event.
func (r Redactor) Object(text []byte) ([]byte, error) {
	redacted, err := json.Redact(text, r.Secret)
	if err == nil && !r.Tables && isTable(text) {
		err = errUnknownCells
	}
	return redacted, err
}

// Event returns a redacted event of a watch, with the end of its line.
func (r Redactor) Event(line []byte) ([]byte, error) {
	text, err := r.Object(line)
	if err != nil {
		return nil, err
	}
	return append(append(make([]byte, 0, len(text)+1), text...), '\n'), nil
}

// ErrorEvent returns the last event of a watch that cannot be redacted because of err.
func ErrorEvent(err error) []byte {
	status := api.StatusOf(apierrors.NewInternalError(fmt.Errorf("redacting the upstream's event: %w", err)))
	return fmt.Appendf(nil, "{\"type\":\"ERROR\",\"object\":%s}\n", bytes.TrimSpace(api.EncodeStatus(status, api.StatusJSON)))
}

// Header returns the fields of the header of a response that are passed on.
func Header(h api.Header) (filtered api.Header) {
	for _, f := range h {
		switch f.Name {
		case "Content-Type", "Cache-Control", "Warning", "Audit-Id", "Retry-After":
			filtered = append(filtered, f)
		}
	}
	return filtered
}

var errUnknownCells = errors.New("it is a Table, and nobody knows what is in its cells")

// isTable reports whether an answer, or the object of an event, is a Table, which was not asked for:
// one of meta.k8s.io, for there are custom resources of that kind, too.
func isTable(text []byte) bool {
	member := func(names ...string) string {
		path := make([]json.Step, len(names))
		for i, name := range names {
			path[i].Name = name
		}
		return strings.Trim(string(json.Lookup(text, path)), `"`)
	}
	isMeta := func(version string) bool { return version == "" || strings.HasPrefix(version, metav1.GroupName+"/") }
	return member("kind") == "Table" && isMeta(member("apiVersion")) ||
		member("object", "kind") == "Table" && isMeta(member("object", "apiVersion"))
}
