package balance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kubeweir/kubeweir/internal/apiservers"
)

const (
	// resolvePeriod is how often a DNS name is resolved, and resolveTimeout how long that may take.
	resolvePeriod  = 5 * time.Second
	resolveTimeout = 5 * time.Second
	// findPause is the least time between two attempts to find the servers.
	findPause = time.Second
	// slicesPath has the endpoints of the Service kubernetes.
	slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	// maxSlices bounds the list of them, in bytes.
	maxSlices = 1 << 20
)

// resolve makes the servers the present addresses of the name.
func (s *Set) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addresses, err := s.Resolver.LookupNetIP(ctx, "ip", s.List.Name)
	if err != nil {
		return err
	}
	var found []endpoint
	for _, a := range addresses {
		found = append(found, s.endpointAt(a.Unmap().String(), s.List.Port))
	}
	return s.found(found)
}

func (s *Set) endpointAt(address, port string) endpoint {
	return endpoint{&url.URL{Scheme: s.Base.Scheme, Host: net.JoinHostPort(address, port)}, false}
}

var errNoEndpoints = errors.New("there is none")

// found makes the servers those that were found, and others that there are always. If none was
// found, those known before stay.
func (s *Set) found(found []endpoint, always ...endpoint) error {
	slices.SortFunc(found, func(a, b endpoint) int { return cmp.Compare(a.url.Host, b.url.Host) })
	found = slices.CompactFunc(found, func(a, b endpoint) bool { return a.url.Host == b.url.Host })
	if len(found) == 0 {
		return errNoEndpoints
	}
	if most := apiservers.Most - len(always); len(found) > most {
		s.Log.Warn("the cluster has more API servers than are used", "found", len(found), "used", most)
		found = found[:most]
	}
	for _, e := range always {
		if !slices.ContainsFunc(found, func(f endpoint) bool { return f.url.Host == e.url.Host }) {
			found = append(found, e)
		}
	}
	return s.set(found)
}

// followName resolves the name periodically.
func (s *Set) followName() {
	for {
		wait := resolvePeriod
		if len(s.Servers()) == 0 {
			wait = findPause
		}
		if !s.pause(wait) {
			return
		}
		if err := s.resolve(s.Context); err != nil && s.Context.Err() == nil {
			s.Log.Warn("the API servers' name cannot be resolved, those known before stay", "name", s.List.Name, "error", err)
		}
	}
}

// followSlices lists the endpoints of the Service kubernetes whenever they change.
func (s *Set) followSlices() {
	for {
		version, err := s.readSlices(s.Context)
		if err == nil {
			err = s.awaitChange(s.Context, version)
		}
		if s.Context.Err() != nil {
			return
		}
		wait := findPause
		if err != nil {
			wait = 5 * findPause
			s.Log.Warn("the API servers cannot be read from the endpoints of the Service kubernetes, those known before stay", "error", err)
		}
		if !s.pause(wait) {
			return
		}
	}
}

// pause waits. It returns false when the client is closed.
func (s *Set) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.Context.Done():
		return false
	}
}

// readSlices makes the servers the present endpoints. The kubeconfig's own server stays, for when
// none of them can be reached.
func (s *Set) readSlices(ctx context.Context) (version string, err error) {
	body, err := s.getSlices(ctx, url.Values{})
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	var list discoveryv1.EndpointSliceList
	if err := json.NewDecoder(io.LimitReader(body, maxSlices)).Decode(&list); err != nil {
		return "", fmt.Errorf("endpoint slices: %w", err)
	}
	var found []endpoint
	for i := range list.Items {
		found = append(found, s.endpointsOf(&list.Items[i])...)
	}
	if err := s.found(found, endpoint{s.Base, true}); err != nil {
		return "", fmt.Errorf("endpoints of the Service kubernetes: %w", err)
	}
	return list.ResourceVersion, nil
}

func (s *Set) endpointsOf(slice *discoveryv1.EndpointSlice) (found []endpoint) {
	port := ""
	for _, p := range slice.Ports {
		if p.Port != nil && (port == "" || p.Name != nil && *p.Name == "https") {
			port = strconv.Itoa(int(*p.Port))
		}
	}
	if port == "" || slice.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, address := range e.Addresses {
			found = append(found, s.endpointAt(address, port))
		}
	}
	return found
}

// awaitChange returns when the endpoints may have changed since a version.
func (s *Set) awaitChange(ctx context.Context, version string) error {
	body, err := s.getSlices(ctx, url.Values{"watch": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {"600"}})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	var one [1]byte
	_, _ = body.Read(one[:]) // an event, or the end
	return nil
}

func (s *Set) getSlices(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("labelSelector", discoveryv1.LabelServiceName+"=kubernetes")
	return s.Requests.Get(ctx, slicesPath, query)
}

// Start begins to find servers and to check them.
func (s *Set) Start() error {
	switch {
	case s.List.Slices:
		s.name = s.Base.Hostname()
		if err := s.set([]endpoint{{s.Base, true}}); err != nil {
			return err
		}
		s.Spawn(s.followSlices)
		return nil
	case s.List.Name != "":
		s.name = s.List.Name
		if err := s.resolve(s.Context); err != nil {
			s.Log.Warn("the API servers' name cannot be resolved yet", "name", s.name, "error", err)
		}
		s.Spawn(s.followName)
		return nil
	}
	var found []endpoint
	for _, u := range s.List.URLs {
		found = append(found, endpoint{u, false})
	}
	return s.set(found)
}
