package api

import (
	"encoding/json"
	"strconv"
)

// ParseResourceVersion parses a resourceVersion like the storage layer of kube-apiserver
// (k8s.io/apiserver/pkg/storage/api_object_versioner.go): "" and "0" are 0, otherwise a decimal
// uint64.
func ParseResourceVersion(s string) (uint64, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// GitVersion returns the gitVersion of a response to /version, such as "v1.36.3", "" without one.
func GitVersion(version []byte) string {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if json.Unmarshal(version, &info) != nil {
		return ""
	}
	return info.GitVersion
}

// EventType is the type of a watch event.
type EventType uint8

// The event types of the watch protocol.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
	Error
)

var eventTypeNames = [...]string{Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED", Bookmark: "BOOKMARK", Error: "ERROR"}

// String returns the wire name of the type.
func (t EventType) String() string {
	if int(t) < len(eventTypeNames) {
		return eventTypeNames[t]
	}
	return ""
}

// ParseEventType is the inverse of String. It returns 0 for an unknown name.
func ParseEventType(s string) EventType {
	for t, name := range eventTypeNames {
		if name != "" && name == s {
			return EventType(t)
		}
	}
	return 0
}

// Encoding is a wire encoding of objects that kubeweir stores or serves.
type Encoding uint8

// The encodings. The cache stores nothing in CBOR.
const (
	JSON Encoding = iota
	Protobuf
	CBOR
)

// String returns the encoding's name in metrics and logs.
func (e Encoding) String() string {
	switch e {
	case Protobuf:
		return "protobuf"
	case CBOR:
		return "cbor"
	}
	return "json"
}

// MediaType returns the Content-Type of responses. Watches in protobuf add ";stream=watch"; those
// in CBOR have a type of their own.
func (e Encoding) MediaType() string {
	switch e {
	case Protobuf:
		return "application/vnd.kubernetes.protobuf"
	case CBOR:
		return "application/cbor"
	}
	return "application/json"
}

// Transform is the transform of objects that a client requested.
type Transform uint8

// The transforms of meta.k8s.io/v1.
const (
	NoTransform Transform = iota
	Table
	PartialMetadata
)

// IncludeObject selects how much of its object a Table row contains.
type IncludeObject uint8

// The values of the includeObject parameter.
const (
	IncludeMetadata IncludeObject = iota
	IncludeObjectFull
	IncludeNone
)

// Representation is the form of a response body. It is comparable.
type Representation struct {
	Encoding      Encoding
	Transform     Transform
	IncludeObject IncludeObject // for Table
	Pretty        bool          // JSON indented by two spaces
	YAML          bool          // YAML in place of JSON, which Encoding says
	// DropManagedFields leaves metadata.managedFields out of objects.
	DropManagedFields bool
	// Redacted leaves secrets out of objects. Policy rules set it, never a client.
	Redacted bool
}
