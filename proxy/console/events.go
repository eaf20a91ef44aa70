package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	maxStreams = 16
	// maxTopics is the maximum number of topics of a stream.
	maxTopics = 4
	// eventPeriod is the time between two events of a topic.
	eventPeriod = time.Second
	// writeTimeout is how long a client may take to read an event.
	writeTimeout = 10 * time.Second
)

// serveEvents streams documents as server-sent events, until the client disconnects, its token
// changes, or the console is closed.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) error {
	queries, err := c.parseTopics(r)
	if err != nil {
		return err
	}
	defer c.streams.Add(-1)
	if c.streams.Add(1) > maxStreams {
		return &httpError{http.StatusServiceUnavailable, fmt.Sprintf("too many open pages: the console serves at most %d streams", maxStreams), "5"}
	}
	s := &stream{w: w, control: http.NewResponseController(w)}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // disables the buffering of proxies such as nginx
	ticker := time.NewTicker(eventPeriod)
	defer ticker.Stop()
	for {
		for _, q := range queries {
			body, err := c.docs.document(q)
			if err != nil { // the cluster was removed
				s.end(err.Error())
				return nil
			}
			s.event(q.name, body)
		}
		if s.flush() != nil {
			return nil
		}
		select {
		case <-ticker.C:
			if err := c.guard.check(r); err != nil { // the token has changed
				s.end(err.Error())
				return nil
			}
		case <-r.Context().Done():
			return nil
		case <-c.ctx.Done():
			s.end("shutting-down")
			return nil
		}
	}
}

// parseTopics parses the queries of a stream, one for each topic. It builds the documents once, to
// reject bad queries before the stream begins.
func (c *Console) parseTopics(r *http.Request) (queries []*query, err error) {
	values := r.URL.Query()
	names := strings.Split(values.Get("topics"), ",")
	if len(names) > maxTopics {
		return nil, badRequest("topics must have at most %d names", maxTopics)
	}
	for _, name := range slices.Compact(names) {
		q, err := parseQuery(name, values, true)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(c.pages(), name) {
			return nil, badRequest("there is no topic %q in this mode", name)
		}
		if _, err := c.docs.document(q); err != nil {
			return nil, err
		}
		queries = append(queries, q)
	}
	return queries, nil
}

// stream writes events to a client until an error, which flush returns.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (s *stream) event(name string, body []byte) {
	if s.err != nil {
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, s.err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, body)
}

func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}

// end writes the reason why the stream ends.
func (s *stream) end(reason string) {
	body, _ := json.Marshal(map[string]string{"reason": reason})
	s.event("end", body)
	_ = s.flush()
}
