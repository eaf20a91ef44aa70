package builtin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kubeweir/kubeweir/cache/form/table"
)

const definitionGroup = "apiextensions.k8s.io"

// definitionPrinter prints CustomResourceDefinitions as kube-apiserver does
// (k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition/tableconvertor).
// The upstream printer takes the internal type; this one reads the served version and
// skips the schemas, which are nearly all of a definition.
type definitionPrinter struct {
	columns []byte
}

func newDefinitionPrinter() definitionPrinter {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return definitionPrinter{columns: table.EncodeColumns([]metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Cluster/Namespaced"},
		{Name: "Versions", Type: "string", Description: "Served versions"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "API group"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "CustomResource kind"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "Short names"},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Established status"},
	})}
}

// Columns implements table.Printer.
func (p definitionPrinter) Columns() []byte { return p.columns }

// Traits implements table.Printer.
func (p definitionPrinter) Traits() table.Traits { return table.Traits{NullWhenEmpty: true} }

// definition is the part of a CustomResourceDefinition that is printed.
type definition struct {
	Metadata struct {
		Name              string      `json:"name"`
		CreationTimestamp metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Group string                                        `json:"group"`
		Names apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
		Scope apiextensionsv1.ResourceScope                 `json:"scope"`

		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []apiextensionsv1.CustomResourceDefinitionCondition `json:"conditions"`
	} `json:"status"`
}

// Row implements table.Printer.
func (p definitionPrinter) Row(raw []byte) (*table.Row, error) {
	var d definition
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &d); err != nil {
		return nil, fmt.Errorf("decoding CustomResourceDefinition: %w", err)
	}
	var versions []string
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		if v.Storage {
			v.Name += "(storage)"
		}
		versions = append(versions, v.Name)
	}
	slices.Sort(versions)
	established := slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	return table.NewRow([]table.Cell{
		{Value: d.Metadata.Name},
		{Value: string(d.Spec.Scope)},
		{Value: strings.Join(versions, ",")},
		{Value: d.Metadata.CreationTimestamp.UTC().Format(time.RFC3339)},
		{Value: d.Spec.Group},
		{Value: d.Spec.Names.Kind},
		{Value: strings.Join(d.Spec.Names.ShortNames, ",")},
		{Value: established},
	}, nil, "")
}
