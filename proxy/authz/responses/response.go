package responses

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/inflight"
)

// Response is a response of the upstream to one user. It is shared and must not be changed once it
// was returned by fetch.
type Response struct {
	Status int
	Header api.Header
	Body   []byte
	// Slots, if not nil, has a slot of User for Body while responses made of it are in use.
	Slots *inflight.Limiter
	User  string
	// Keep is true if the response may be cached. Allowed selects for how long: as long as a
	// permission, or as a denial.
	Keep, Allowed bool
	// For, if not 0, limits the time.
	For time.Duration

	users      atomic.Int64 // responses in use
	generation uint64
}

// VaryingHeaders are the request headers that a response depends on. User-Agent is one because the
// upstream may record it as the manager of a field.
var VaryingHeaders = [...]string{"Accept", "Accept-Encoding", "Content-Type", "Origin", "User-Agent"}

// Digest identifies everything that a response depends on except the user. state stands for
// dependencies besides the request.
func Digest(r *api.Request, body []byte, state ...uint64) (d [sha256.Size]byte) {
	h := sha256.New()
	number := func(n uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n)) } // a hash never fails
	text := func(s string) {
		number(uint64(len(s)))
		_, _ = io.WriteString(h, s)
	}
	text(r.Path)
	text(r.RawQuery)
	for _, name := range VaryingHeaders {
		values := r.Header.Values(name)
		number(uint64(len(values)))
		for _, v := range values {
			text(v)
		}
	}
	text(string(body))
	for _, n := range state {
		number(n)
	}
	h.Sum(d[:0])
	return d
}

// New returns the response for one more client.
func (r *Response) New() *api.Response {
	resp := &api.Response{Status: r.Status, Header: slices.Clone(r.Header), Body: r.Body}
	if r.Slots != nil {
		if r.users.Add(1) == 1 {
			r.Slots.Take(r.User, 1)
		}
		resp.Done = func(int64, error) {
			if r.users.Add(-1) == 0 {
				r.Slots.Release(r.User, 1)
			}
		}
	}
	return resp
}
