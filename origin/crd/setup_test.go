package crd_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/origin/aggregator/chaintest"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// define creates a definition and dates its Established condition back, so that
// creating what it defines does not wait 2 s.
func define(t *testing.T, c *chaintest.Chain, manifest string) {
	t.Helper()
	crd := c.Define(t, manifest)
	client := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions()
	crd = crd.DeepCopy()
	for i := range crd.Status.Conditions {
		crd.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
	}
	if _, err := client.UpdateStatus(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitDefinition(t, crd.Name, func(crd *apiextensions.CustomResourceDefinition) bool {
		established := apihelpers.FindCRDCondition(crd, apiextensions.Established)
		return established != nil && time.Since(established.LastTransitionTime.Time) > 30*time.Second
	})
}

func patchDefinition(t *testing.T, c *chaintest.Chain, name, patch string) {
	t.Helper()
	if _, err := c.Extensions(t).ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func rawExtension(raw []byte) runtime.RawExtension { return runtime.RawExtension{Raw: raw} }

// pemOf is a certificate as a caBundle in JSON.
func pemOf(der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// stored is what the engine holds under a key.
func stored(t *testing.T, c *chaintest.Chain, key string) map[string]any {
	t.Helper()
	result, err := c.Engine.Range(t.Context(), storage.RangeOptions{Prefix: key, Exact: true})
	if err != nil || len(result.KVs) != 1 {
		t.Fatalf("%s: %v %v", key, result, err)
	}
	var object map[string]any
	if err := json.Unmarshal(result.KVs[0].Value, &object); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return object
}
