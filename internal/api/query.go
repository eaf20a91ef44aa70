package api

import (
	"net/url"
	"strconv"
	"strings"
)

// nextParameter cuts the first well-formed parameter off a raw query and
// returns it unescaped, with what follows it. It reads as net/url.ParseQuery
// does: empty and malformed parameters (bad escapes, semicolons) are passed
// over. ok is false when none is left.
func nextParameter(query string) (key, value, rest string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}
		key, value, _ = strings.Cut(pair, "=")
		var err error
		if key, err = url.QueryUnescape(key); err != nil {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			continue
		}
		return key, value, query, true
	}
	return "", "", "", false
}

// queryValue returns the first value of a parameter of a raw query.
func queryValue(query, name string) (value string, ok bool) {
	if !mayContainParameter(query, name) {
		return "", false
	}
	for {
		key, value, rest, more := nextParameter(query)
		if !more {
			return "", false
		}
		if key == name {
			return value, true
		}
		query = rest
	}
}

// mayContainParameter is a cheap test that is false only for a query that
// cannot contain the named parameter (which may also be spelled with escapes).
func mayContainParameter(query, name string) bool {
	return query != "" && (strings.Contains(query, name) || strings.Contains(query, "%"))
}

// Pretty tells whether a JSON body is to be indented: the pretty parameter
// decides where it is present and not empty, otherwise the user agents of
// people do (k8s.io/apiserver/pkg/endpoints/handlers/negotiation).
func Pretty(rawQuery, userAgent string) bool {
	if value, _ := queryValue(rawQuery, "pretty"); value != "" {
		pretty, _ := strconv.ParseBool(value)
		return pretty
	}
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}
