package audit

import (
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
)

// File is the log backend, with the meanings of kube-apiserver's --audit-log flags.
type File struct {
	// Path is the file that events are appended to, "-" for Options.Stdout, or "" for none. The file is
	// created with mode 0600.
	Path string
	// MaxSize is the size in bytes above which the file is rotated, rounded up to MiB; 0 lets it grow.
	MaxSize int64
	// MaxBackups is how many rotated files are kept, at least one. MaxAge is for how many days; 0 for
	// any time. Compress compresses them.
	MaxBackups, MaxAge int
	Compress           bool
	// Format is json (the default) or legacy.
	Format string
	Delivery
}

// Webhook is the webhook backend, with the meanings of kube-apiserver's --audit-webhook flags.
type Webhook struct {
	// ConfigFile is a kubeconfig that names the server; "" for no webhook.
	ConfigFile     string
	InitialBackoff time.Duration
	Delivery
}

// file is the file of the log backend.
type file struct{ lumberjack.Logger }

// openFile checks that the file can be opened; the first event opens it.
func openFile(o *File) (*file, error) {
	opened, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		err = opened.Close()
	}
	if err != nil {
		return nil, err
	}
	megabytes := min((o.MaxSize-1)>>20+1, math.MaxInt32) // an int has 32 bits on some machines
	if o.MaxSize == 0 {
		megabytes = math.MaxInt32
	}
	return &file{lumberjack.Logger{
		Filename: o.Path, MaxSize: int(megabytes), MaxBackups: max(1, o.MaxBackups), MaxAge: o.MaxAge, Compress: o.Compress,
	}}, nil
}

// logInterval is how often errors of a backend are logged at most.
const logInterval = time.Minute

func rateLimited() *rate.Sometimes { return &rate.Sometimes{Interval: logInterval} }

// reportedWriter logs write errors, which the log backend does not return.
type reportedWriter struct {
	to   io.Writer
	path string
	log  *slog.Logger
	due  *rate.Sometimes
}

// Write implements io.Writer.
func (w *reportedWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		w.due.Do(func() { w.log.Error("writing the audit log failed", "path", w.path, "error", err) })
	}
	return n, err
}
