package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Options configure Run. The zero value measures everything, as precisely as the published table.
type Options struct {
	// Rows are names of rows. Empty means all.
	Rows []string
	// Short measures little, with fewer pods: it shows that the driver works, not how fast the
	// servers are.
	Short bool
	// Pods is the number of pods in the cluster. 0 means 5,000, or 1,000 if Short is set.
	Pods int
	// Binary is the path of kubeweir. If empty, Run builds it.
	Binary string
	// Nginx is the path of nginx. If empty, Run uses an installed nginx, if any.
	Nginx string
	// Against is the path of another build of kubeweir to measure in kube-apiserver's place, which
	// shows the effect of a change. Rows of memory and of standalone ignore it.
	Against string
	// Profile is a folder. If set, Run writes the gateway's profiles of each row there instead of
	// measuring.
	Profile string
	// Progress, if not nil, receives progress messages in the style of fmt.Printf.
	Progress func(format string, args ...any)
}

// Run starts everything, measures the rows and stops everything. After an error the report contains
// the rows measured so far; it is nil only if nothing was started. ServeFloor must have been called
// before.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	rows, err := Choose(Rows(), o.Rows)
	if err != nil {
		return nil, err
	}
	e := fullEffort()
	if o.Short {
		e = shortEffort()
	}
	if o.Pods > 0 {
		e.pods = o.Pods
	}
	progress := o.Progress
	if progress == nil {
		progress = func(string, ...any) {}
	}
	nginxPath := findNginx()
	if o.Nginx != "" {
		if nginxPath, err = exec.LookPath(o.Nginx); err != nil {
			return nil, fmt.Errorf("-nginx: %w", err)
		}
	}
	if err := raiseFileLimit(); err != nil {
		return nil, err
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return nil, err
		}
	}
	bed, err := newTestbed(ctx, o.Binary, e, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.close()) }()
	bed.nginxPath = nginxPath
	m := &measurer{bed: bed, effort: e, profile: o.Profile, against: o.Against}
	report := newReport(o.Short, e.pods, bed.rawBytes)
	report.Nginx = "not installed, and left out"
	if bed.nginxPath != "" {
		report.Nginx = nginxVersion(ctx, bed.nginxPath)
	}
	if o.Against != "" {
		report.Rival = "against"
	}
	for i := range rows {
		begin := time.Now()
		d, err := m.measure(ctx, &rows[i])
		if err != nil {
			return report, err
		}
		r := m.resultOf(&rows[i], d, report.Results)
		report.Results = append(report.Results, r)
		progress("%s", r.line(time.Since(begin)))
	}
	report.LoadEnd = firstLine("/proc/loadavg")
	return report, nil
}

// line summarizes the result in one line.
func (r *Result) line(took time.Duration) string {
	out := fmt.Sprintf("%-23s", r.Row)
	for i, name := range []string{"kube", "weir", "nginx", "floor"} {
		if s := r.sides()[i]; s != nil {
			out += fmt.Sprintf(" %s %s", name, r.Quantity.Format(s.Value))
		}
	}
	if r.Ratio > 0 {
		out += fmt.Sprintf(", %.1f x", r.Ratio)
	}
	return out + fmt.Sprintf(" (%s)", took.Round(time.Second/10))
}

// raiseFileLimit raises the limit of open files to the hard limit: every watch needs one.
func raiseFileLimit() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	const wanted = 65536
	l.Max = max(l.Max, l.Cur)
	l.Cur = min(l.Max, wanted)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	return nil
}
