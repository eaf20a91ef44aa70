package security

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHeadByteByByteDoesNotTakeTheProcessor checks that parsing request headers that arrive in TLS
// records of one byte takes linear time. It once was quadratic: more than six seconds of CPU time
// before authentication.
func TestHeadByteByByteDoesNotTakeTheProcessor(t *testing.T) {
	g := startGateway(t)
	ctx := deadline(t, time.Minute)
	used := func() float64 {
		m, err := g.Metrics(ctx)
		must(t, err)
		return m.Sum("process_cpu_seconds_total", nil)
	}
	var head strings.Builder
	head.WriteString("GET /version HTTP/1.1\r\nHost: x\r\n")
	for i := 0; head.Len() < 60<<10; i++ {
		fmt.Fprintf(&head, "N%d: v\r\n", i)
	}
	head.WriteString("\r\n")
	before := used()
	var wg sync.WaitGroup
	for range 2 {
		conn := dial(t, g.URL(), nil, "http/1.1")
		wg.Go(func() {
			for _, b := range []byte(head.String()) {
				if _, err := conn.Write([]byte{b}); err != nil {
					t.Error(err)
					return
				}
			}
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 401"))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if took := used() - before; took > 8 {
		t.Errorf("two requests took %.1f seconds of CPU time", took)
	}
}
