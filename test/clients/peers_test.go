package clients

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// goPeer is x/net's client, configured in the way of client-go.
type goPeer struct {
	url    string
	client *http.Client
}

func newGoPeer(t *testing.T, url string) peer {
	t.Helper()
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: kube.ServingCAs()}, DisableCompression: true, ExpectContinueTimeout: 10 * time.Second,
	})
	t.Cleanup(transport.CloseIdleConnections)
	return &goPeer{url: url, client: &http.Client{Transport: transport}}
}

func (p *goPeer) start(x *exchange, r request) {
	ctx, cancel := context.WithCancel(context.Background())
	resumed, resume := context.WithCancel(ctx)
	x.resume, x.cancel = resume, cancel
	var informational []int
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		informational = append(informational, code)
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.Method, p.url+r.Path, strings.NewReader(r.Body))
	if err != nil {
		x.end(err)
		return
	}
	if r.Body == "" && r.Trailer == nil {
		req.Body = http.NoBody
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	for k, v := range r.Trailer {
		if req.Trailer == nil {
			req.Trailer = http.Header{}
			req.ContentLength = -1
		}
		req.Trailer.Set(k, v)
	}
	go func() {
		defer cancel()
		resp, err := p.client.Do(req)
		if err != nil {
			x.end(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		protocol := ""
		if resp.ProtoMajor == 2 {
			protocol = "h2"
		}
		x.begin(head{Status: resp.StatusCode, Informational: informational, Protocol: protocol})
		if r.Hold {
			<-resumed.Done()
		}
		x.read(resp.Body)
	}()
}

// curlPeer starts a curl for each request.
type curlPeer struct{ program, url string }

func newCurlPeer(t *testing.T, url string) peer {
	t.Helper()
	return &curlPeer{program: installed(t, "curl", "curl"), url: url}
}

func (p *curlPeer) start(x *exchange, r request) {
	args := []string{"--http2", "--silent", "--show-error", "--dump-header", "-", "--no-buffer", "--cacert", kube.ServingCAFile(),
		"--request", r.Method, p.url + r.Path}
	for k, v := range r.Header {
		args = append(args, "--header", k+": "+v)
	}
	if r.Body != "" {
		args = append(args, "--data-binary", "@-")
	}
	ctx, cancel := context.WithCancel(context.Background())
	resumed, resume := context.WithCancel(ctx)
	x.resume, x.cancel = resume, cancel
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Stdin = strings.NewReader(r.Body)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		x.end(err)
		return
	}
	go func() {
		defer cancel()
		lines := bufio.NewReader(out)
		h, err := readHead(lines)
		if err == nil {
			x.begin(h)
			if r.Hold {
				<-resumed.Done()
			}
			for buf := make([]byte, 64<<10); err == nil; {
				var n int
				n, err = lines.Read(buf)
				x.data(string(buf[:n]))
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if waitErr := cmd.Wait(); waitErr != nil {
			err = fmt.Errorf("%w: %s", waitErr, stderr.String())
		}
		x.end(err)
	}()
}

// readHead reads what curl prints before the body.
func readHead(in *bufio.Reader) (head, error) {
	var h head
	for {
		var version string
		var status int
		line, err := in.ReadString('\n')
		if err != nil {
			return h, err
		}
		if _, err := fmt.Sscanf(line, "HTTP/%s %d", &version, &status); err != nil {
			return h, fmt.Errorf("%q: %w", line, err)
		}
		if _, err := textproto.NewReader(in).ReadMIMEHeader(); err != nil {
			return h, err
		}
		if status >= 200 {
			h.Status = status
			if version == "2" {
				h.Protocol = "h2"
			}
			return h, nil
		}
		h.Informational = append(h.Informational, status)
	}
}

func newNodePeer(t *testing.T, url string) peer {
	t.Helper()
	return runScript(t, installed(t, "node", "nodejs"), script("client.mjs"), url, kube.ServingCAFile())
}

// python is Debian's, for which its package of h2 is installed.
const python = "/usr/bin/python3"

// newPythonPeer returns a client whose flow-control window per response is the given number of
// bytes; 0 means h2's default.
func newPythonPeer(window string) func(t *testing.T, url string) peer {
	return func(t *testing.T, url string) peer {
		t.Helper()
		if exec.Command(python, "-c", "import h2").Run() != nil {
			testbed.Install(t, "python3-h2")
		}
		host, port, err := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
		must(t, err)
		return runScript(t, python, script("client.py"), host, port, kube.ServingCAFile(), window)
	}
}

// newChromiumPeer opens a page of the gateway in Chromium in which a script sends the requests.
func newChromiumPeer(t *testing.T, url string) peer {
	t.Helper()
	browser, err := realkube.Tool(t.Context(), "chromium", ".")
	must(t, err)
	page, err := os.ReadFile(script("page.js"))
	must(t, err)
	s := &scripted{exchanges: map[int]*exchange{}}
	opened := make(chan error, 1)
	say := runLines(t, func(line []byte) error {
		var l struct {
			Opened bool   `json:"opened"`
			Output string `json:"said"`
			Wrong  string `json:"wrong"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if l.Opened {
			opened <- nil
			return nil
		}
		if l.Wrong != "" {
			return nil // the page's console, which reports every 404
		}
		return s.hear([]byte(l.Output))
	}, func(err error) {
		s.lost(err)
		select {
		case opened <- err:
		default:
		}
	}, browser, "-chromium", installed(t, "chromium", "chromium"), "-script", string(page))
	s.say = func(line any) error {
		b, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return say(map[string]any{"page": 1, "tell": string(b)})
	}
	must(t, say(map[string]any{"page": 1, "open": url + "/livez"}))
	must(t, <-opened)
	return s
}

func script(name string) string { return filepath.Join("testdata", name) }

// installed returns the path of a program and installs it if necessary.
func installed(t *testing.T, program, pkg string) string {
	t.Helper()
	return testbed.Installed(t, program, pkg)
}
