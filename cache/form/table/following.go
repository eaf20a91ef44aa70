package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

var errOtherColumns = errors.New("the server's release has different columns")

// Following adapts the Printer of one Kubernetes release to servers of any release. Releases
// describe the same columns in different words; the server's words are shown. If the server has
// different columns, there are no Tables. Cells are printed as in the printer's release. Following
// is safe for concurrent use.
type Following struct {
	Printer
	release string // such as "1.36"

	server atomic.Pointer[serverColumns] // nil while the server has the printer's columns
}

// serverColumns are the columns of a server of another release.
type serverColumns struct {
	json  []byte
	other bool // whether they differ from the printer's in more than descriptions
}

// NewFollowing returns a Following for p, the printer of a release such as "1.36" or "1.36.3".
func NewFollowing(p Printer, release string) *Following {
	parts := strings.SplitN(release, ".", 3)
	return &Following{Printer: p, release: strings.Join(parts[:min(2, len(parts))], ".")}
}

// Follows reports whether the server's columns must be fetched: its /version, in JSON, names
// another release.
func (f *Following) Follows(version string) bool {
	server := api.GitVersion([]byte(version))
	return !f.Printer.Traits().NoTables && server != "" && !strings.HasPrefix(server, "v"+f.release+".")
}

// Follow sets the columns that the server shows, as the JSON of a Table's columnDefinitions. nil
// means that the server is of the printer's release or shows no Tables.
func (f *Following) Follow(columns []byte) {
	if columns == nil {
		f.server.Store(nil)
		return
	}
	f.server.Store(&serverColumns{json: bytes.Clone(columns), other: !sameColumns(f.Printer.Columns(), columns)})
}

// sameColumns reports whether a and b differ at most in descriptions.
func sameColumns(a, b []byte) bool {
	shapes := make([][]metav1.TableColumnDefinition, 2)
	for i, columns := range [][]byte{a, b} {
		if json.Unmarshal(columns, &shapes[i]) != nil {
			return false
		}
		for j := range shapes[i] {
			shapes[i][j].Description = ""
		}
	}
	return slices.Equal(shapes[0], shapes[1])
}

// Columns implements Printer.
func (f *Following) Columns() []byte {
	if s := f.server.Load(); s != nil {
		return s.json
	}
	return f.Printer.Columns()
}

// Traits implements Printer.
func (f *Following) Traits() Traits {
	traits := f.Printer.Traits()
	if f.other() {
		traits.NoTables, traits.Bookmark = true, nil
	}
	return traits
}

// other reports whether the server has different columns.
func (f *Following) other() bool {
	s := f.server.Load()
	return s != nil && s.other
}

// Row implements Printer.
func (f *Following) Row(raw []byte) (*Row, error) {
	if f.other() {
		return nil, fmt.Errorf("printing a row: %w", errOtherColumns)
	}
	return f.Printer.Row(raw)
}
