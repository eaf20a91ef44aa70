package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// StatusForm is the form in which a Status is written. It differs from the Representation of the
// requested object: a Status is never transformed.
type StatusForm uint8

const (
	// StatusJSON is compact JSON, for clients without a preference.
	StatusJSON StatusForm = iota
	// StatusPretty is JSON indented by two spaces.
	StatusPretty
	// StatusProtobuf is kube-apiserver's protobuf envelope.
	StatusProtobuf
	// StatusYAML is YAML.
	StatusYAML
	// StatusCBOR is CBOR.
	StatusCBOR
	// StatusFallback is what kube-apiserver writes if the client accepts none of the others:
	// indented JSON.
	StatusFallback
)

// NegotiateStatus chooses the form of an error response from the first line of the Accept header.
// pretty is the result of RequestInfo.Pretty. Clauses with a transform do not count
// (negotiation.DefaultEndpointRestrictions).
func NegotiateStatus(accept string, pretty bool) StatusForm {
	if accept == "" {
		return statusForm(mediaJSON, pretty)
	}
	var store [8]clause
	clauses := parseAccept(store[:0], accept)
	for i := range clauses {
		c := &clauses[i]
		for _, media := range offered {
			if c.matches(media) && !c.convert && c.acceptableParameters(media, "") {
				return statusForm(media, pretty || c.pretty)
			}
		}
	}
	return StatusFallback
}

func statusForm(media mediaType, pretty bool) StatusForm {
	switch {
	case media == mediaYAML:
		return StatusYAML
	case media == mediaProtobuf:
		return StatusProtobuf
	case media == mediaCBOR:
		return StatusCBOR
	case pretty:
		return StatusPretty
	}
	return StatusJSON
}

// StatusResponse turns an error into kube-apiserver's response to it: the Status inside a (wrapped)
// StatusError, or a 500 without a reason for any other error (responsewriters.ErrorToAPIStatus and
// ErrorNegotiated). No other code turns errors into responses. Audit-Id is not set.
func StatusResponse(err error, form StatusForm) *Response {
	status := StatusOf(err)
	body, mediaType := encodeStatus(status, form)
	header := make(Header, 0, 5)
	header.Add("Cache-Control", CacheControl)
	header.Add("Content-Type", mediaType)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Add("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	if status.Code == 403 {
		header.Add("X-Content-Type-Options", "nosniff")
	}
	return &Response{Status: int(status.Code), Header: header, Body: body, Length: int64(len(body))}
}

// CacheControl is the Cache-Control of every response: who may read it depends on the client.
const CacheControl = "no-cache, private"

// StatusOf returns the Status that describes err, complete with kind and code.
func StatusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Code:     500,
			Reason:   metav1.StatusReasonUnknown,
			Message:  err.Error(),
		}
	}
	status := known.Status()
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = 500
		if status.Status == metav1.StatusSuccess {
			status.Code = 200
		}
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// EncodeStatus encodes a Status in one of the forms, for callers that need only the bytes (such as
// the object of an ERROR event).
func EncodeStatus(status *metav1.Status, form StatusForm) []byte {
	body, _ := encodeStatus(status, form)
	return body
}

// selfDescribed is the tag with which a response in CBOR begins.
const selfDescribed = "\xd9\xd9\xf7"

func encodeStatus(status *metav1.Status, form StatusForm) (body []byte, mediaType string) {
	// Neither encoding can fail: a Status is strings and numbers.
	compact, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	switch form {
	case StatusPretty, StatusFallback:
		var indented bytes.Buffer
		if err := json.Indent(&indented, compact, "", "  "); err != nil {
			panic(err)
		}
		return indented.Bytes(), "application/json"
	case StatusProtobuf:
		var body bytes.Buffer
		if err := protobuf.NewSerializer(nil, nil).Encode(status, &body); err != nil {
			panic(err)
		}
		return body.Bytes(), Protobuf.MediaType()
	case StatusCBOR:
		item, err := direct.Marshal(status)
		if err != nil {
			panic(err)
		}
		return append([]byte(selfDescribed), item...), CBOR.MediaType()
	case StatusYAML:
		body, err := yaml.JSONToYAML(compact)
		if err != nil {
			panic(err)
		}
		return body, "application/yaml"
	}
	return append(compact, '\n'), "application/json"
}

// NewNotFound returns the 404 for an object that does not exist.
func NewNotFound(resource schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewNotFound(resource, name)
}

// NewNotAcceptable returns the 406 for a representation that does not exist.
func NewNotAcceptable(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 406, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}

// NewTooManyRequests returns a 429 with Retry-After. retryAfterSeconds must be positive for the
// header to appear.
func NewTooManyRequests(message string, retryAfterSeconds int) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(message, retryAfterSeconds)
}

// NewServiceUnavailable returns the 503 for an upstream that cannot be reached.
func NewServiceUnavailable(message string) *apierrors.StatusError {
	return apierrors.NewServiceUnavailable(message)
}

// NewTooLargeResourceVersion returns the 504 for a read at a version that is not reached in time.
// retryAfterSeconds 0 leaves Retry-After out.
func NewTooLargeResourceVersion(minimum, current uint64, retryAfterSeconds int) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", minimum, current), retryAfterSeconds)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// InvalidResourceVersion returns the error for a resourceVersion that is not a number; err is that
// of ParseResourceVersion. kube-apiserver responds to gets and watches with the bare error, so
// StatusResponse makes it a 500, and lists with NewInvalidListResourceVersion.
func InvalidResourceVersion(value string, err error) error {
	return field.Invalid(field.NewPath("resourceVersion"), value, err.Error())
}

// NewInvalidListResourceVersion returns the 400 for a list at a resourceVersion that is not a
// number; err is that of ParseResourceVersion.
func NewInvalidListResourceVersion(value string, err error) *apierrors.StatusError {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", InvalidResourceVersion(value, err)))
}

// NewExpiredList returns the 410 for a list at an exact version that has expired.
func NewExpiredList() *apierrors.StatusError {
	return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
}

// NewExpiredContinue returns the 410 for a continue token whose version has expired. It carries a
// token that continues the list inconsistently: at the latest version, from the key where the
// expired one begins.
func NewExpiredContinue(expired ContinueToken) *apierrors.StatusError {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	expired.ResourceVersion = -1
	err.ErrStatus.Continue = expired.Encode()
	return err
}

// NewOtherNamespaces returns the 410 for a continued list or a watch of the namespaces that a user
// may see, after these have changed.
func NewOtherNamespaces() *apierrors.StatusError {
	return apierrors.NewResourceExpired("The namespaces that you may list have changed: begin again with a new list.")
}

// NewExpiredWatch returns the error of a watch from expired history: the object of an ERROR event.
// oldest is the oldest event's version.
func NewExpiredWatch(requested, oldest uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", requested, oldest-1))
}

// StatusClientLeft is the status of a response whose client has disconnected. It is never sent.
const StatusClientLeft = 499

// KnownStatus returns a status code for a metric's label. Codes that HTTP does not define count as
// the first of their class, because a pod or an API server behind the upstream may respond with
// any.
func KnownStatus(code int) int {
	switch {
	case 200 <= code && code <= 208, 300 <= code && code <= 308, 400 <= code && code <= 431, 500 <= code && code <= 511,
		code == 101, code == 451, code == StatusClientLeft:
		return code
	}
	return code / 100 * 100
}
