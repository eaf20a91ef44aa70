package controllers

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		given, want []string
		err         string
	}{
		{given: []string{"*"}, want: []string{"*"}},
		{given: []string{"namespace", "garbagecollector"}, want: []string{"namespace-controller", "garbage-collector-controller"}},
		{given: []string{"garbage-collector", "root-ca-certificate-publisher"}, want: []string{"garbage-collector-controller", "root-ca-certificate-publisher-controller"}},
		{given: []string{"*", "-job", "ttl-after-finished-controller"}, want: []string{"*", "-job-controller", "ttl-after-finished-controller"}},
		{given: []string{"namespaces"}, err: `there is no controller "namespaces"; the controllers are `},
		{given: []string{"*", "-*"}, err: `there is no controller "*"`},
		{given: []string{"-job", "-cronjob"}, err: "-job,-cronjob runs nothing"},
		{given: []string{"csrsigning"}, err: "certificatesigningrequest-signing-controller cannot run: it needs files"},
		{given: []string{"nodeipam"}, err: "node-ipam-controller cannot run: there are no address ranges"},
		{given: []string{"storage-version-gc"}, err: "storageversion-garbage-collector-controller cannot run: the feature gate StorageVersionAPI is off"},
		{given: []string{"*", "-nodeipam", "-csrsigning"}, want: []string{"*", "-node-ipam-controller", "-certificatesigningrequest-signing-controller"}},
	} {
		got, err := (&Options{Names: tt.given}).resolve()
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: %v", tt.given, err)
			}
		} else if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, %v; want %v", tt.given, got, err, tt.want)
		}
	}
}

// TestDocumentedNames checks that the names in the documentation are accepted.
func TestDocumentedNames(t *testing.T) {
	for _, name := range strings.Fields("namespace garbagecollector serviceaccount root-ca-certificate-publisher " +
		"clusterrole-aggregation resourcequota endpointslice job cronjob deployment replicaset statefulset daemonset " +
		"serviceaccount-token csrsigning") {
		if _, err := (&Options{Names: []string{name}, CAKeyFile: "ca.key"}).resolve(); err != nil {
			t.Error(err)
		}
	}
}
