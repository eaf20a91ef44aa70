package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kubeweir/kubeweir/internal/api"
)

// front is a plain HTTP server before a Client, for real clients. The edge is
// another package's matter.
func front(t testing.TB, c *Client, cred Credentials) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		r := &api.Request{
			Method: in.Method, Path: in.URL.Path, RawPath: in.URL.EscapedPath(), RawQuery: in.URL.RawQuery, Host: in.Host,
			RemoteAddr: in.RemoteAddr, Proto: in.Proto, Body: in.Body, ContentLength: in.ContentLength,
			Upgrade: in.Header.Get("Upgrade"),
		}
		for name, values := range in.Header {
			for _, v := range values {
				r.Header.Add(name, v)
			}
		}
		resp := c.Forward(in.Context(), r, cred)
		if resp.Upgrade != nil {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, switchOf(resp))
			resp.Upgrade(bufferedConn{conn, buffered.Reader})
			resp.Done(0, nil)
			return
		}
		for _, f := range resp.Header {
			w.Header().Add(f.Name, f.Value)
		}
		body, err := tryFinish(resp)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(resp.Status)
		_, _ = io.WriteString(w, body)
	}))
	meet(t, s)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// switchOf is the 101 as an edge writes it.
func switchOf(resp *api.Response) string {
	head := "HTTP/1.1 101 Switching Protocols\r\n"
	for _, f := range resp.Header {
		head += f.Name + ": " + f.Value + "\r\n"
	}
	return head + "\r\n"
}

type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
func (c bufferedConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// switching is an upstream that upgrades and then leaves the connection to serve.
func switching(t testing.TB, head string, serve func(net.Conn, *bufio.Reader)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, head)
		serve(conn, buffered.Reader)
	}
}

const plainSwitch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nSec-WebSocket-Accept: x=\r\n\r\n"

// dialUpgrade sends a request for an upgrade to addr, with bytes right behind it.
func dialUpgrade(t testing.TB, addr, early string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := dial(t, strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "POST /api/v1/namespaces/n/pods/p/exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\nAuthorization: Bearer t\r\n\r\n%s", early)
	return conn, bufio.NewReader(conn)
}

// readHead reads a response head as it is.
func readHead(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			t.Fatalf("after %q: %v", head.String(), err)
		}
		if line == "\r\n" {
			return head.String()
		}
	}
}

func TestUpgradePassesBytes(t *testing.T) {
	for name, options := range map[string][]serverOption{"upstream with HTTP2": nil, "without": {http1Only}} {
		t.Run(name, func(t *testing.T) {
			// The upstream speaks at once, with the very bytes of its 101.
			s := newServer(t, switching(t, plainSwitch+"hello", func(conn net.Conn, r *bufio.Reader) { _, _ = io.Copy(conn, r) }), options...)
			f := front(t, s.client(t), Credentials{})
			conn, r := dialUpgrade(t, f.URL, "early")
			head := readHead(t, r)
			for _, want := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Connection: Upgrade\r\n", "Upgrade: SPDY/3.1\r\n", "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n", "Sec-WebSocket-Accept: x=\r\n"} {
				if !strings.Contains(head, want) {
					t.Errorf("the 101 lacks %q: %q", want, head)
				}
			}
			got := make([]byte, len("helloearly"))
			if _, err := io.ReadFull(r, got); err != nil || string(got) != "helloearly" {
				t.Fatalf("%q, %v", got, err)
			}
			seen := s.last(t)
			if v := seen.Header.Values("X-Stream-Protocol-Version"); len(v) != 2 || seen.Header.Get("Authorization") != "Bearer t" {
				t.Errorf("the upstream saw %+v", seen.Header)
			}
			// Much in both directions.
			const size = 4 << 20
			go func() { _, _ = conn.Write(bytes.Repeat([]byte("x"), size)) }()
			if n, err := io.CopyN(io.Discard, r, size); n != size {
				t.Errorf("%d bytes came back: %v", n, err)
			}
		})
	}
}

func TestUpgradeEndsWithEitherSide(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		over := make(chan error, 1)
		s := newServer(t, switching(t, plainSwitch, func(conn net.Conn, r *bufio.Reader) {
			_, err := io.Copy(io.Discard, r)
			over <- err
		}))
		conn, r := dialUpgrade(t, front(t, s.client(t), Credentials{}).URL, "")
		readHead(t, r)
		conn.Close()
		within(t, over, "the end upstream")
	})
	t.Run("half of the client", func(t *testing.T) {
		s := newServer(t, switching(t, plainSwitch, func(conn net.Conn, r *bufio.Reader) {
			got, _ := io.ReadAll(r) // ends with the client's half
			fmt.Fprintf(conn, "%d bytes", len(got))
		}))
		conn, r := dialUpgrade(t, front(t, s.client(t), Credentials{}).URL, "12345")
		readHead(t, r)
		_ = conn.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(r); string(got) != "5 bytes" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("upstream", func(t *testing.T) {
		s := newServer(t, switching(t, plainSwitch+"bye", func(net.Conn, *bufio.Reader) {}))
		_, r := dialUpgrade(t, front(t, s.client(t), Credentials{}).URL, "")
		readHead(t, r)
		if got, err := io.ReadAll(r); string(got) != "bye" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a client that does not go", func(t *testing.T) {
		s := newServer(t, switching(t, plainSwitch, func(net.Conn, *bufio.Reader) {}))
		c := s.client(t, func(o *Options) { o.Limits.UpgradeLinger = 20 * time.Millisecond })
		conn, r := dialUpgrade(t, front(t, c, Credentials{}).URL, "")
		readHead(t, r)
		_, _ = io.ReadAll(r)
		// Its own half is open still: only the linger ends it.
		for {
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
		}
	})
	t.Run("gateway", func(t *testing.T) {
		s := newServer(t, switching(t, plainSwitch, func(conn net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }))
		c := s.client(t)
		_, r := dialUpgrade(t, front(t, c, Credentials{}).URL, "")
		readHead(t, r)
		c.Close()
		_, _ = io.ReadAll(r)
	})
	t.Run("never begun", func(t *testing.T) {
		over := make(chan struct{})
		s := newServer(t, switching(t, plainSwitch, func(conn net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
			close(over)
		}))
		resp := s.client(t).Forward(testContext(t), request("GET", "/", "Connection", "upgrade", "Upgrade", "x"), Credentials{})
		resp.Done(0, io.ErrClosedPipe)
		within(t, over, "the end upstream")
	})
}

func TestUpgradeRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		serve  http.HandlerFunc
		status int
		body   string
	}{
		"forbidden": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Audit-Id", "a")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no exec for you")
		}, 403, "no exec for you"},
		"plain answer": {func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "not an upgrade") }, 200, "not an upgrade"},
		"switches to nothing": {switching(t, "HTTP/1.1 101 Switching Protocols\r\n\r\n", func(net.Conn, *bufio.Reader) {
		}), 503, "broke"},
		"dies": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 503, "broke"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.serve)
			f := front(t, s.client(t), Credentials{})
			conn, r := dialUpgrade(t, f.URL, "")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			// The connection is still good for HTTP.
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(r, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUpgradeThatHangs(t *testing.T) {
	release := make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	defer close(release)
	c := s.client(t, func(o *Options) { o.Limits.RequestTimeout = 20 * time.Millisecond })
	resp := c.Forward(testContext(t), request("GET", "/x", "Connection", "Upgrade", "Upgrade", "x"), Credentials{})
	if resp.Status != 504 {
		t.Errorf("%d %s", resp.Status, resp.Body)
	}
}

func TestWebSocket(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		websocket.Server{
			Handshake: func(config *websocket.Config, r *http.Request) error {
				config.Protocol = config.Protocol[len(config.Protocol)-1:]
				return nil
			},
			Handler: func(ws *websocket.Conn) {
				for i := range 3 {
					_ = websocket.Message.Send(ws, fmt.Sprintf("event %d", i))
				}
			},
		}.ServeHTTP(w, r)
	})
	c := s.client(t, func(o *Options) { o.Config.BearerToken = "gateway-token" })
	for _, as := range []As{AsClient, AsGateway} {
		f := front(t, c, Credentials{As: as})
		target := strings.Replace(f.URL, "http://", "ws://", 1) + "/api/v1/pods?watch=1"
		config, err := websocket.NewConfig(target, "http://origin")
		if err != nil {
			t.Fatal(err)
		}
		config.Protocol = []string{tokenProtocol + "dG9rZW4", "base64.binary.k8s.io"}
		ws, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			var got string
			if err := websocket.Message.Receive(ws, &got); err != nil || got != fmt.Sprintf("event %d", i) {
				t.Errorf("%q, %v", got, err)
			}
		}
		var more string
		if err := websocket.Message.Receive(ws, &more); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		ws.Close()
		seen := s.last(t).Header
		if has := strings.Contains(seen.Get("Sec-Websocket-Protocol"), "dG9rZW4"); has != (as == AsClient) {
			t.Errorf("%v: the upstream saw the subprotocols %q", as, seen.Get("Sec-Websocket-Protocol"))
		}
		if got, want := seen.Get("Authorization"), map[As]string{AsGateway: "Bearer gateway-token"}[as]; got != want {
			t.Errorf("%v: the upstream saw the token %q", as, got)
		}
	}
}

// TestRemoteCommand runs what kubectl exec does, by SPDY and by WebSocket, against
// a node agent that echoes.
func TestRemoteCommand(t *testing.T) {
	s := newServer(t, echoAgent(t))
	f := front(t, s.client(t), Credentials{})
	target, err := url.Parse(f.URL + "/api/v1/namespaces/n/pods/p/exec?command=cat&stdin=true&stdout=true")
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (remotecommand.Executor, error){
		"SPDY": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(&rest.Config{Host: f.URL}, "POST", target)
		},
		"WebSocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(&rest.Config{Host: f.URL}, "GET", target.String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			executor, err := open()
			if err != nil {
				t.Fatal(err)
			}
			content := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
			var got bytes.Buffer
			err = executor.StreamWithContext(testContext(t), remotecommand.StreamOptions{Stdin: bytes.NewReader(content), Stdout: &got})
			if err != nil || !bytes.Equal(got.Bytes(), content) {
				t.Errorf("%d of %d bytes, %v", got.Len(), len(content), err)
			}
		})
	}
}

// echoAgent is the server's side of exec: standard input goes to standard output.
func echoAgent(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequest(r) {
			conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {
				Binary:   true,
				Channels: []wsstream.ChannelType{wsstream.ReadChannel, wsstream.WriteChannel, wsstream.IgnoreChannel, wsstream.WriteChannel, wsstream.IgnoreChannel},
			}})
			_, streams, err := conn.Open(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.Copy(streams[1], streams[0])
			_, _ = io.WriteString(streams[3], `{"metadata":{},"status":"Success"}`)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 3)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replySent <-chan struct{}) error {
			streams <- stream
			return nil
		})
		if conn == nil {
			return
		}
		defer conn.Close()
		byType := map[string]httpstream.Stream{}
		for range 3 {
			stream := <-streams
			byType[stream.Headers().Get("streamType")] = stream
		}
		_, _ = io.Copy(byType["stdout"], byType["stdin"])
		_ = byType["stdout"].Close()
		_, _ = io.WriteString(byType["error"], `{"metadata":{},"status":"Success"}`)
		_ = byType["error"].Close()
		<-conn.CloseChan()
	}
}
