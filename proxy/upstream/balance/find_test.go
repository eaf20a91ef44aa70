package balance

import (
	"net/url"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestEndpointsOf: what is not ready, or no address, is no server.
func TestEndpointsOf(t *testing.T) {
	s := &Set{Options: Options{Base: &url.URL{Scheme: "https", Host: "kubernetes"}}}
	name, port, yes, no := "https", int32(6443), true, false
	slice := func(ready *bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
		}
	}
	for _, good := range []*discoveryv1.EndpointSlice{slice(nil), slice(&yes)} {
		if found := s.endpointsOf(good); len(found) != 1 || found[0].url.Host != "127.0.0.1:6443" {
			t.Errorf("found %v", found)
		}
	}
	for _, odd := range []*discoveryv1.EndpointSlice{slice(&no), {}} {
		if found := s.endpointsOf(odd); len(found) > 0 {
			t.Errorf("found %v", found)
		}
	}
}
