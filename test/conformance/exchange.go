package conformance

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A response is everything that a target sends for a case.
type response struct {
	pages  []Response // one, or all pages with Walk
	frames []Frame    // of a watch
	end    string     // how a watch ended; "" if the client closed it
}

// maxPages bounds a walk along continue tokens.
const maxPages = 100

// exchange sends a case to a target.
func exchange(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, max(c.Timeout, requestTimeout))
	defer cancel()
	switch {
	case c.Handshake != nil:
		return shakeHands(ctx, t, c, as)
	case c.WebSocket:
		return dialWatch(ctx, t, c, as)
	case c.Watch:
		return readWatch(ctx, t, c, as)
	case c.Walk:
		return walk(ctx, t, c, as)
	default:
		return request(ctx, t, c, as)
	}
}

func request(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	r, err := t.Send(ctx, c.Request, as)
	a := response{pages: []Response{r}}
	if err != nil || c.Then == nil {
		return a, err
	}
	r, err = t.Send(ctx, c.Then(r), as)
	a.pages = append(a.pages, r)
	return a, err
}

// walk follows continue tokens from the first page to the last.
func walk(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	var a response
	for req := c.Request; ; {
		r, err := t.Send(ctx, req, as)
		if err != nil {
			return a, err
		}
		a.pages = append(a.pages, r)
		token := continueToken(r.Body)
		if token == "" || r.Status != http.StatusOK {
			return a, nil
		}
		if len(a.pages) == maxPages {
			return a, fmt.Errorf("%s: the list has more than %d pages", t.Name, maxPages)
		}
		req.Path = nextPage(c.Path, token)
	}
}

// nextPage puts a continue token into a list request, as client-go's pager does: it removes the
// version and keeps all other parameters.
func nextPage(path, token string) string {
	base, query, _ := strings.Cut(path, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return path
	}
	q.Del("resourceVersion")
	q.Del("resourceVersionMatch")
	q.Set("continue", token)
	return base + "?" + q.Encode()
}

// readWatch reads a watch over HTTP. The response to a rejected request is in pages.
func readWatch(ctx context.Context, t *Target, c Case, as Credentials) (response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := t.open(ctx, c.Request, as)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	head := Response{Status: resp.StatusCode, Header: resp.Header}
	if resp.StatusCode != http.StatusOK {
		head.Body, err = io.ReadAll(resp.Body)
		return response{pages: []Response{head}}, err
	}
	a := response{pages: []Response{head}}
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return a, fmt.Errorf("%s: gzip: %w", t.Name, err)
		}
	}
	r := bufio.NewReader(body)
	a.end, err = collect(ctx, &a.frames, c, func() (Frame, error) { return nextFrame(r, resp.Header.Get("Content-Type")) })
	if err != nil {
		return a, fmt.Errorf("%s: after %d events: %w", t.Name, len(a.frames), err)
	}
	return a, nil
}

// collect reads frames until the case has all it expects. It reports that the watch is open once
// the initial events have arrived. It ignores periodic bookmarks.
func collect(ctx context.Context, frames *[]Frame, c Case, next func() (Frame, error)) (end string, err error) {
	if c.Initial == 0 {
		reportOpened(ctx)
	}
	for c.UntilEOF || len(*frames) < max(c.Count, len(c.Events)) {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return "EOF", nil
		}
		if err != nil {
			return "", err
		}
		if f.Type == "BOOKMARK" && !f.marksInitialEnd() && (c.Initial > 0 || !slices.Contains(c.Events, "BOOKMARK")) {
			continue
		}
		f.At = time.Now()
		if *frames = append(*frames, f); len(*frames) == c.Initial {
			reportOpened(ctx)
		}
	}
	return "", nil
}
