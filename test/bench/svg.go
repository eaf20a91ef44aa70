package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// The layout of the chart, in pixels.
const (
	chartWidth  = 1110
	chartLeft   = 480 // of the bars
	chartRight  = 90  // room for the longest bar's value
	chartTop    = 84
	barHeight   = 8
	rowHeight   = 4*barHeight + 10
	chartBottom = 46
)

var barColors = [...]string{"#b0b7c3", "#1668c7", "#e0b24c", "#8fd3a8"}

// WriteSVG draws the rows that compare processor time, as bars on a logarithmic scale.
func (r *Report) WriteSVG(w io.Writer) error {
	var rows []Result
	least, most := math.Inf(1), 0.0
	for _, res := range r.Results {
		if res.Quantity != CPU || res.KubeAPIServer == nil || res.Kubeweir == nil {
			continue
		}
		rows = append(rows, res)
		for _, s := range res.sides() {
			if s != nil && s.Value > 0 {
				least, most = min(least, s.Value), max(most, s.Value)
			}
		}
	}
	if len(rows) == 0 {
		least, most = 1, 10
	}
	scale := logScale{math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))}
	height := chartTop + len(rows)*rowHeight + chartBottom
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	text(&b, 16, 26, `font-size="16" font-weight="600"`, "Server processor time by request, page, delivery or event (logarithmic; shorter is better)")
	for i, name := range []string{"kube-apiserver", "kubeweir", "nginx, from a cache", "floor: only sends the same bytes"} {
		x := 16 + 140*i
		fmt.Fprintf(&b, `<rect x="%d" y="40" width="12" height="12" fill="%s"/>`+"\n", x, barColors[i])
		text(&b, x+18, 50, "", name)
	}
	scale.grid(&b, height-chartBottom)
	for i := range rows {
		rows[i].draw(&b, scale, chartTop+i*rowHeight)
	}
	text(&b, 16, height-16, `fill="#667085" font-size="11"`, fmt.Sprintf("%d pods of %.1f KB, TLS, %d cores, %s, %s. The figure in brackets is kube-apiserver : kubeweir.",
		r.Pods, float64(r.PodBytes)/1e3, r.Cores, r.Machine, r.Date.Format(time.DateOnly)))
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) sides() []*Side { return []*Side{r.KubeAPIServer, r.Kubeweir, r.Nginx, r.Floor} }

// draw writes a row's title and bars.
func (r *Result) draw(b *strings.Builder, scale logScale, y int) {
	title := r.Title
	if r.Protocol != HTTP1 {
		title += ", " + string(r.Protocol)
	}
	text(b, chartLeft-10, y+2*barHeight, `text-anchor="end"`, title)
	for i, s := range r.sides() {
		if s == nil || s.Value <= 0 {
			continue
		}
		end := scale.x(s.Value)
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
			chartLeft, y+i*barHeight, max(1, end-chartLeft), barHeight-1, barColors[i])
		label := CPU.Format(s.Value)
		if i == 1 && r.Ratio > 0 {
			label += fmt.Sprintf(" [%.*f x]", decimals(r.Ratio), r.Ratio)
		}
		text(b, int(end)+5, y+i*barHeight+7, `font-size="8" fill="#344054"`, label)
	}
}

// A logScale spans powers of ten of microseconds.
type logScale struct{ from, to float64 }

func (l logScale) x(v float64) float64 {
	return chartLeft + (chartWidth-chartLeft-chartRight)*(math.Log10(v)-l.from)/(l.to-l.from)
}

func (l logScale) grid(b *strings.Builder, bottom int) {
	for p := l.from; p <= l.to; p++ {
		x := l.x(math.Pow(10, p))
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e4e7ec"/>`+"\n", x, chartTop-8, x, bottom)
		name := CPU.Format(math.Pow(10, p))
		name = strings.NewReplacer(".00", "", ".0", "").Replace(name)
		text(b, int(x), chartTop-12, `text-anchor="middle" font-size="10" fill="#667085"`, name)
	}
}

func text(b *strings.Builder, x, y int, attributes, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>`, x, y, attributes)
	_ = xml.EscapeText(b, []byte(s)) // writing to a Builder does not fail
	b.WriteString("</text>\n")
}
