package conformance

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

// Who a request is from. Env.Users holds the credentials.
const (
	admin     = "admin"    // in system:masters
	alice     = "alice"    // no rights
	bob       = "bob"      // may read pods in namespace alpha, and nothing else
	jane      = "jane"     // group dev: may get configmap "shared" in alpha, and list and watch it by name
	carol     = "carol"    // by certificate, in group dev
	impostor  = "impostor" // may impersonate user alice
	anonymous = "anonymous"
	nobody    = "nobody" // an invalid token
)

// A VersionRule says what two answers' list versions have to do with each other.
type VersionRule int

const (
	// SameVersion: equal. Right for exact and for linearizable reads of a store that is not written to.
	SameVersion VersionRule = iota
	// AnyVersion: each server may know another newest version; both are at least that of every item.
	AnyVersion
)

// A Case is one request, or one that is followed page by page or read as a watch, that two servers must answer alike.
type Case struct {
	// Name is "group/what is shown". By it the case cites what it holds, see Assertions; a number after the slash
	// groups cases and stands for nothing else.
	Name string
	Request
	// As is who asks; admin when empty.
	As string

	// Facts about the oracle's answer.
	Want     int      // status; 200 when 0
	WantText []string // substrings of the body, or of the frames of a watch
	WantType string   // Content-Type
	Events   []string // types of a watch's events, in order

	// What may differ.
	Version    VersionRule
	Mask       []*regexp.Regexp // parts of the body that are replaced before it is compared
	IgnoreBody bool             // only the status and headers are compared

	// Timeout bounds the exchange; requestTimeout when 0.
	Timeout time.Duration
	// Slow cases wait for seconds at the server; they are asked of everybody at once and run beside each other.
	Slow bool

	// Walk follows continue tokens to the end and compares every page; the second page is also read with the
	// token of the other server. The expectations hold for the first page.
	Walk bool
	// Then makes a second request of the first one's answer; both are compared.
	Then func(Response) Request
	// Watch reads frames until there are as many as Events or Count, or, when UntilEOF is set, until the server ends
	// it.
	Watch bool
	Count int
	// Initial is how many of the Events are of what was there before: what follows is written when they have come.
	Initial  int
	UntilEOF bool
	// Far watches begin at Versions.Start. A server that has begun to follow the state since then may say that this
	// is too old.
	Far bool
	// WebSocket asks for the watch by an upgrade, with these subprotocols.
	WebSocket    bool
	Subprotocols []string
	// Handshake, if there is one, are the header lines that ask for a WebSocket, as they are sent. What the server
	// then writes is compared byte by byte, up to its close frame; Sends is what it is sent.
	Handshake []string
	Sends     string
}

func (c Case) as() string {
	if c.As == "" {
		return admin
	}
	return c.As
}

func (c Case) want() int {
	switch {
	case c.Want != 0:
		return c.Want
	case c.WebSocket:
		return 101
	default:
		return 200
	}
}

// anyStatus as Want leaves it to the oracle whether a request is refused.
const anyStatus = -1

// Media types.
const (
	typeJSON     = "application/json"
	typeProto    = "application/vnd.kubernetes.protobuf"
	typeYAML     = "application/yaml"
	typeCBOR     = "application/cbor"
	typeTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	typeMeta     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	typeMetaList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

	typeProtoMeta     = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	typeProtoMetaList = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	typeCBORSequence  = "application/cbor-seq"
	typeProtoWatch    = "application/vnd.kubernetes.protobuf;stream=watch"

	// What kubectl get sends.
	typeKubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

// get is a case that reads one path.
func get(name, path string) Case {
	return Case{Name: name, Request: Request{Path: path}, Version: SameVersion}
}

// fresh is get for a read whose version each server chooses.
func fresh(name, path string) Case {
	c := get(name, path)
	c.Version = AnyVersion
	return c
}

// fails is get for a request that both must refuse with the same status and text.
func fails(name, path string, status int, text ...string) Case {
	c := get(name, path)
	c.Want, c.WantText = status, text
	return c
}

// watch is a case that reads frames from a watch.
func watch(name, path string, events ...string) Case {
	c := get(name, path)
	c.Watch, c.Events = true, events
	return c
}

func (c Case) accept(mediaType string) Case {
	c.Accept = mediaType
	return c
}

func (c Case) from(user string) Case {
	c.As = user
	return c
}

func (c Case) header(key, value string) Case {
	c.Header = maps.Clone(c.Header)
	if c.Header == nil {
		c.Header = make(map[string]string, 1)
	}
	c.Header[key] = value
	return c
}

func (c Case) method(m string) Case {
	c.Method = m
	return c
}

func (c Case) says(text ...string) Case {
	c.WantText = append(slices.Clone(c.WantText), text...)
	return c
}

func (c Case) typed(contentType string) Case {
	c.WantType = contentType
	return c
}

func (c Case) status(code int) Case {
	c.Want = code
	return c
}

func (c Case) mask(pattern string) Case {
	c.Mask = append(slices.Clone(c.Mask), regexp.MustCompile(pattern))
	return c
}

func (c Case) count(n int) Case {
	c.Count = n
	return c
}

func (c Case) far() Case {
	c.Far = true
	return c
}

func (c Case) slow() Case {
	c.Slow = true
	return c
}

func (c Case) walk() Case {
	c.Walk = true
	return c
}

func (c Case) then(f func(Response) Request) Case {
	c.Then = f
	return c
}

func (c Case) initial(n int) Case {
	c.Initial = n
	return c
}

func (c Case) toEOF() Case {
	c.UntilEOF = true
	return c
}

func (c Case) ignoreBody() Case {
	c.IgnoreBody = true
	return c
}
