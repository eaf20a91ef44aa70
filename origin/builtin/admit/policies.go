package admit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
)

// policyClient is a client whose OpenAPI paths come from discovery while there are
// no mutating policies. Their plugin asks for the paths every five seconds from the
// start on, and making them means making the schema of every type.
type policyClient struct {
	kubernetes.Interface
	discovery policyDiscovery
}

func newPolicyClient(client kubernetes.Interface, f informers.SharedInformerFactory, drained <-chan struct{}) policyClient {
	plain, policies := client.Discovery(), f.Admissionregistration().V1().MutatingAdmissionPolicies().Informer()
	return policyClient{client, policyDiscovery{plain, &policyPaths{
		discovery: plain,
		synced:    policies.HasSyncedChecker().Done(),
		drained:   drained,
		none:      noneIn(policies),
		now:       time.Now,
	}}}
}

func (c policyClient) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

type policyDiscovery struct {
	discovery.DiscoveryInterfaces
	paths *policyPaths
}

func (d policyDiscovery) OpenAPIV3() openapi.Client { return d.paths }

func (d policyDiscovery) OpenAPIV3WithContext(context.Context) openapi.ClientWithContext {
	return openapi.ToClientWithContext(d.paths)
}

var errDrained = errors.New("no request is served any more")

// pathsTTL is the maximum age of the paths that are cached until there is a first policy.
const pathsTTL = time.Minute

// policyPaths is an openapi.Client. Before there are policies, it lists the served groups itself
// and uses the real client only to fetch documents. Afterwards it is the real client.
type policyPaths struct {
	discovery discovery.DiscoveryInterface
	synced    <-chan struct{} // closed when none can tell
	drained   <-chan struct{} // closed when nobody waits for that any more
	none      func() bool
	now       func() time.Time

	mu    sync.Mutex
	known map[string]openapi.GroupVersion // guarded by mu
	until time.Time                       // guarded by mu: when known is to be made anew
}

// Paths waits until it is known whether there are policies: it is called as soon as
// there is a server, for the first time, and then after five seconds.
func (p *policyPaths) Paths() (map[string]openapi.GroupVersion, error) {
	select {
	case <-p.synced:
	case <-p.drained:
		return nil, errDrained
	}
	if !p.none() {
		return p.discovery.OpenAPIV3().Paths()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); p.known == nil || now.After(p.until) {
		groups, err := p.discovery.ServerGroups()
		if err != nil {
			return nil, err
		}
		p.known = make(map[string]openapi.GroupVersion)
		for _, group := range groups.Groups {
			for _, version := range group.Versions {
				path := "apis/" + version.GroupVersion
				if !strings.Contains(version.GroupVersion, "/") {
					path = "api/" + version.GroupVersion
				}
				p.known[path] = unfetched{p, path}
			}
		}
		p.until = now.Add(pathsTTL)
	}
	return p.known, nil
}

// unfetched is a group version whose schema has not been requested.
type unfetched struct {
	paths *policyPaths
	path  string
}

// ServerRelativeURL lacks the schema's hash, so the schema is fetched again when
// the real path with its hash is known.
func (u unfetched) ServerRelativeURL() string { return "/openapi/v3/" + u.path }

func (u unfetched) Schema(contentType string) ([]byte, error) {
	paths, err := u.paths.discovery.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	path, ok := paths[u.path]
	if !ok {
		return nil, fmt.Errorf("no schema of %s", u.path)
	}
	return path.Schema(contentType)
}
