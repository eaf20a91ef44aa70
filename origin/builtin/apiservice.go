package builtin

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	kjson "sigs.k8s.io/json"

	"github.com/kubeweir/kubeweir/cache/form/table"
)

const apiServiceGroup = "apiregistration.k8s.io"

// apiServicePrinter prints APIServices as the aggregator in kube-apiserver does
// (k8s.io/kube-aggregator/pkg/registry/apiservice/etcd). That package would
// bring the whole generic registry along, so its few lines are repeated here.
type apiServicePrinter struct {
	columns []byte
}

func newAPIServicePrinter() apiServicePrinter {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return apiServicePrinter{columns: table.EncodeColumns([]metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Service", Type: "string", Description: "The reference to the service that hosts this API endpoint."},
		{Name: "Available", Type: "string", Description: "Whether this service is available."},
		{Name: "Age", Type: "string", Description: docs["creationTimestamp"]},
	})}
}

func (p apiServicePrinter) Columns() []byte { return p.columns }

// Traits says that events carry the columns always: the aggregator's printer
// ignores the option to leave them out.
func (p apiServicePrinter) Traits() table.Traits {
	return table.Traits{ColumnsInEveryEvent: true}
}

func (p apiServicePrinter) Row(raw []byte) (*table.Row, error) {
	var object apiregistrationv1.APIService
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, fmt.Errorf("decoding APIService: %w", err)
	}
	service := "Local"
	if s := object.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	return table.NewRow([]table.Cell{
		{Value: object.Name},
		{Value: service},
		{Value: availability(&object)},
		table.Age(object.CreationTimestamp.Time),
	}, nil, "")
}

func availability(object *apiregistrationv1.APIService) string {
	for _, c := range object.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
		return string(c.Status)
	}
	return string(apiregistrationv1.ConditionUnknown)
}
