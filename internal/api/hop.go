package api

import (
	"net/textproto"
	"slices"
	"strings"
)

// OfConnection reports whether a header line belongs to one connection and is
// never passed on (RFC 9110, 7.6.1). name is canonical.
func OfConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// NamedByConnection is the set of the lines, by their canonical names, that the
// values of Connection lines name besides: they belong to the connection, too. It
// is nil where those name nothing but what OfConnection knows.
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

// EndToEnd leaves the lines that are for the server behind every proxy: what
// belongs to the connection goes, and what the client's Connection lines name.
// Only a willingness to take trailers stays, as "Te: trailers".
//
// Whatever is added to a request on its way must be added afterwards, or its
// client could have it dropped; and who the client is must be found out before,
// because a server, which is no proxy, reads credentials whether Connection names
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
