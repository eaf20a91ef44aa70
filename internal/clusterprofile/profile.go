// Package clusterprofile reads the ClusterProfile objects of a hub (multicluster.x-k8s.io, KEP-4322) and makes a
// kubeconfig of each, by the exec plugins that its reader has for the access providers that it names (KEP-5339).
//
// The types are its own, of the fields that are used: of an object that does not fit them the others are read.
package clusterprofile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// Profile is a ClusterProfile: a cluster, and by which access providers it can be reached.
type Profile struct {
	Namespace, Name string
	Created         time.Time
	// err is why the rest of the object cannot be read.
	err    error
	access []access
}

// access is how a cluster is reached by one provider.
type access struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// object is what is read of a ClusterProfile.
type object struct {
	Status struct {
		AccessProviders []access `json:"accessProviders"`
		// CredentialProviders is what AccessProviders was called first. It counts where that has no provider of the name.
		CredentialProviders []access `json:"credentialProviders"`
	} `json:"status"`
}

func read(u *unstructured.Unstructured) Profile {
	p := Profile{Namespace: u.GetNamespace(), Name: u.GetName(), Created: u.GetCreationTimestamp().Time}
	var o object
	text, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		p.err = fmt.Errorf("its status cannot be read: %w", err)
		return p
	}
	p.access = o.Status.AccessProviders
	for _, a := range o.Status.CredentialProviders {
		if p.by(a.Name) == nil {
			p.access = append(p.access, a)
		}
	}
	if text, err = json.Marshal(p.access); err == nil && len(text) > maxAccess {
		err = fmt.Errorf("its access providers have more than %d bytes", maxAccess)
	}
	if err != nil {
		p.access, p.err = nil, err
	}
	return p
}

// maxAccess bounds what is kept of a profile. More than that no plugin can be told in its environment.
const maxAccess = 128 << 10

// named reports whether the profile has a name as every API server demands it: it becomes that of a folder.
func (p *Profile) named() bool {
	return len(content.IsDNS1123Label(p.Namespace)) == 0 && len(content.IsDNS1123Subdomain(p.Name)) == 0
}

// by is how the cluster is reached by a provider, nil if it cannot be.
func (p *Profile) by(provider string) *access {
	if i := slices.IndexFunc(p.access, func(a access) bool { return a.Name == provider }); i >= 0 {
		return &p.access[i]
	}
	return nil
}

// key tells profiles apart: the names of namespaces have no dots.
func (p *Profile) key() string { return p.Namespace + "." + p.Name }

// ClusterName is what the cluster is called behind a gateway that serves the profiles of one namespace, or of all: there
// the namespace and a dot come first, so that no two have the same name.
func (p *Profile) ClusterName(ofOne bool) string {
	if ofOne {
		return p.Name
	}
	return p.key()
}

// digest tells whether what is used of a profile has changed.
func (p *Profile) digest() [sha256.Size]byte {
	if p.err != nil {
		return sha256.Sum256([]byte(p.err.Error()))
	}
	text, _ := json.Marshal(p.access) // which was read from JSON
	return sha256.Sum256(text)
}

// older orders profiles by age, so that a new one takes no place of those that are there.
func older(a, b Profile) int {
	return cmp.Or(a.Created.Compare(b.Created), bytes.Compare([]byte(a.key()), []byte(b.key())))
}
