package h1

import (
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// framing is how the end of a response body is known.
type framing struct {
	// length is the Content-Length; -1: none is sent.
	length  int64
	chunked bool
	// close ends the connection after the response.
	close bool
}

// appendHead writes a status line and header lines: those of the handler as they
// are given, in order, but for the ones that belong to the connection.
func (c *conn) appendHead(dst []byte, x *exchange, status int, header api.Header, f framing) []byte {
	proto := "HTTP/1.1 "
	if x.http10 {
		proto = "HTTP/1.0 "
	}
	dst = append(dst, proto...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, fasthttp.StatusMessage(status)...)
	dst = append(dst, "\r\n"...)
	date := false
	for i := range header {
		name, value := header[i].Name, header[i].Value
		switch {
		case edge.IsFraming(name, x.head):
			continue
		case len(name) == len("Date") && strings.EqualFold(name, "Date"):
			date = true
		}
		if !edge.ValidName(name) {
			continue
		}
		dst = append(dst, name...)
		dst = append(dst, ": "...)
		dst = edge.AppendValue(dst, value)
		dst = append(dst, "\r\n"...)
	}
	if !date {
		dst = append(dst, "Date: "...)
		dst = c.Date.Append(dst)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case f.chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case f.length >= 0:
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, f.length, 10)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case f.close:
		dst = append(dst, "Connection: close\r\n"...)
	case x.http10:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(dst, "\r\n"...)
}
