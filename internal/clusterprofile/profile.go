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

// Profile is a ClusterProfile: a cluster, and the access providers by which it can be reached. As JSON
// it is read by Decode.
type Profile struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Access    []Access  `json:"access,omitempty"`
	// Error is why the rest of the object cannot be read.
	Error string `json:"error,omitempty"`
}

// Access is how a cluster is reached by one provider.
type Access struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// object is what is read of a ClusterProfile.
type object struct {
	Status struct {
		AccessProviders []Access `json:"accessProviders"`
		// CredentialProviders is what AccessProviders was called first. It counts where that has no provider of the name.
		CredentialProviders []Access `json:"credentialProviders"`
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
		p.Error = "its status cannot be read: " + err.Error()
		return p
	}
	p.Access = o.Status.AccessProviders
	for _, a := range o.Status.CredentialProviders {
		if p.by(a.Name) == nil {
			p.Access = append(p.Access, a)
		}
	}
	if text, err = json.Marshal(p.Access); err == nil && len(text) > maxAccess {
		err = fmt.Errorf("its access providers have more than %d bytes", maxAccess)
	}
	if err != nil {
		p.Access, p.Error = nil, err.Error()
	}
	return p
}

// Decode parses profiles that were saved as JSON.
func Decode(text []byte) (list []Profile, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for i := range list {
		if !list[i].named() {
			return nil, fmt.Errorf("invalid name %q", list[i].key())
		}
	}
	return list, nil
}

// maxAccess bounds what is kept of a profile. More than that no plugin can be told in its environment.
const maxAccess = 128 << 10

// named reports whether the profile has a name as every API server demands it: it becomes that of a folder.
func (p *Profile) named() bool {
	return len(content.IsDNS1123Label(p.Namespace)) == 0 && len(content.IsDNS1123Subdomain(p.Name)) == 0
}

// by is how the cluster is reached by a provider, nil if it cannot be.
func (p *Profile) by(provider string) *Access {
	if i := slices.IndexFunc(p.Access, func(a Access) bool { return a.Name == provider }); i >= 0 {
		return &p.Access[i]
	}
	return nil
}

// key identifies the profile: names of namespaces have no dots.
func (p *Profile) key() string { return p.Namespace + "." + p.Name }

// ClusterName is what the cluster is called behind a gateway that serves the profiles of one namespace, or of all: there
// the namespace and a dot come first, so that no two have the same name.
func (p *Profile) ClusterName(ofOne bool) string {
	if ofOne {
		return p.Name
	}
	return p.key()
}

// digest returns a digest of the used fields, which changes when they do.
func (p *Profile) digest() [sha256.Size]byte {
	text, _ := json.Marshal(p) // which was read from JSON
	return sha256.Sum256(text)
}

// older orders profiles by age, so that a new one takes no place of those that are there.
func older(a, b Profile) int {
	return cmp.Or(a.Created.Compare(b.Created), bytes.Compare([]byte(a.key()), []byte(b.key())))
}
