package admit

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
)

// counting is a discovery client that counts what it is asked.
type counting struct {
	discovery.DiscoveryInterface
	groups, paths int
	err           error
}

func (c *counting) ServerGroups() (*metav1.APIGroupList, error) {
	c.groups++
	return &metav1.APIGroupList{Groups: []metav1.APIGroup{
		{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}}},
		{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "apps/v1", Version: "v1"}}},
	}}, c.err
}

func (c *counting) OpenAPIV3() openapi.Client { return c }

func (c *counting) Paths() (map[string]openapi.GroupVersion, error) {
	c.paths++
	return map[string]openapi.GroupVersion{"apis/apps/v1": schemaOf("apps")}, c.err
}

type schemaOf string

func (s schemaOf) Schema(string) ([]byte, error) { return []byte(s), nil }
func (s schemaOf) ServerRelativeURL() string     { return "/openapi/v3/apis/apps/v1?hash=1" }

// TestPathsAreNotRequestedWithoutPolicies: for making them means making every schema.
func TestPathsAreNotRequestedWithoutPolicies(t *testing.T) {
	c := &counting{}
	now, none := time.Unix(0, 0), true
	p := &policyPaths{discovery: c, synced: closed, none: func() bool { return none }, now: func() time.Time { return now }}
	for range 10 {
		paths, err := p.Paths()
		if err != nil || len(paths) != 2 || paths["api/v1"] == nil || paths["apis/apps/v1"] == nil {
			t.Fatal(paths, err)
		}
		now = now.Add(5 * time.Second)
	}
	if c.groups != 1 || c.paths != 0 {
		t.Errorf("asked for groups %d times, for paths %d times", c.groups, c.paths)
	}
	now = now.Add(pathsTTL)
	paths, err := p.Paths()
	if err != nil || c.groups != 2 {
		t.Errorf("asked for groups %d times after a minute, %v", c.groups, err)
	}
	// A first policy may meet these paths: they lead to the schema.
	if schema, err := paths["apis/apps/v1"].Schema("application/json"); err != nil || string(schema) != "apps" {
		t.Errorf("%q, %v", schema, err)
	}
	if _, err := paths["api/v1"].Schema("application/json"); err == nil {
		t.Error("a schema that nobody serves")
	}
	none = false
	if paths, err := p.Paths(); err != nil || paths["apis/apps/v1"].ServerRelativeURL() != schemaOf("").ServerRelativeURL() {
		t.Errorf("with a policy: %v, %v", paths, err)
	}
	c.err, none = errors.New("down"), true
	now = now.Add(2 * pathsTTL)
	if _, err := p.Paths(); !errors.Is(err, c.err) {
		t.Error(err)
	}
}

// TestPathsWait: before it is known whether there are policies nothing is asked.
func TestPathsWait(t *testing.T) {
	c, drained := &counting{}, make(chan struct{})
	p := &policyPaths{discovery: c, drained: drained, none: func() bool { return false }, now: time.Now}
	response := make(chan error)
	go func() { _, err := p.Paths(); response <- err }()
	close(drained)
	if err := <-response; !errors.Is(err, errDrained) || c.groups+c.paths != 0 {
		t.Errorf("%v, asked %d times", err, c.groups+c.paths)
	}
}
