// Package status turns responses that are not 200 into errors.
package status

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// MaxBody bounds what is read of the body of a refused request.
const MaxBody = 64 << 10

// Error turns an answer that is not 200 into an *errors.StatusError: the Status
// that the server sent, or what client-go would make of another body.
func Error(resp *http.Response, body io.Reader, verb string, gr schema.GroupResource) error {
	content, err := io.ReadAll(io.LimitReader(body, MaxBody))
	if err != nil {
		content = nil // what is known is the code
	}
	if status := In(content); status != nil {
		return &apierrors.StatusError{ErrStatus: *status}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(resp.StatusCode, verb, gr, "", strings.TrimSpace(string(content)), seconds, true)
}

// In returns the failure that body holds in JSON or protobuf, or nil.
func In(body []byte) *metav1.Status {
	status, ok := Parse(body)
	if !ok || status.Status == metav1.StatusSuccess || status.Code == 0 {
		return nil
	}
	return status
}

// Parse reads the Status that a body holds in JSON or protobuf.
func Parse(body []byte) (status *metav1.Status, ok bool) {
	if protobuf.IsEnvelope(body) {
		status, err := protobuf.ParseEnvelopedStatus(body)
		return status, err == nil
	}
	status, err := json.Codec{}.ParseStatus(body)
	return status, err == nil && status.Kind == "Status"
}

// Message reads the message of a failure from a body, which can be read again; "" if it has none.
func Message(body *io.ReadCloser, from io.Reader) string {
	content, err := io.ReadAll(io.LimitReader(from, MaxBody))
	if err != nil {
		return ""
	}
	_ = (*body).Close()
	*body = io.NopCloser(bytes.NewReader(content))
	if failure := In(content); failure != nil {
		return failure.Message
	}
	return ""
}
