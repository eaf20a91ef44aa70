package responses

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Response is a response of the upstream to one user. It is shared and must not be changed once it
// was returned by fetch.
type Response struct {
	Status int
	Header api.Header
	Body   []byte
	// Keep is true if the response is cached. Allowed says for how long: as a permission or as a
	// denial.
	Keep, Allowed bool

	generation uint64
}

// VaryingHeaders are the request headers that a response depends on. User-Agent is one because the
// upstream may record it as the manager of a field.
var VaryingHeaders = [...]string{"Accept", "Accept-Encoding", "Content-Type", "Origin", "User-Agent"}

// Digest identifies all that a response depends on except the user.
func Digest(r *api.Request, body []byte) (d [sha256.Size]byte) {
	h := sha256.New()
	number := func(n int) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) } // a hash never fails
	text := func(s string) {
		number(len(s))
		_, _ = io.WriteString(h, s)
	}
	text(r.Path)
	text(r.RawQuery)
	for _, name := range VaryingHeaders {
		values := r.Header.Values(name)
		number(len(values))
		for _, v := range values {
			text(v)
		}
	}
	text(string(body))
	h.Sum(d[:0])
	return d
}

// New returns the response for one more client.
func (r *Response) New() *api.Response {
	return &api.Response{Status: r.Status, Header: slices.Clone(r.Header), Body: r.Body}
}
