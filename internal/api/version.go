package api

import (
	"encoding/json"
	"strconv"
)

// ParseResourceVersion parses a resourceVersion as the storage layer of
// kube-apiserver does (k8s.io/apiserver/pkg/storage/api_object_versioner.go):
// "" and "0" are 0, otherwise a decimal uint64.
func ParseResourceVersion(s string) (uint64, error) {
	if s == "" || s == "0" {
		return 0, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// GitVersion returns the gitVersion of a response to /version, such as "v1.36.3", "" if it has none.
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

// String is the wire name of the type.
func (t EventType) String() string {
	if int(t) < len(eventTypeNames) {
		return eventTypeNames[t]
	}
	return ""
}

// ParseEventType is the inverse of String; 0 for an unknown name.
func ParseEventType(s string) EventType {
	for t, name := range eventTypeNames {
		if name != "" && name == s {
			return EventType(t)
		}
	}
	return 0
}

// Encoding is a wire encoding of objects that kubeweir keeps or serves.
type Encoding uint8

// The encodings. Nothing is kept in CBOR.
const (
	JSON Encoding = iota
	Protobuf
	CBOR
)

// String names the encoding for metrics and logs.
func (e Encoding) String() string {
	switch e {
	case Protobuf:
		return "protobuf"
	case CBOR:
		return "cbor"
	}
	return "json"
}

// MediaType is the response Content-Type of the encoding; watches of protobuf
// add ";stream=watch", those of CBOR have one of their own.
func (e Encoding) MediaType() string {
	switch e {
	case Protobuf:
		return "application/vnd.kubernetes.protobuf"
	case CBOR:
		return "application/cbor"
	}
	return "application/json"
}

// Transform is what a client asked the objects to be turned into.
type Transform uint8

// The transforms of meta.k8s.io/v1.
const (
	NoTransform Transform = iota
	Table
	PartialMetadata
)

// IncludeObject says what a Table row carries of its object.
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
	YAML          bool          // what Encoding, which is JSON, says, in YAML
	// DropManagedFields leaves metadata.managedFields out of objects.
	DropManagedFields bool
	// Redacted leaves secrets out of objects. No client asks for it: a rule says so.
	Redacted bool
}
