package browser

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// A chromium is a running browser. Its methods must be called by one goroutine.
type chromium struct {
	t      *testing.T
	pid    int // of the driver, whose child it is
	orders *json.Encoder
	ended  chan report // closed when the browser has ended
	done   chan report // results of commands

	mu    sync.Mutex // guards wrong
	wrong []string
}

// A report is a message from a tab, in the format of test/tools/chromium.
type report struct {
	Page   int             `json:"page"`
	Output string          `json:"said"`
	Opened bool            `json:"opened"`
	Result json.RawMessage `json:"result"`
	Failed string          `json:"failed"`
	Wrong  string          `json:"wrong"`
}

// startChromium starts a browser that ends with the test and runs a script in every page.
func startChromium(t *testing.T, script string) *chromium {
	t.Helper()
	driver, err := realkube.Tool(t.Context(), "chromium", ".")
	must(t, err)
	program := testbed.Installed(t, "chromium", "chromium")
	source, err := os.ReadFile(filepath.Join("testdata", script))
	must(t, err)
	cmd := exec.Command(driver, "-chromium", program, "-script", string(source))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b := &chromium{t: t, pid: cmd.Process.Pid, orders: json.NewEncoder(in), ended: make(chan report, 1024), done: make(chan report, 1)}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer close(b.ended)
		defer close(b.done)
		reports := json.NewDecoder(bufio.NewReader(out))
		for {
			var r report
			if reports.Decode(&r) != nil {
				_ = cmd.Wait()
				return
			}
			b.hear(r, stop)
		}
	}()
	t.Cleanup(func() {
		close(stop)
		_ = in.Close() // which ends it
		<-done
	})
	return b
}

// hear delivers a report to its receiver. After stop it drops reports, so that the browser can end.
func (b *chromium) hear(r report, stop <-chan struct{}) {
	to := b.ended
	switch {
	case r.Wrong != "":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, r.Wrong)
		return
	case r.Result != nil || r.Failed != "":
		to = b.done
	}
	select {
	case to <- r:
	case <-stop:
	}
}

// errors returns the problems in pages since the last call.
func (b *chromium) errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := b.wrong
	b.wrong = nil
	return wrong
}

// command sends a command of the DevTools protocol to a tab.
func (b *chromium) command(t *testing.T, tab int, command string, params map[string]any, result any) {
	t.Helper()
	order := map[string]any{"page": tab, "command": command}
	if params != nil {
		order["params"] = params
	}
	must(t, b.orders.Encode(order))
	r, ok := <-b.done
	if !ok {
		t.Fatalf("the browser ended before the command %s", command)
	}
	if r.Failed != "" {
		t.Fatal(r.Failed)
	}
	if result != nil {
		must(t, json.Unmarshal(r.Result, result))
	}
}

// open opens a tab in a profile.
func (b *chromium) open(tab int, profile, url string) {
	b.t.Helper()
	must(b.t, b.orders.Encode(map[string]any{"page": tab, "profile": profile, "open": url}))
}

// send sends a message to a tab.
func (b *chromium) send(tab int, line any) {
	b.t.Helper()
	text, err := json.Marshal(line)
	must(b.t, err)
	must(b.t, b.orders.Encode(map[string]any{"page": tab, "tell": string(text)}))
}
