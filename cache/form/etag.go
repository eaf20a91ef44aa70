package form

import (
	"crypto/rand"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

func newTagger() tagger {
	return tagger{process: rand.Text()[:10], start: time.Now(), seed: maphash.MakeSeed()}
}

// tag returns the ETag of l in the form of c, rendered at moment.
func (t tagger) tag(c *base, l *List, coding api.Compression, moment time.Time) string {
	rep := c.rep
	b := append(append(make([]byte, 0, 96), '"'), t.process...)
	b = strconv.AppendUint(append(b, '-'), l.Content, 36)
	b = strconv.AppendUint(append(b, '-'), l.RV, 36)
	if l.Scope != (Scope{}) {
		b = strconv.AppendUint(append(b, 's'), maphash.Comparable(t.seed, l.Scope), 36)
	}
	b = append(b, '-', '0'+byte(rep.Encoding), '0'+byte(rep.Transform), '0'+byte(rep.IncludeObject), '0'+byte(coding))
	for _, flag := range [...]struct {
		set    bool
		letter byte
	}{{rep.Pretty, 'p'}, {rep.YAML, 'y'}, {rep.DropManagedFields, 'd'}, {rep.Redacted, 'r'}} {
		if flag.set {
			b = append(b, flag.letter)
		}
	}
	if rep.Transform == api.Table {
		b = strconv.AppendInt(append(b, '-'), int64(moment.Sub(t.start)), 36)
		b = strconv.AppendUint(append(b, '-'), maphash.Bytes(t.seed, c.res.Printer.Columns()), 36)
	}
	return string(append(b, '"'))
}

// matchesTag reports whether an If-None-Match header names tag, by weak comparison (RFC 9110,
// section 13.1.2).
func matchesTag(header, tag string) bool {
	for header != "" {
		var candidate string
		candidate, header, _ = strings.Cut(header, ",")
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}
