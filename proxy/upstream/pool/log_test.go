package pool

import (
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFailuresAreLogged: of the same cause once a minute, with how many there were meanwhile; one
// of another cause soon.
func TestFailuresAreLogged(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l RateLimitedLog
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		err   error
		want  string
	}{
		{0, syscall.ECONNREFUSED, `msg=failed path=/x error="connection refused"`},
		{time.Millisecond, syscall.ECONNREFUSED, ""},
		{time.Millisecond, io.ErrUnexpectedEOF, ""},
		{time.Second, io.ErrUnexpectedEOF, `msg=failed path=/x unlogged=2 error="unexpected EOF"`},
		{2 * time.Second, io.EOF, ""}, // which is the same
		{time.Minute, io.ErrUnexpectedEOF, `msg=failed path=/x unlogged=1 error="unexpected EOF"`},
		{time.Minute, io.ErrUnexpectedEOF, `msg=failed path=/x error="unexpected EOF"`},
	} {
		now = now.Add(step.after)
		out.Reset()
		l.Warn(log, now, "failed", step.err, "path", "/x")
		if got := out.String(); !strings.Contains(got, step.want) || step.want == "" && got != "" {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
