package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// maxStreams is how many streams there are at most, maxTopics how many topics each has.
	maxStreams = 16
	maxTopics  = 4
	// eventStep is the time between two events of a topic; writeTimeout how long a client
	// may take for them.
	eventStep    = time.Second
	writeTimeout = 10 * time.Second
)

// serveEvents streams documents as server-sent events, until the client leaves or the console
// is closed.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) {
	asks, err := c.askedFor(r)
	if err != nil {
		c.failWith(w, err)
		return
	}
	if c.streams.Add(1) > maxStreams {
		c.streams.Add(-1)
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "too many pages of the console are open")
		return
	}
	defer c.streams.Add(-1)
	s := &stream{w: w, control: http.NewResponseController(w)}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // of proxies that hold back what they pass on
	ticker := time.NewTicker(eventStep)
	defer ticker.Stop()
	for {
		for _, a := range asks {
			body, err := c.document(a)
			if err != nil {
				s.end(err.Error()) // the cluster is gone
				return
			}
			s.event(a.topic, body)
		}
		if s.flush() != nil {
			return
		}
		select {
		case <-ticker.C:
			if _, err := c.guard.check(r); err != nil { // the token is another by now
				s.end(err.Error())
				return
			}
		case <-r.Context().Done():
			return
		case <-c.closing:
			s.end("shutting-down")
			return
		}
	}
}

// askedFor reads which topics a stream is to have.
func (c *Console) askedFor(r *http.Request) (asks []*ask, err error) {
	query := r.URL.Query()
	names := strings.Split(query.Get("topics"), ",")
	if len(names) > maxTopics {
		return nil, badParameter{"topics must be four at most"}
	}
	for _, name := range slices.Compact(names) {
		a, err := asked(name, query, true)
		if err != nil {
			return nil, err
		}
		if !c.has(name) {
			return nil, badParameter{"there is no topic " + name + " here"}
		}
		if _, err := c.document(a); err != nil { // what is wrong with it is told before the stream
			return nil, err
		}
		asks = append(asks, a)
	}
	return asks, nil
}

// stream is the answer to one client.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

// event writes an event. A client that does not read has until the deadline.
func (s *stream) event(name string, body []byte) {
	if s.err != nil {
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	for _, part := range [][]byte{[]byte("event: " + name + "\ndata: "), body, []byte("\n\n")} {
		if _, s.err = s.w.Write(part); s.err != nil {
			return
		}
	}
}

func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}

// end tells why the stream ends.
func (s *stream) end(reason string) {
	body, _ := json.Marshal(map[string]string{"reason": reason})
	s.event("end", body)
	_ = s.flush()
}
