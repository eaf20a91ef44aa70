package upstream

import (
	"encoding/json"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// Documents are the upstream's last discovery documents. They are shared and must not be modified.
type Documents struct {
	// At is when they were read; zero before that.
	At time.Time `json:"at"`
	// Core and Groups are the aggregated discovery documents of /api and /apis, and their ETags.
	Core       *apidiscoveryv2.APIGroupDiscoveryList `json:"core,omitempty"`
	Groups     *apidiscoveryv2.APIGroupDiscoveryList `json:"groups,omitempty"`
	CoreETag   string                                `json:"coreETag,omitempty"`
	GroupsETag string                                `json:"groupsETag,omitempty"`
	// Version is the body of /version, nil if that is not known.
	Version json.RawMessage `json:"version,omitempty"`
}

// Documents returns what was read last.
func (d *Discovery) Documents() Documents {
	known := d.known.Load()
	docs := Documents{At: known.at}
	if doc := known.documents["/api"]; doc != nil {
		docs.Core, docs.CoreETag = doc.list, doc.etag
	}
	if doc := known.documents["/apis"]; doc != nil {
		docs.Groups, docs.GroupsETag = doc.list, doc.etag
	}
	if version := d.c.version.Load(); version != nil {
		docs.Version = *version
	}
	return docs
}

// Restore adopts what an earlier process read, unless something was read already. It counts until
// discovery is read. It reports whether it was of any use.
func (d *Discovery) Restore(docs *Documents) bool {
	if docs.Core == nil || docs.Groups == nil {
		return false
	}
	known := newDiscovered(docs.At)
	known.restored = true
	known.add("/api", &document{etag: docs.CoreETag, list: docs.Core}, &discovered{})
	known.add("/apis", &document{etag: docs.GroupsETag, list: docs.Groups}, &discovered{})
	if docs.Version != nil {
		version := []byte(docs.Version)
		d.c.version.CompareAndSwap(nil, &version)
	}
	last := d.known.Load()
	return last.at.IsZero() && d.known.CompareAndSwap(last, known)
}

// Read reports whether this process has read discovery.
func (d *Discovery) Read() bool {
	known := d.known.Load()
	return !known.at.IsZero() && !known.restored
}
