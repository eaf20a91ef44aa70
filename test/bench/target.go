package bench

import "fmt"

// A Target is the goal of a row. Zero fields set no goal.
type Target struct {
	// Ratio is the minimum of kube-apiserver:kubeweir.
	Ratio float64
	// OwnRatio is the minimum of kube-apiserver:kubeweir without the time of kubeweir's upstream,
	// where that counts too.
	OwnRatio float64
	// Rate is the minimum of kubeweir:kube-apiserver in units per second.
	Rate float64
	// Max is the maximum for kubeweir, in the unit of the row's quantity.
	Max float64
	// PerRaw is added to Max for every byte of JSON of the pods.
	PerRaw float64
	// Above, with MostAbove: kubeweir's value is at most MostAbove times its value in the row named
	// Above.
	Above     string
	MostAbove float64
	// MostP99, with Above: kubeweir's p99 is at most MostP99 times that of the row named Above.
	MostP99 float64
	// P99 is the maximum of the 99th percentile in milliseconds.
	P99 float64
	// Bytes is the maximum size of a unit.
	Bytes float64
	// BytesOf, with MostBytes: a response has at most MostBytes times the bytes of kubeweir's in
	// the row named BytesOf.
	BytesOf   string
	MostBytes float64
	// Nginx: kubeweir takes no more than nginx does from its cache.
	Nginx bool
}

// judge compares the result with the target.
func (r *Result) judge(t Target, raw int64, earlier []Result) {
	met := func(ok bool, format string, args ...any) {
		if r.Target != "" {
			r.Target += ", "
		}
		r.Target += fmt.Sprintf(format, args...)
		if r.Met != nil {
			ok = ok && *r.Met
		}
		r.Met = &ok
	}
	if t.Ratio > 0 && r.Ratio > 0 {
		met(r.Ratio >= t.Ratio, ">= %g x", t.Ratio)
	}
	if t.OwnRatio > 0 && r.KubeAPIServer != nil && r.Kubeweir != nil && r.Kubeweir.OwnCPU > 0 {
		x := r.KubeAPIServer.Value / r.Kubeweir.OwnCPU
		met(x >= t.OwnRatio, ">= %g x without the upstream's (is %.1f)", t.OwnRatio, x)
	}
	if t.Rate > 0 && r.KubeAPIServer != nil && r.Kubeweir != nil {
		x := r.Kubeweir.PerSecond / r.KubeAPIServer.PerSecond
		met(x >= t.Rate, ">= %g x the rate (is %.2f)", t.Rate, x)
	}
	if most := t.Max + t.PerRaw*float64(raw); most > 0 && r.Kubeweir != nil {
		met(r.Kubeweir.Value <= most, "<= %s", r.Quantity.Format(most))
	}
	if t.P99 > 0 && r.Kubeweir != nil {
		met(r.Kubeweir.P99 <= t.P99, "p99 <= %g ms (is %.2f)", t.P99, r.Kubeweir.P99)
	}
	if t.Bytes > 0 && r.Kubeweir != nil {
		met(r.Kubeweir.Bytes <= t.Bytes, "<= %.0f bytes (is %.0f)", t.Bytes, r.Kubeweir.Bytes)
	}
	if t.Nginx && r.Kubeweir != nil && r.Nginx != nil {
		met(r.Kubeweir.Value <= r.Nginx.Value, "<= nginx")
	}
	for _, e := range earlier {
		if e.Kubeweir != nil && r.Kubeweir != nil {
			r.judgeBeside(t, &e, met)
		}
	}
}

// judgeBeside compares the result with an earlier row.
func (r *Result) judgeBeside(t Target, e *Result, met func(ok bool, format string, args ...any)) {
	times := func(most, x float64, of string) {
		if most > 0 {
			met(x <= most, "<= %g x %s of %s (is %.2f)", most, of, e.Row, x)
		}
	}
	if e.Row == t.Above {
		if t.MostAbove > 0 {
			x := ratio(r.Kubeweir, e.Kubeweir)
			met(x <= t.MostAbove, "<= %g x of %s (is %.2f)", t.MostAbove, e.Row, x)
		}
		times(t.MostP99, r.Kubeweir.P99/e.Kubeweir.P99, "the p99")
	}
	if e.Row == t.BytesOf {
		times(t.MostBytes, r.Kubeweir.Bytes/e.Kubeweir.Bytes, "the bytes")
	}
}
