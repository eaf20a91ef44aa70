package edge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestResponseReportsStatus: at its end a response learns which status its client got, and it
// learns of a beginning only if there was one.
func TestResponseReportsStatus(t *testing.T) {
	type end struct {
		status  int
		started bool
	}
	ends := make(chan end, 1)
	responses := map[string]func() *api.Response{
		"/list":   func() *api.Response { return edgetest.Text("list") },
		"/stream": func() *api.Response { return edgetest.NewRecordingStream().Response() },
		"/duplex": func() *api.Response {
			d := &edgetest.RecordingDuplex{RecordingStream: edgetest.NewRecordingStream(), Received: make(chan string, 1)}
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Stream: d}
		},
		"/upgrade": func() *api.Response {
			return &api.Response{Status: 101, Header: edgetest.SwitchTo("x"), Upgrade: func(net.Conn) {}}
		},
		"/body": func() *api.Response {
			return &api.Response{Status: 200, Length: 5, BodyTo: edgetest.WriterTo(func(io.Writer) (int64, error) { return 0, errors.New("none") })}
		},
		"/impossible": func() *api.Response { return &api.Response{Status: 7} },
	}
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		resp, started := responses[r.Path](), false
		resp.Started = func() { started = true }
		resp.Done = func(int64, error) { ends <- end{resp.Status, started} }
		return resp
	})
	check := func(t *testing.T, status, wantStatus string, want end) {
		t.Helper()
		if status != wantStatus {
			t.Errorf("status %s, want %s", status, wantStatus)
		}
		if got := edgetest.Receive(t, ends, "Done"); got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
	}
	failed, rejected := end{500, false}, end{400, false}
	for _, tc := range []struct {
		path   string
		tunnel bool
		status string
		want   end
	}{
		{"/list", true, "400", rejected},
		{"/stream", true, "400", rejected},
		{"/upgrade", true, "200", end{101, true}},
		{"/upgrade", false, "500", failed},
		{"/duplex", false, "500", failed},
		{"/body", false, "500", failed},
		{"/impossible", false, "500", failed},
	} {
		t.Run("h2"+tc.path+" "+strconv.FormatBool(tc.tunnel), func(t *testing.T) {
			c := ts.DialFrames()
			var id uint32
			if tc.tunnel {
				id = c.Tunnel(tc.path)
			} else {
				id = c.Request("GET", tc.path, false)
			}
			check(t, c.Respond(id)[":status"], tc.status, tc.want)
		})
	}
	const upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n"
	for _, tc := range []struct {
		path, header string
		status       int
		want         end
	}{
		{"/upgrade", upgrade, 101, end{101, true}},
		{"/upgrade", upgrade + "Content-Length: 5\r\n", 400, rejected},
		{"/duplex", upgrade + "Content-Length: 5\r\n", 400, rejected},
		{"/upgrade", "", 500, failed},
		{"/body", "", 500, failed},
		{"/impossible", "", 500, failed},
	} {
		t.Run("http/1.1"+tc.path+" "+tc.header, func(t *testing.T) {
			c := ts.Dial()
			c.Send("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", tc.path, tc.header)
			check(t, strconv.Itoa(c.Head("GET").StatusCode), strconv.Itoa(tc.status), tc.want)
		})
	}
}
