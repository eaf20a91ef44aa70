package api

import (
	"net/textproto"
	"slices"
	"strings"
)

// OfConnection reports whether a header line is hop-by-hop and therefore never forwarded (RFC 9110,
// 7.6.1). name is canonical.
func OfConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// NamedByConnection returns the canonical names of the additional hop-by-hop lines that the values
// of Connection lines name. It is nil if they name only lines that OfConnection knows.
func NamedByConnection(connection []string) map[string]struct{} {
	var named map[string]struct{}
	for _, line := range connection {
		for token := range strings.SplitSeq(line, ",") {
			token = textproto.TrimString(token)
			if token == "" || strings.EqualFold(token, "close") || strings.EqualFold(token, "keep-alive") || strings.EqualFold(token, "upgrade") {
				continue
			}
			if named == nil {
				named = make(map[string]struct{})
			}
			named[textproto.CanonicalMIMEHeaderKey(token)] = struct{}{}
		}
	}
	return named
}

// EndToEnd removes all hop-by-hop lines, including those that the client's Connection lines name.
// It keeps only "Te: trailers", which says that the client accepts trailers.
//
// Call it before adding lines to a request, or the client could have them removed; and after
// authentication, because a server that is not a proxy reads credentials whether Connection names
// them or not.
func (h *Header) EndToEnd() {
	if !slices.ContainsFunc(*h, func(f HeaderField) bool { return OfConnection(f.Name) }) {
		return
	}
	named := NamedByConnection(h.Values("Connection"))
	trailers := slices.ContainsFunc(h.Values("Te"), acceptsTrailers)
	*h = slices.DeleteFunc(*h, func(f HeaderField) bool {
		_, hop := named[f.Name]
		return hop || OfConnection(f.Name)
	})
	if trailers {
		h.Add("Te", "trailers")
	}
}

func acceptsTrailers(te string) bool {
	for token := range strings.SplitSeq(te, ",") {
		if strings.EqualFold(textproto.TrimString(token), "trailers") {
			return true
		}
	}
	return false
}
