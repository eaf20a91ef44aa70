package upstream

import (
	"context"
	"errors"
	"sync/atomic"
)

// mostSends is how often net/http may send one request to a server.
const mostSends = 4

var errReplayed = errors.New("the upstream breaks the request off again and again")

// replays counts how often net/http sends a request. It sends one again that the server
// ends by GOAWAY or REFUSED_STREAM, which was not processed, but also one ended by
// PROTOCOL_ERROR, on a new connection, at once and without end.
type replays struct{ n atomic.Int32 }

// sent is called before the request is sent, and may end it.
func (r *replays) sent(end context.CancelCauseFunc) {
	if r.n.Add(1) > mostSends {
		end(errReplayed)
	}
}
