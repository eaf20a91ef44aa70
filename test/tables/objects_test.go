package tables

import (
	"context"
	_ "embed"
	"encoding/base64"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/seed"
)

//go:embed testdata/objects.yaml
var objectsYAML string

// createObjects creates the objects of testdata/objects.yaml in order.
func createObjects(ctx context.Context, t *testing.T, config *rest.Config) {
	t.Helper()
	request, err := seed.CertificateRequest()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := seed.Authority()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := seed.New(config)
	if err != nil {
		t.Fatal(err)
	}
	// The bundle is inside a double-quoted string.
	bundle := strings.ReplaceAll(string(authority), "\n", `\n`)
	text := strings.NewReplacer("@csr@", base64.StdEncoding.EncodeToString(request), "@bundle@", bundle).Replace(objectsYAML)
	if err := objects.Documents(ctx, []byte(text)); err != nil {
		t.Fatal(err)
	}
}
