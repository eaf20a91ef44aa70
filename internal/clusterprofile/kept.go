package clusterprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// kept is a profile as it is kept over restarts.
type kept struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Access    []access  `json:"access,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// Encode makes of profiles what Decode reads.
func Encode(list []Profile) ([]byte, error) {
	all := make([]kept, len(list))
	for i, p := range list {
		all[i] = kept{Namespace: p.Namespace, Name: p.Name, Created: p.Created, Access: p.access}
		if p.err != nil {
			all[i].Error = p.err.Error()
		}
	}
	return json.Marshal(all)
}

// Decode reads what Encode has made.
func Decode(text []byte) ([]Profile, error) {
	var all []kept
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("ClusterProfiles that were kept: %w", err)
	}
	list := make([]Profile, len(all))
	for i, k := range all {
		list[i] = Profile{Namespace: k.Namespace, Name: k.Name, Created: k.Created, access: k.Access}
		if k.Error != "" {
			list[i].err = errors.New(k.Error)
		}
		if !list[i].named() {
			return nil, fmt.Errorf("ClusterProfiles that were kept: %q is no name", list[i].key())
		}
	}
	return list, nil
}
