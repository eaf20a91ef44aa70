package testapi

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

type ok struct{}

func (ok) Serve(context.Context, *api.Request) *api.Response { return &api.Response{Status: 200} }

func TestFaultsApply(t *testing.T) {
	f := NewFaults()
	h := f.Wrap(ok{})
	status := func(method, path string) int {
		return h.Serve(t.Context(), &api.Request{Method: method, Path: path, RawPath: path}).Status
	}
	for _, fault := range []Fault{
		{Verb: "update", Group: "apps", Resource: "deployments", Code: 409, Count: 2},
		{Resource: "pods/status", Namespace: "a", Code: 500},
		{Verb: "get", Name: "x", Code: 429},
	} {
		if err := f.Add(&fault); err != nil {
			t.Fatal(err)
		}
	}
	const deployment = "/apis/apps/v1/namespaces/a/deployments/x"
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{"PUT", "/apis/other/v1/namespaces/a/deployments/x", 200},
		{"PUT", deployment + "/status", 200},
		{"PUT", deployment, 409}, {"PUT", deployment, 409}, {"PUT", deployment, 200},
		{"PUT", "/api/v1/namespaces/b/pods/x/status", 200},
		{"PUT", "/api/v1/namespaces/a/pods/x", 200},
		{"PATCH", "/api/v1/namespaces/a/pods/x/status", 500},
		{"GET", deployment, 429}, {"GET", deployment, 200},
		{"GET", "/healthz", 200},
	} {
		if got := status(tt.method, tt.path); got != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
	if left := f.List(); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

func TestBadFaults(t *testing.T) {
	for want, fault := range map[string]Fault{
		"set code, delay or both":     {Verb: "get"},
		"code must be a status from":  {Code: 200},
		"count must be from 1 to":     {Code: 500, Count: -1},
		"delay must be at most 1m0s,": {Delay: metav1.Duration{Duration: time.Hour}},
	} {
		if err := NewFaults().Add(&fault); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", fault, err)
		}
	}
	f := NewFaults()
	for range maxFaults {
		if err := f.Add(&Fault{Code: 500}); err != nil {
			t.Fatal(err)
		}
	}
	if f.Add(&Fault{Code: 500}) == nil {
		t.Error("faults have no bound")
	}
}
