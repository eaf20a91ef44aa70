package api

import (
	"net/url"
	"strings"
	"time"
)

// maxParameters is how many parameters, empty ones included, the query of an exact
// request may have (see RequestInfo.Exact). Kubernetes has some fifteen, each once.
const maxParameters = 64

// maxSelectorTerms is how many terms, values of sets included, each selector of an
// exact request may have. What matching costs grows with them, for as long as a
// watch lasts.
const maxSelectorTerms = 100

// maxShardSelector is how many bytes the shardSelector of an exact request may have: room
// for a hundred ranges. To parse it takes microseconds for each byte.
const maxShardSelector = 10 << 10

// parameter numbers the parameters that are known.
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
	// paramCoalesce is kubeweir's own. Others pass over it, and the watch is one without.
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

// query is a raw query, decoded once. As everywhere in Kubernetes the first value
// of a parameter counts.
type query struct {
	values [numParameters]string
	seen   uint // bit p is set when values[p] came
	// exact is set when the query can be read in one way only: every parameter is
	// known, comes once, is well-formed and has a value in printable ASCII. What an
	// upstream of another version, or a proxy before it, makes of any other is not
	// known here.
	exact bool
	// own are the parameters that only kubeweir has, nil without any.
	own *Query
}

// parseQuery reads as net/url.ParseQuery does: empty and malformed parameters (bad
// escapes, semicolons) are passed over.
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
			q.addOwn(keyOf(pair), "") // others pass over it, and over what it narrows
		}
		if p == noParameter || q.has(p) {
			q.exact = ok && p == noParameter && q.addOwn(key, value) && q.exact
			continue
		}
		q.seen |= 1 << p
		q.values[p] = value
		// What is not escaped has been looked at.
		q.exact = q.exact && (strings.IndexByte(pair, '%') < 0 || printable(value))
	}
	return q
}

// addOwn takes a parameter that only kubeweir has, the first time it comes; else it
// reports false.
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

// decodePair unescapes a parameter; ok is false for malformed ones.
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

// keyOf is the name of a malformed parameter, "" if that cannot be read.
func keyOf(pair string) string {
	key, _, _ := strings.Cut(pair, "=")
	key, _ = url.QueryUnescape(key)
	return key
}

// plainQuery reports whether a query has none of the characters that should have
// come escaped, and at which others end it or change it.
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

// fewTerms reports whether the selectors are within maxSelectorTerms.
func (q *query) fewTerms() bool {
	return strings.Count(q.values[paramLabelSelector], ",") < maxSelectorTerms &&
		strings.Count(q.values[paramFieldSelector], ",") < maxSelectorTerms
}

// minTimeout is the shortest timeout of a read that a cache may answer. Whether a shorter one is over is the upstream's to
// say, with 504.
const minTimeout = 10 * time.Millisecond

// servableTimeout reports whether the timeout parameter, which upstream parses for all but long-running requests, is absent,
// or well-formed and no shorter than minTimeout. Upstream ignores one that is zero or negative.
func (q *query) servableTimeout() bool {
	if q.values[paramTimeout] == "" {
		return true
	}
	timeout, err := time.ParseDuration(q.values[paramTimeout])
	return err == nil && (timeout <= 0 || timeout >= minTimeout)
}
