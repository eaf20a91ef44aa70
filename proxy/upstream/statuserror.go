package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/encoding/protobuf"
)

// maxErrorBody bounds what is read of the body of a refused request.
const maxErrorBody = 64 << 10

// refusal turns an answer that is not 200 into an *errors.StatusError: the Status
// that the server sent, or what client-go would make of another body.
func refusal(resp *http.Response, body io.Reader, verb string, gr schema.GroupResource) error {
	content, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		content = nil // what is known is the code
	}
	if status := statusIn(content); status != nil {
		return &apierrors.StatusError{ErrStatus: *status}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(resp.StatusCode, verb, gr, "", strings.TrimSpace(string(content)), seconds, true)
}

// statusIn returns the failure that body holds in JSON or protobuf, or nil.
func statusIn(body []byte) *metav1.Status {
	status, ok := parseStatus(body)
	if !ok || status.Status == metav1.StatusSuccess || status.Code == 0 {
		return nil
	}
	return status
}

// parseStatus reads the Status that a body holds in JSON or protobuf.
func parseStatus(body []byte) (status *metav1.Status, ok bool) {
	if protobuf.IsEnvelope(body) {
		status, err := protobuf.ParseEnvelopedStatus(body)
		return status, err == nil
	}
	status, err := json.Codec{}.ParseStatus(body)
	return status, err == nil && status.Kind == "Status"
}

// unsupported wraps err with source.ErrUnsupported if it says that the server
// lacks the way of reading that was asked for.
func unsupported(err error, initialEvents bool) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	switch status.ErrStatus.Code {
	case http.StatusNotAcceptable:
		// No protobuf: custom resources, and some aggregated API servers.
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		if !initialEvents || !namesInitialEvents(&status.ErrStatus) {
			return err
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %w", source.ErrUnsupported, err)
}

// namesInitialEvents tells a refusal of the streaming list from others.
func namesInitialEvents(status *metav1.Status) bool {
	mentions := func(s string) bool {
		return strings.Contains(s, "sendInitialEvents") || strings.Contains(s, "resourceVersionMatch")
	}
	if mentions(status.Message) {
		return true
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if mentions(cause.Field) || mentions(cause.Message) {
				return true
			}
		}
	}
	return false
}
