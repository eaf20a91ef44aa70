package api

import (
	"sort"
	"strconv"
	"strings"
)

// Capabilities describe to Negotiate what the upstream can serve at an endpoint, and what kubeweir
// can.
type Capabilities struct {
	// List is true for lists, false for single objects and watches: the metadata transform has
	// another kind for lists.
	List bool
	// Protobuf is true if the upstream serves the resource in protobuf. It serves only the metadata
	// of custom resources.
	Protobuf bool
	// NoProtobuf is true if the endpoint serves nothing in protobuf, not even metadata.
	NoProtobuf bool
	// Table is true if kubeweir can render the resource's tables.
	Table bool
}

// Verdict is the outcome of Negotiate.
type Verdict uint8

const (
	// Forward means that the upstream must respond: in a representation that kubeweir does not
	// serve, or with a 406.
	Forward Verdict = iota
	// Serve means that the Representation is exactly the one that the upstream would choose.
	Serve
)

// Negotiate chooses the representation of a response from the first line of the Accept header (""
// without one). It follows k8s.io/apiserver/pkg/endpoints/handlers/negotiation: the endpoint uses
// the first clause, in order of q, that it can satisfy. Negotiate sets Pretty only for the Accept
// parameter (the method Pretty decides the rest) and never sets IncludeObject.
func Negotiate(accept string, can Capabilities) (Representation, Verdict) {
	var store [8]clause
	clauses := parseAccept(store[:0], accept)
	if len(clauses) == 0 {
		if accept == "" {
			return Representation{Encoding: JSON}, Serve
		}
		return Representation{}, Forward
	}
	for i := range clauses {
		c := &clauses[i]
		for _, media := range offered {
			if !c.matches(media) || !c.acceptable(media, can) {
				continue
			}
			return c.representation(media, can)
		}
	}
	return Representation{}, Forward
}

// AcceptJSON returns the clauses of an Accept header that accept JSON, including wildcards, as a
// header. Without tables it leaves out those for Tables. ok is false if no clause is left.
func AcceptJSON(accept string, tables bool) (only string, ok bool) {
	if accept == "" {
		return JSON.MediaType(), true
	}
	var filtered []string
	for part := range strings.SplitSeq(accept, ",") {
		c, ok := parseClause(trimSpaces(part))
		if !ok || !c.matches(mediaJSON) || !tables && c.convert && !strings.HasPrefix(c.as, "PartialObjectMetadata") {
			continue
		}
		_, parameters, _ := strings.Cut(part, ";")
		filtered = append(filtered, strings.TrimSuffix(JSON.MediaType()+";"+parameters, ";"))
	}
	return strings.Join(filtered, ","), len(filtered) > 0
}

// mediaType is one of the media types that kube-apiserver offers.
type mediaType uint8

const (
	mediaJSON mediaType = iota
	mediaYAML
	mediaProtobuf
	mediaCBOR
)

// offered are the media types in the upstream's order of preference. Upstream, CBOR is behind a
// feature gate.
var offered = [...]mediaType{mediaJSON, mediaYAML, mediaProtobuf, mediaCBOR}

func (m mediaType) subType() string {
	switch m {
	case mediaYAML:
		return "yaml"
	case mediaProtobuf:
		return "vnd.kubernetes.protobuf"
	case mediaCBOR:
		return "cbor"
	}
	return "json"
}

// clause is one clause of an Accept header.
type clause struct {
	mainType, subType string
	q                 float64
	// as, group and version name a transform if convert is set.
	convert            bool
	as, group, version string
	stream             string
	serverVersion      string
	pretty             bool
	drop               string
}

// managedFields is the only value of the parameter drop (KEP-5958).
const managedFields = "metadata.managedFields"

func (c *clause) matches(m mediaType) bool {
	switch c.mainType {
	case "application":
		return c.subType == "*" || c.subType == m.subType()
	case "*":
		return c.subType == "*"
	}
	return false
}

// acceptable reports whether the upstream would respond with m to this clause
// (RequestScope.AllowsMediaTypeTransform and similar).
func (c *clause) acceptable(m mediaType, can Capabilities) bool {
	if !c.acceptableParameters(m, "v1") || m == mediaProtobuf && can.NoProtobuf {
		return false
	}
	if !c.convert {
		return m != mediaProtobuf || can.Protobuf
	}
	if c.group != "meta.k8s.io" || c.version != "v1" && c.version != "v1beta1" {
		return false
	}
	switch c.as {
	case "Table":
		return m == mediaJSON || m == mediaYAML
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

// acceptableParameters checks the parameters that are not about transforms.
func (c *clause) acceptableParameters(m mediaType, serverVersion string) bool {
	if c.stream != "" && (m == mediaYAML || c.stream != "watch") {
		return false
	}
	return c.serverVersion == "" || c.serverVersion == serverVersion
}

// representation turns the clause that the upstream would follow into a Representation, if kubeweir
// serves it.
func (c *clause) representation(m mediaType, can Capabilities) (Representation, Verdict) {
	rep := Representation{Encoding: JSON}
	switch m {
	case mediaYAML:
		rep.YAML = true
	case mediaProtobuf:
		rep.Encoding = Protobuf
	case mediaCBOR:
		rep.Encoding = CBOR
	default:
		rep.Pretty = c.pretty
	}
	switch c.drop {
	case "":
	case managedFields:
		rep.DropManagedFields = true
	default:
		// A server that knows the parameter does not accept this clause; one that does not ignores
		// the parameter.
		return Representation{}, Forward
	}
	switch {
	case !c.convert:
		return rep, Serve
	case c.version != "v1":
		return Representation{}, Forward
	case c.as == "Table":
		rep.Transform = Table
		if !can.Table {
			return Representation{}, Forward
		}
		return rep, Serve
	case can.List == (c.as == "PartialObjectMetadataList"):
		rep.Transform = PartialMetadata
		return rep, Serve
	}
	return Representation{}, Forward
}

// parseAccept appends the clauses of an Accept header to clauses, sorted. It parses exactly like
// github.com/munnerz/goautoneg, which kube-apiserver uses, but without maps.
func parseAccept(clauses []clause, header string) []clause {
	for header != "" {
		var part string
		part, header, _ = strings.Cut(header, ",")
		if c, ok := parseClause(trimSpaces(part)); ok {
			clauses = append(clauses, c)
		}
	}
	// For the few clauses of a usual header sort.Sort is an insertion sort. The order is not a
	// strict weak one, so the result depends on the algorithm.
	if len(clauses) > 12 {
		sorted := append([]clause(nil), clauses...) // keeps the caller's array on its stack
		sort.Sort(byPreference(sorted))
		return sorted
	}
	for i := 1; i < len(clauses); i++ {
		for j := i; j > 0 && byPreference(clauses).Less(j, j-1); j-- {
			clauses[j], clauses[j-1] = clauses[j-1], clauses[j]
		}
	}
	return clauses
}

func parseClause(part string) (clause, bool) {
	c := clause{q: 1}
	media, parameters, _ := strings.Cut(part, ";")
	mainType, subType, _ := strings.Cut(media, "/")
	c.mainType = trimSpaces(mainType)
	if subType == "" {
		if c.mainType != "*" {
			return clause{}, false
		}
		c.subType = "*"
	} else {
		var rest string
		subType, rest, _ = strings.Cut(subType, "/")
		if rest != "" {
			return clause{}, false
		}
		c.subType = trimSpaces(subType)
	}
	for parameters != "" {
		var parameter string
		parameter, parameters, _ = strings.Cut(parameters, ";")
		name, value, _ := strings.Cut(parameter, "=")
		if value == "" {
			continue
		}
		value, rest, _ := strings.Cut(value, "=")
		if rest != "" {
			continue
		}
		c.set(trimSpaces(name), value)
	}
	return c, true
}

// set sets one parameter of a clause. The last of repeated parameters wins.
func (c *clause) set(name, value string) {
	if name == "q" {
		c.q, _ = strconv.ParseFloat(value, 32)
		return
	}
	value = trimSpaces(value)
	switch name {
	case "as":
		c.convert, c.as = true, value
	case "g":
		c.convert, c.group = true, value
	case "v":
		c.convert, c.version = true, value
	case "stream":
		c.stream = value
	case "sv":
		c.serverVersion = value
	case "pretty":
		c.pretty = value == "1"
	case "drop":
		c.drop = value
	}
}

func trimSpaces(s string) string { return strings.Trim(s, " ") }

// byPreference orders clauses as goautoneg does.
type byPreference []clause

func (s byPreference) Len() int      { return len(s) }
func (s byPreference) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s byPreference) Less(i, j int) bool {
	a, b := &s[i], &s[j]
	return a.q > b.q ||
		a.mainType != "*" && b.mainType == "*" ||
		a.subType != "*" && b.subType == "*"
}

// Compression is a content coding of response bodies.
type Compression uint8

// The content codings that kubeweir produces.
const (
	Identity Compression = iota
	Gzip
	Zstd
)

// String returns the coding's name in Content-Encoding.
func (c Compression) String() string {
	switch c {
	case Gzip:
		return "gzip"
	case Zstd:
		return "zstd"
	}
	return "identity"
}

// CompressionThreshold is the size in bytes that a body must exceed to be
// compressed (defaultGzipThresholdBytes in kube-apiserver's responsewriters).
const CompressionThreshold = 128 * 1024

// NegotiateCompression chooses the content coding of a response. It chooses gzip exactly when
// kube-apiserver would: for the bare token without parameters. It chooses zstd, which
// kube-apiserver lacks, only if the client prefers it to gzip or does not accept gzip: bodies in
// zstd consist of several frames, which the format allows and quite a few decoders do not support.
func NegotiateCompression(acceptEncoding string) Compression {
	best := Identity
	gzipQ, zstdQ := -1.0, -1.0
	for acceptEncoding != "" {
		var token string
		token, acceptEncoding, _ = strings.Cut(acceptEncoding, ",")
		token = strings.TrimSpace(token)
		if token == "gzip" {
			best = Gzip
		}
		name, parameters, _ := strings.Cut(token, ";")
		switch strings.TrimSpace(name) {
		case "gzip":
			gzipQ = max(gzipQ, codingQuality(parameters))
		case "zstd":
			zstdQ = max(zstdQ, codingQuality(parameters))
		}
	}
	if zstdQ > 0 && zstdQ > gzipQ {
		return Zstd
	}
	return best
}

// codingQuality returns the q of parameters such as "q=0.5": 1 without any, 0 if it is malformed.
func codingQuality(parameters string) float64 {
	parameters = strings.TrimSpace(parameters)
	if parameters == "" {
		return 1
	}
	value, ok := strings.CutPrefix(parameters, "q=")
	if !ok {
		return 0
	}
	q, err := strconv.ParseFloat(value, 64)
	if err != nil || q != q || q < 0 {
		return 0
	}
	return min(q, 1)
}
