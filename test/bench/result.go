package bench

import (
	"cmp"
	"fmt"
	"time"
)

// A Quantity is what a row compares.
type Quantity string

// The quantities, with their units in results.
const (
	CPU     Quantity = "cpu_us"     // processor time of the server, in microseconds
	Latency Quantity = "latency_ms" // milliseconds
	Elapsed Quantity = "elapsed_ms" // milliseconds; for kubeweir not the difference from kube-apiserver
	Memory  Quantity = "bytes"      // resident bytes
)

// A Side is the result of one server.
type Side struct {
	// Value is the row's quantity per unit. In a row of kind Write, kubeweir's value is what it
	// adds to kube-apiserver's.
	Value float64 `json:"value"`
	// GrossCPU is the processor time per unit in microseconds, before the cost of the writes
	// themselves is subtracted.
	GrossCPU float64 `json:"grossCPU,omitempty"`
	// OwnCPU is the part of the server's own process, where another process's time counts too.
	OwnCPU float64 `json:"ownCPU,omitempty"`
	Count  int64   `json:"count,omitempty"`
	// CPUSeconds is the total from which Value was computed.
	CPUSeconds float64 `json:"cpuSeconds,omitempty"`
	// P50 and P99 are latencies in milliseconds: of requests until the end of the body, of events
	// from the beginning of the write until the watcher receives it.
	P50 float64 `json:"p50_ms,omitempty"`
	P99 float64 `json:"p99_ms,omitempty"`
	// PerSecond is how many units per second this client on this machine got.
	PerSecond float64 `json:"perSecond,omitempty"`
	// Bytes is the size of a unit as sent. Only for watches it includes the framing of chunks.
	Bytes float64 `json:"bytesPerUnit,omitempty"`
	// Resident is the process's memory in bytes right after the row.
	Resident int64 `json:"residentBytes,omitempty"`
}

// A Result is one line of the table.
type Result struct {
	Row      string   `json:"row"`
	Title    string   `json:"title"`
	Protocol Protocol `json:"protocol"`
	Unit     string   `json:"unit"`
	Quantity Quantity `json:"quantity"`

	KubeAPIServer *Side `json:"kubeAPIServer,omitempty"`
	Kubeweir      *Side `json:"kubeweir,omitempty"`
	// Nginx is measured where its cache can respond, because the request does not need fresh data.
	Nginx *Side `json:"nginx,omitempty"`
	Floor *Side `json:"floor,omitempty"`

	// Ratio is kube-apiserver : kubeweir, OverFloor kubeweir : floor; 0 if unknown.
	Ratio     float64 `json:"ratio,omitempty"`
	OverFloor float64 `json:"overFloor,omitempty"`
	// Target is the target in words, Met whether it is met: nil without a target or if unknown.
	Target string   `json:"target,omitempty"`
	Met    *bool    `json:"met,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// resultOf makes a line of the table from the measurements. earlier are the lines before it.
func (m *measurer) resultOf(r *Row, d *measured, earlier []Result) Result {
	out := Result{Row: r.Name, Title: r.Title, Protocol: r.protocol(), Unit: r.unit(), Quantity: r.quantity(), Notes: d.notes}
	switch out.Quantity {
	case Memory:
		out.KubeAPIServer, out.Kubeweir = memorySide(d.apiserverBytes), memorySide(d.kubeweirBytes)
	default:
		out.KubeAPIServer, out.Kubeweir = sideOf(&d.apiserver), sideOf(&d.kubeweir)
		out.Nginx, out.Floor = sideOf(&d.nginx), sideOf(&d.floor)
		if out.Quantity == Latency && out.KubeAPIServer != nil && out.Kubeweir != nil {
			out.KubeAPIServer.Value = out.KubeAPIServer.P50
			out.Kubeweir.Value = out.Kubeweir.P50 - out.KubeAPIServer.P50
		}
		if out.Quantity == Elapsed {
			for _, side := range []*Side{out.KubeAPIServer, out.Kubeweir} {
				if side != nil {
					side.Value = side.P50
				}
			}
		}
		if m.current != nil {
			m.remember(out.KubeAPIServer, m.current.rival)
			m.remember(out.Kubeweir, m.current.kubeweir.server)
		}
	}
	if out.Quantity != Latency {
		out.Ratio = ratio(out.KubeAPIServer, out.Kubeweir)
		out.OverFloor = ratio(out.Kubeweir, out.Floor)
	}
	if m.profile == "" && m.against == "" && m.effort.judged {
		out.judge(r.Target, cmp.Or(d.raw, m.bed.rawBytes), earlier)
	}
	return out
}

// remember records a process's memory; 0 if the process has ended.
func (m *measurer) remember(s *Side, of *server) {
	if s != nil {
		s.Resident, _, _ = residentMemory(of.pid)
	}
}

func memorySide(bytes *int64) *Side {
	if bytes == nil {
		return nil
	}
	return &Side{Value: float64(*bytes)}
}

func sideOf(t *tally) *Side {
	if t.count == 0 {
		return nil
	}
	n := float64(t.count)
	return &Side{
		Value: micro(t.cpu-t.deducted) / n, GrossCPU: micro(t.cpu) / n, OwnCPU: micro(t.own) / n,
		Count: t.count, CPUSeconds: (t.cpu - t.deducted).Seconds(),
		P50: milli(percentile(t.latencies, 0.50)), P99: milli(percentile(t.latencies, 0.99)),
		PerSecond: n / t.wall.Seconds(), Bytes: float64(t.bytes) / n,
	}
}

// ratio returns a : b, or 0 if either is missing or too small to measure.
func ratio(a, b *Side) float64 {
	if a == nil || b == nil || a.Value <= 0 || b.Value <= 0 {
		return 0
	}
	return a.Value / b.Value
}

// Format formats a value of the quantity with a unit.
func (q Quantity) Format(v float64) string {
	switch q {
	case Memory:
		if v < 1<<20 {
			return fmt.Sprintf("%.1f KiB", v/(1<<10))
		}
		return fmt.Sprintf("%.0f MB", v/1e6)
	case Latency, Elapsed:
		return fmt.Sprintf("%.2f ms", v)
	}
	if v >= 1000 {
		return fmt.Sprintf("%.*f ms", decimals(v/1000), v/1000)
	}
	return fmt.Sprintf("%.*f us", decimals(v), v)
}

// decimals returns how many decimals show about three digits.
func decimals(v float64) int {
	switch {
	case v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 2
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
