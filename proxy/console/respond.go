package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
)

// httpError is an error with the status of its response.
type httpError struct {
	status     int
	text       string
	retryAfter string // in seconds, "" for none
}

func (e *httpError) Error() string { return e.text }

// errNoCluster rejects the name of an unknown cluster.
var errNoCluster = &httpError{status: http.StatusNotFound, text: "there is no cluster with this name"}

func badRequest(format string, args ...any) error {
	return &httpError{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

func forbidden(text string) error { return &httpError{status: http.StatusForbidden, text: text} }

func notFound(r *http.Request) error {
	return &httpError{status: http.StatusNotFound, text: "the console does not serve " + r.Method + " " + r.URL.Path}
}

// statusOf returns the status of the response to a request that failed with err, 200 for nil.
func statusOf(err error) int {
	var failed *httpError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &failed):
		return failed.status
	}
	return http.StatusInternalServerError
}

// fail responds with an error. It logs internal errors and does not show them to the client.
func fail(w http.ResponseWriter, err error, log *slog.Logger) {
	var failed *httpError
	if !errors.As(err, &failed) {
		log.Error("console request failed", "error", err)
		failed = &httpError{status: http.StatusInternalServerError, text: "internal error: see the log of kubeweir"}
	}
	if failed.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if failed.retryAfter != "" {
		w.Header().Set("Retry-After", failed.retryAfter)
	}
	body, _ := json.Marshal(Failure{Error: failed.text})
	write(w, failed.status, body)
}

// respond responds with a document.
func respond(w http.ResponseWriter, document any) error {
	body, err := json.Marshal(document)
	if err == nil {
		write(w, http.StatusOK, body)
	}
	return err
}

// write responds with an encoded document.
func write(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_, _ = w.Write([]byte{'\n'})
}

// maxBody is the maximum size of a request body in bytes.
const maxBody = 64 << 10

// readBody reads the JSON body of a request.
func readBody(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return nil, &httpError{status: http.StatusUnsupportedMediaType, text: "Content-Type must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, &httpError{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("reading the body, of at most %d bytes: %s", maxBody, err)}
	}
	return body, decode(body, new(json.RawMessage))
}

// decode parses JSON that a client sent.
func decode(body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest("parsing the body: %s", shorten(err.Error()))
	}
	return nil
}

// maxShown is the maximum length of a text chosen by a client, in bytes.
const maxShown = 256

// shorten limits the length of a text chosen by a client.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}
