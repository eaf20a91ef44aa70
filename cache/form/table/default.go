package table

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// defaultPrinter prints the columns Name and Created At of resources without columns of their own
// (NewDefaultTableConvertor in k8s.io/apiserver/pkg/registry/rest). The time is absolute.
type defaultPrinter struct {
	columns []byte
}

// NewDefaultPrinter returns the printer of resources without columns of their own, such as Role.
func NewDefaultPrinter() Printer {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return defaultPrinter{columns: EncodeColumns([]metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
	})}
}

// EncodeColumns returns column definitions in the JSON form that Tables contain.
func EncodeColumns(columns []metav1.TableColumnDefinition) []byte {
	// Marshaling strings and integers cannot fail.
	data, _ := json.Marshal(columns)
	return data
}

func (p defaultPrinter) Columns() []byte { return p.columns }

func (p defaultPrinter) Traits() Traits { return Traits{NullWhenEmpty: true} }

func (p defaultPrinter) Bookmark(raw []byte) (*Row, error) { return p.Row(raw) }

func (p defaultPrinter) Row(raw []byte) (*Row, error) {
	var object struct {
		Metadata struct {
			Name              string      `json:"name"`
			CreationTimestamp metav1.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, fmt.Errorf("decoding object metadata: %w", err)
	}
	created := object.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)
	return NewRow([]Cell{{Value: object.Metadata.Name}, {Value: created}}, nil, "")
}
