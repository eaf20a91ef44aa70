package table

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// customPrinter prints the additionalPrinterColumns of a custom resource
// (k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor).
type customPrinter struct {
	columns []byte
	extra   []customColumn
}

type customColumn struct {
	kind string // the column's type
	path *jsonpath.JSONPath
}

// NewCustomPrinter returns the printer for the additionalPrinterColumns of one version of a
// CustomResourceDefinition. Without any, the only column is Age.
//
// As in kube-apiserver, columns from the first one whose path does not parse are ignored. An error
// means that Tables must be forwarded: a path uses range or end, with which a JSONPath keeps state,
// so kube-apiserver's response depends on its earlier requests.
func NewCustomPrinter(columns []apiextensionsv1.CustomResourceColumnDefinition) (Printer, error) {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	if len(columns) == 0 {
		columns = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", Description: docs["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
		}
	}
	p := customPrinter{}
	headers := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}}
	for _, c := range columns {
		text := "{" + c.JSONPath + "}"
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if path.Parse(text) != nil {
			break
		}
		if parsed, err := jsonpath.Parse(c.Name, text); err != nil || hasKeyword(parsed.Root) {
			return nil, fmt.Errorf("column %q: JSONPath %q uses a keyword that only kube-apiserver can evaluate", c.Name, c.JSONPath)
		}
		description := cmp.Or(c.Description, "Custom resource definition column (in JSONPath format): "+c.JSONPath)
		p.extra = append(p.extra, customColumn{kind: c.Type, path: path})
		headers = append(headers, metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority,
		})
	}
	p.columns = EncodeColumns(headers)
	return p, nil
}

// hasKeyword reports whether a parsed path contains a keyword. Evaluating a path without keywords
// has no side effects, so it can run concurrently.
func hasKeyword(list *jsonpath.ListNode) bool {
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *jsonpath.IdentifierNode:
			return true
		case *jsonpath.ListNode:
			if hasKeyword(n) {
				return true
			}
		case *jsonpath.FilterNode:
			if hasKeyword(n.Left) || hasKeyword(n.Right) {
				return true
			}
		case *jsonpath.UnionNode:
			if slices.ContainsFunc(n.Nodes, hasKeyword) {
				return true
			}
		}
	}
	return false
}

func (p customPrinter) Columns() []byte { return p.columns }

func (p customPrinter) Traits() Traits { return Traits{} }

func (p customPrinter) Row(raw []byte) (*Row, error) {
	var content any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("decoding custom resource: %w", err)
	}
	object, ok := content.(map[string]any)
	if !ok {
		return nil, errors.New("custom resource is not a JSON object")
	}
	cells := make([]Cell, 1, 1+len(p.extra))
	cells[0].Value = (&unstructured.Unstructured{Object: object}).GetName()
	for _, c := range p.extra {
		cells = append(cells, c.cell(object))
	}
	return NewRow(cells, nil, "")
}

// cell evaluates the column on object. Only the first result counts. Missing fields and values of a
// type other than the column's are null.
func (c customColumn) cell(object map[string]any) Cell {
	results, err := c.path.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return Cell{}
	}
	value := results[0][0].Interface()
	switch c.kind {
	case "string":
		// Values of any type are printed as text; objects and lists as JSON.
		var buf bytes.Buffer
		if err := c.path.PrintResults(&buf, []reflect.Value{reflect.ValueOf(value)}); err != nil {
			return Cell{}
		}
		return Cell{Value: buf.String()}
	case "integer":
		switch v := value.(type) {
		case int64:
			return Cell{Value: v}
		case float64:
			return Cell{Value: int64(v)}
		}
	case "number":
		switch v := value.(type) {
		case int64:
			return Cell{Value: float64(v)}
		case float64:
			return Cell{Value: v}
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return Cell{Value: b}
		}
	case "date":
		return dateCell(value)
	}
	return Cell{}
}

func dateCell(value any) Cell {
	text, ok := value.(string)
	if !ok {
		return Cell{}
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(text); err != nil {
		return Cell{Value: "<invalid>"}
	}
	return Age(t.Time)
}
