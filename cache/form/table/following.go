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
)

var errOtherColumns = errors.New("the server's release has other columns")

// Following is the Printer of one release of Kubernetes for servers of any. Releases
// describe the same columns in other words: those of the server are shown. Where its
// columns are others there are no Tables. Cells are as the printer's release writes them.
// It is safe for concurrent use.
type Following struct {
	Printer
	release string // as "1.36"

	server atomic.Pointer[serverColumns] // nil while they are the printer's own
}

// serverColumns are those of a server of another release.
type serverColumns struct {
	json  []byte
	other bool // than the printer's, in more than words
}

// NewFollowing returns p, which is of a release such as "1.36" or "1.36.3", for servers of
// any release.
func NewFollowing(p Printer, release string) *Following {
	parts := strings.SplitN(release, ".", 3)
	return &Following{Printer: p, release: strings.Join(parts[:min(2, len(parts))], ".")}
}

// Follows reports whether the columns of a server have to be asked for: it says by
// /version, in JSON, that it is of another release.
func (f *Following) Follows(version string) bool {
	var server struct {
		GitVersion string `json:"gitVersion"`
	}
	if f.Printer.Traits().NoTables || json.Unmarshal([]byte(version), &server) != nil || server.GitVersion == "" {
		return false
	}
	return !strings.HasPrefix(server.GitVersion, "v"+f.release+".")
}

// Follow says which columns the server shows, as the JSON of a Table's columnDefinitions;
// nil when it is of the printer's release, or shows none.
func (f *Following) Follow(columns []byte) {
	if columns == nil {
		f.server.Store(nil)
		return
	}
	f.server.Store(&serverColumns{json: bytes.Clone(columns), other: !sameColumns(f.Printer.Columns(), columns)})
}

// sameColumns reports whether columns differ in their descriptions at most.
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
	traits.NoTables = traits.NoTables || f.other()
	return traits
}

// other reports whether the server has other columns.
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

// Bookmark implements Printer.
func (f *Following) Bookmark(raw []byte) (*Row, error) {
	if f.other() {
		return nil, fmt.Errorf("printing a bookmark: %w", errOtherColumns)
	}
	return f.Printer.Bookmark(raw)
}
