package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A Report is the result of one run, with its environment.
type Report struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Cores   int       `json:"cores"`
	Go      string    `json:"go"`
	Kernel  string    `json:"kernel"`
	Load    string    `json:"loadAverage"` // when the run began
	LoadEnd string    `json:"loadAverageAtEnd"`
	Short   bool      `json:"short"`
	// Rival replaces kube-apiserver in the tables if another program was measured instead.
	Rival    string `json:"rival,omitempty"`
	Pods     int    `json:"pods"`
	PodBytes int64  `json:"bytesOfPod"` // JSON size of one pod
	// Nginx is the version of nginx, or says that there was none.
	Nginx   string   `json:"nginx"`
	Results []Result `json:"results"`
}

func newReport(short bool, pods int, raw int64) *Report {
	return &Report{
		Date: time.Now().UTC().Truncate(time.Second), Machine: CPUModel(), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: firstLine("/proc/loadavg"),
		Short: short, Pods: pods, PodBytes: raw / int64(pods),
	}
}

func firstLine(file string) string {
	b, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// CPUModel returns the name of the processor.
func CPUModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Join replaces results with those of a later run and marks each of them as from that run, and from
// its machine if that differs.
func (r *Report) Join(later *Report) {
	note := "measured in a later run than most, " + later.Date.Format(time.DateTime+" MST")
	if later.Machine != r.Machine {
		note += ", on " + later.Machine
	}
	for _, res := range later.Results {
		res.Notes = append(slices.Clone(res.Notes), note)
		r.Results = slices.DeleteFunc(r.Results, func(old Result) bool { return old.Row == res.Row })
		r.Results = append(r.Results, res)
	}
	names := rowNames(Rows())
	slices.SortStableFunc(r.Results, func(a, b Result) int { return cmp.Compare(slices.Index(names, a.Row), slices.Index(names, b.Row)) })
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// markdownHead introduces the tables and says how to reproduce them.
const markdownHead = `# Benchmarks

%s, %d cores, Linux %s, %s, %s. Written by

    make bench BENCHARGS="-out docs/bench"

which starts a real etcd and kube-apiserver with %d pods of %.1f KB, kubeweir in front of it, and a *floor*: a bare
server that only sends the same bytes, by fasthttp over HTTP/1.1 and as gathered frames over HTTP/2. kube-apiserver has
the feature gates CBORServingAndStorage and ShardedListAndWatch on, which kubeweir does without. nginx is proxy_cache in
front of the same kube-apiserver, which checks no permission and is as old as its cache (%s). They are measured in turn,
in one run but where a note says otherwise, over TLS, by the same client: one connection with one request at a time over
HTTP/1.1, two over HTTP/2.
Rows of *standalone* compare kubeweir's own store with kube-apiserver and an etcd that syncs to disk, counted together.
Figures are processor time of the server where nothing else is said, so that what clients cost does not count; the
ratio is kube-apiserver : kubeweir. [bench.txt](bench.txt) has latencies, rates and sizes.

![Processor time beside kube-apiserver](bench.svg)

| | over | by | kube-apiserver | kubeweir | nginx | floor | ratio | target |
|---|---|---|--:|--:|--:|--:|--:|---|
`

// WriteMarkdown writes the report as a Markdown page that includes the chart.
func (r *Report) WriteMarkdown(w io.Writer) error {
	_, err := fmt.Fprintf(w, markdownHead, r.Machine, r.Cores, r.Kernel, r.Go, r.Date.Format(time.DateOnly), r.Pods, float64(r.PodBytes)/1e3, r.Nginx)
	for _, res := range r.Results {
		c := res.cells()
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %s |\n", res.Title, strings.Join(append(c[1:8:8], strings.TrimSpace(c[9]+" "+c[10])), " | "))
		}
	}
	if err == nil {
		_, err = fmt.Fprintln(w)
	}
	for _, res := range r.Results {
		for _, note := range res.Notes {
			if err == nil {
				_, err = fmt.Fprintf(w, "- %s, %s: %s\n", res.Title, res.Protocol, note)
			}
		}
	}
	return err
}

// WriteTable writes the report as plain text.
func (r *Report) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s  %s, %d cores, Linux %s, %s\n%d pods of %d bytes JSON; load average %s at the beginning, %s at the end\nnginx: %s\n\n",
		r.Date.Format(time.DateTime+" MST"), r.Machine, r.Cores, r.Kernel, r.Go, r.Pods, r.PodBytes, r.Load, r.LoadEnd, r.Nginx); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rival := cmp.Or(r.Rival, "kube-apiserver")
	fmt.Fprintln(t, "row\tover\tby\t"+rival+"\tkubeweir\tnginx\tfloor\t"+rival[:4]+":weir\tweir:floor\ttarget\t\tp50/p99 kube\tp50/p99 weir\tper s kube/weir\tbytes\tRSS kube/weir")
	for i := range r.Results {
		fmt.Fprintln(t, strings.Join(r.Results[i].cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		for _, note := range res.Notes {
			if _, err := fmt.Fprintf(w, "%s: %s\n", res.Row, note); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Result) cells() []string {
	value := func(s *Side) string {
		if s == nil {
			return "-"
		}
		return r.Quantity.Format(s.Value)
	}
	latencies := func(s *Side) string {
		if s == nil || s.P50 == 0 {
			return "-"
		}
		return fmt.Sprintf("%.*f/%.*f ms", decimals(s.P50), s.P50, decimals(s.P99), s.P99)
	}
	times := func(x float64) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf("%.*f", decimals(x), x)
	}
	met := ""
	if r.Met != nil {
		met = "MISSED"
		if *r.Met {
			met = "met"
		}
	}
	return []string{
		r.Row, string(r.Protocol), r.Unit, value(r.KubeAPIServer), value(r.Kubeweir), value(r.Nginx), value(r.Floor), times(r.Ratio), times(r.OverFloor),
		r.Target, met, latencies(r.KubeAPIServer), latencies(r.Kubeweir),
		pair(r, "%.0f", func(s *Side) float64 { return s.PerSecond }),
		pair(r, "%.0f", func(s *Side) float64 { return s.Bytes }),
		pair(r, "%.0f MB", func(s *Side) float64 { return mega(s.Resident) }),
	}
}

// pair formats a figure of kube-apiserver and of kubeweir, or one figure if both are the same.
func pair(r *Result, format string, get func(*Side) float64) string {
	figure := func(s *Side) string {
		if s == nil || get(s) == 0 {
			return "-"
		}
		return fmt.Sprintf(format, get(s))
	}
	a, b := figure(r.KubeAPIServer), figure(r.Kubeweir)
	if a == b {
		return a
	}
	return a + "/" + b
}
