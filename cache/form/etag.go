package form

import (
	"crypto/rand"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

func newTagger() tagger {
	return tagger{process: rand.Text()[:10], start: time.Now(), seed: maphash.MakeSeed()}
}

// list returns the ETag of a list.
func (t tagger) list(l *List, rep api.Representation, coding api.Compression, moment time.Time) string {
	b := t.begin()
	b = strconv.AppendUint(b, l.Content, 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, l.RV, 36)
	if l.Scope != (Scope{}) {
		b = append(b, 's')
		b = strconv.AppendUint(b, maphash.Comparable(t.seed, l.Scope), 36)
	}
	return t.end(b, rep, coding, moment)
}

// object returns the ETag of a get.
func (t tagger) object(o *object.Object, rep api.Representation, coding api.Compression, moment time.Time) string {
	b := append(t.begin(), 'o')
	b = strconv.AppendUint(b, o.ID, 36)
	return t.end(b, rep, coding, moment)
}

func (t tagger) begin() []byte {
	b := make([]byte, 0, 80)
	b = append(b, '"')
	b = append(b, t.process...)
	return append(b, '-')
}

// columns returns the ETag of a Table: tag extended by its column definitions.
func (t tagger) columns(tag string, columns []byte) string {
	b := append(make([]byte, 0, 96), tag[:len(tag)-1]...)
	b = append(b, '-')
	b = strconv.AppendUint(b, maphash.Bytes(t.seed, columns), 36)
	return string(append(b, '"'))
}

func (t tagger) end(b []byte, rep api.Representation, coding api.Compression, moment time.Time) string {
	b = append(b, '-', '0'+byte(rep.Encoding), '0'+byte(rep.Transform), '0'+byte(rep.IncludeObject), '0'+byte(coding))
	if rep.Pretty {
		b = append(b, 'p')
	}
	if rep.YAML {
		b = append(b, 'y')
	}
	if rep.DropManagedFields {
		b = append(b, 'd')
	}
	if rep.Redacted {
		b = append(b, 'r')
	}
	if rep.Transform == api.Table {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(moment.Sub(t.start)), 36)
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
