package browser

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A chromium is a running browser. Its methods are called by one goroutine.
type chromium struct {
	t      *testing.T
	pid    int // of what drives it, whose child it is
	orders *json.Encoder
	said   chan report // closed when the browser is gone
}

// A report is what a tab tells: of the program in test/tools/chromium.
type report struct {
	Page   int    `json:"page"`
	Said   string `json:"said"`
	Opened bool   `json:"opened"`
}

// startChromium starts a browser that ends with the test, with a script in every page.
func startChromium(t *testing.T, script string) *chromium {
	t.Helper()
	driver, err := realkube.Tool(t.Context(), "chromium", ".")
	must(t, err)
	program, err := realkube.Installed(t.Context(), "chromium", "chromium")
	must(t, err)
	source, err := os.ReadFile(filepath.Join("testdata", script))
	must(t, err)
	cmd := exec.Command(driver, "-chromium", program, "-script", string(source))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b := &chromium{t: t, pid: cmd.Process.Pid, orders: json.NewEncoder(in), said: make(chan report, 1024)}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer close(b.said)
		reports := json.NewDecoder(bufio.NewReader(out))
		for {
			var r report
			if reports.Decode(&r) != nil {
				_ = cmd.Wait()
				return
			}
			select {
			case b.said <- r:
			case <-stop: // goes on reading, so that it can end
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		_ = in.Close() // at which it ends
		<-done
	})
	return b
}

// open opens a tab in a profile.
func (b *chromium) open(tab int, profile, url string) {
	b.t.Helper()
	must(b.t, b.orders.Encode(map[string]any{"page": tab, "profile": profile, "open": url}))
}

// tell tells a tab something.
func (b *chromium) tell(tab int, line any) {
	b.t.Helper()
	text, err := json.Marshal(line)
	must(b.t, err)
	must(b.t, b.orders.Encode(map[string]any{"page": tab, "tell": string(text)}))
}
