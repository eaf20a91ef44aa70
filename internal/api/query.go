package api

import (
	"net/url"
	"strings"
	"time"
)

// maxParameters limits how many parameters, including empty ones, the query of an exact request may
// have (see RequestInfo.Exact). Kubernetes has some fifteen, each once.
const maxParameters = 64

// maxSelectorTerms limits the terms, including values of sets, of each selector of an exact
// request. The cost of matching grows with them for as long as a watch lasts.
const maxSelectorTerms = 100

// maxShardSelector limits the bytes of the shardSelector of an exact request. There is room for a
// hundred ranges. Parsing takes microseconds per byte.
const maxShardSelector = 10 << 10

// parameter numbers the known parameters.
type parameter uint

const (
	noParameter parameter = iota
	paramLabelSelector
	paramFieldSelector
	paramWatch
	paramAllowWatchBookmarks
	paramResourceVersion
	paramResourceVersionMatch
	paramTimeoutSeconds
	paramLimit
	paramContinue
	paramSendInitialEvents
	paramShardSelector
	paramTimeout
	paramPretty
	paramIncludeObject
	// paramCoalesce is kubeweir's own. Other servers ignore it and serve an ordinary watch.
	paramCoalesce
	numParameters
)

func parameterNamed(name string) parameter {
	switch name {
	case "labelSelector":
		return paramLabelSelector
	case "fieldSelector":
		return paramFieldSelector
	case "watch":
		return paramWatch
	case "allowWatchBookmarks":
		return paramAllowWatchBookmarks
	case "resourceVersion":
		return paramResourceVersion
	case "resourceVersionMatch":
		return paramResourceVersionMatch
	case "timeoutSeconds":
		return paramTimeoutSeconds
	case "limit":
		return paramLimit
	case "continue":
		return paramContinue
	case "sendInitialEvents":
		return paramSendInitialEvents
	case "shardSelector":
		return paramShardSelector
	case "timeout":
		return paramTimeout
	case "pretty":
		return paramPretty
	case "includeObject":
		return paramIncludeObject
	case "coalesce":
		return paramCoalesce
	}
	return noParameter
}

// query is a raw query, decoded once. As everywhere in Kubernetes, the first value of a parameter
// counts.
type query struct {
	values [numParameters]string
	seen   uint // bit p is set if values[p] was sent
	// exact is set if the query can be read in only one way: every parameter is known, appears
	// once, is well-formed and has a value in printable ASCII. An upstream of another version, or a
	// proxy before it, might read any other query differently.
	exact bool
	// own holds the parameters that only kubeweir has, nil without any.
	own *Query
}

// parseQuery parses like net/url.ParseQuery: it ignores empty and malformed parameters (invalid
// escapes, semicolons).
func parseQuery(raw string) (q query) {
	q.exact = plainQuery(raw) && strings.Count(raw, "&") < maxParameters
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		key, value, ok := decodePair(pair)
		p := noParameter
		if ok {
			p = parameterNamed(key)
		} else {
			q.addOwn(keyOf(pair), "") // other servers ignore it, and so its restriction
		}
		if p == noParameter || q.has(p) {
			q.exact = ok && p == noParameter && q.addOwn(key, value) && q.exact
			continue
		}
		q.seen |= 1 << p
		q.values[p] = value
		// Values without escapes have been checked above.
		q.exact = q.exact && (strings.IndexByte(pair, '%') < 0 || printable(value))
	}
	return q
}

// addOwn stores a parameter that only kubeweir has. It returns false for others and for repeated
// ones.
func (q *query) addOwn(name, value string) bool {
	p, known := queryParameterNamed(name)
	if !known {
		return false
	}
	if q.own == nil {
		q.own = new(Query)
	}
	return q.own.set(p, value) && printable(value)
}

func (q *query) has(p parameter) bool { return q.seen&(1<<p) != 0 }

// decodePair unescapes a parameter. ok is false if it is malformed.
func decodePair(pair string) (key, value string, ok bool) {
	if strings.IndexByte(pair, ';') >= 0 {
		return "", "", false
	}
	key, value, _ = strings.Cut(pair, "=")
	var err error
	if key, err = url.QueryUnescape(key); err != nil {
		return "", "", false
	}
	if value, err = url.QueryUnescape(value); err != nil {
		return "", "", false
	}
	return key, value, true
}

// keyOf returns the name of a malformed parameter, "" if the name cannot be read.
func keyOf(pair string) string {
	key, _, _ := strings.Cut(pair, "=")
	key, _ = url.QueryUnescape(key)
	return key
}

// plainQuery reports whether a query has no characters that must be escaped and at which other
// parsers end or change it.
func plainQuery(raw string) bool {
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return false
		}
	}
	return true
}

// printable reports whether s is printable ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// fewTerms reports whether the selectors have at most maxSelectorTerms.
func (q *query) fewTerms() bool {
	return strings.Count(q.values[paramLabelSelector], ",") < maxSelectorTerms &&
		strings.Count(q.values[paramFieldSelector], ",") < maxSelectorTerms
}

// minTimeout is the shortest timeout of a read that the cache may serve. The upstream decides
// whether a shorter one has expired, with 504.
const minTimeout = 10 * time.Millisecond

// servableTimeout reports whether the timeout parameter is absent, or well-formed and not shorter
// than minTimeout. The upstream parses it for all but long-running requests, and ignores one that
// is zero or negative.
func (q *query) servableTimeout() bool {
	if q.values[paramTimeout] == "" {
		return true
	}
	timeout, err := time.ParseDuration(q.values[paramTimeout])
	return err == nil && (timeout <= 0 || timeout >= minTimeout)
}
