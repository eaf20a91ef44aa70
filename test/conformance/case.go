package conformance

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

// The users of requests. Env.Users has their credentials.
const (
	admin     = "admin"    // in system:masters
	alice     = "alice"    // no permissions
	bob       = "bob"      // may read pods in namespace alpha, and nothing else
	jane      = "jane"     // in group dev: may get the ConfigMap "shared" in alpha, and list and watch it by name
	carol     = "carol"    // by certificate, in group dev
	impostor  = "impostor" // may impersonate user alice
	anonymous = "anonymous"
	nobody    = "nobody" // an invalid token
)

// A VersionRule says how the versions of two lists must relate.
type VersionRule int

const (
	// SameVersion requires equal versions: for exact reads, and for linearizable reads of a store that
	// is not written to.
	SameVersion VersionRule = iota
	// AnyVersion allows different versions, because each server may have another newest version. Each
	// must be at least that of every item.
	AnyVersion
)

// A Case is a request, a list followed page by page, or a watch, to which two servers must respond
// alike.
type Case struct {
	// Name is "group/description". Assertions cite cases by name. A number after the slash only groups
	// cases.
	Name string
	Request
	// As is the user; the default is admin.
	As string

	// Facts about the oracle's response.
	Want     int      // status; the default is 200
	WantText []string // substrings of the body, or of the frames of a watch
	WantType string   // Content-Type
	Events   []string // types of the events of a watch, in order

	// Allowed differences.
	Version    VersionRule
	Mask       []*regexp.Regexp // parts of the body to replace before the comparison
	IgnoreBody bool             // compare only the status and headers

	// Timeout bounds the exchange; the default is requestTimeout.
	Timeout time.Duration
	// Slow cases wait for seconds at the server. They are sent to all servers at once and run
	// concurrently.
	Slow bool

	// Walk follows continue tokens to the end and compares every page. It also reads the second page
	// with the token of the other server. The expectations apply to the first page.
	Walk bool
	// Then returns a second request, made from the first response. Both responses are compared.
	Then func(Response) Request
	// Watch reads events until there are as many as Events or Count or, if UntilEOF is set, until the
	// server ends the watch.
	Watch bool
	Count int
	// Initial is how many of the Events are initial events. The case writes once they have arrived.
	Initial  int
	UntilEOF bool
	// Far watches start at Versions.Start. A server that started its cache later may reject that
	// version as too old.
	Far bool
	// WebSocket opens the watch by an upgrade, with these subprotocols.
	WebSocket    bool
	Subprotocols []string
	// Handshake are the raw header lines of a WebSocket handshake, if any. Sends is what the client
	// sends after it. The server's output is compared byte by byte, up to its close frame.
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

// anyStatus as Want allows any status that the oracle returns.
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

	// typeKubectl is the Accept header of kubectl get.
	typeKubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

// get returns a case that reads one path.
func get(name, path string) Case {
	return Case{Name: name, Request: Request{Path: path}, Version: SameVersion}
}

// fresh is get for a read that may return different versions at the two servers.
func fresh(name, path string) Case {
	c := get(name, path)
	c.Version = AnyVersion
	return c
}

// fails is get for a request that both servers must reject with the same status and text.
func fails(name, path string, status int, text ...string) Case {
	c := get(name, path)
	c.Want, c.WantText = status, text
	return c
}

// watch returns a case that reads events from a watch.
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

func (c Case) contains(text ...string) Case {
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
