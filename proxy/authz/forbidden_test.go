package authz

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestForbiddenMatchesLibrary(t *testing.T) {
	u := &user.DefaultInfo{Name: `jane "<x>"`}
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods/x/log", "/apis/apps/v1/namespaces/a/deployments/d", "/metrics", "/api/v1/namespaces/a&b/pods"} {
		for _, reason := range []string{"", "RBAC: role not found"} {
			info := api.ParseRequestInfo("GET", path, "")
			want := responsewriters.ForbiddenStatusError(authorizer.AttributesRecord{
				User: u, Verb: info.Verb, Namespace: info.Namespace, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
				Resource: info.Resource, Subresource: info.Subresource, Name: info.Name, ResourceRequest: info.IsResourceRequest, Path: info.Path,
			}, reason)
			got := Forbidden(u, AttributesOf(&info), reason)
			if got.Error() != want.Error() || fmt.Sprint(got.ErrStatus) != fmt.Sprint(want.ErrStatus) {
				t.Errorf("%s: %v\nwant %v", path, got, want)
			}
		}
	}
}
