package openapi

import (
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/consistency"
)

func TestDocumentsAreBounded(t *testing.T) {
	d := New(nil)
	for i := range MaxDocuments + 10 {
		d.Save(consistency.Key{Path: fmt.Sprint(i)}, &api.Response{Status: 200, Body: []byte("z")})
	}
	if d.used.Len() != MaxDocuments || len(d.byKey) != MaxDocuments || d.bytes != MaxDocuments {
		t.Errorf("%d documents, %d keys, %d bytes", d.used.Len(), len(d.byKey), d.bytes)
	}
}
