package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

// Masks replace what may legitimately differ between two servers. All other bytes are compared, so
// masks locate values by the structure of the body, not by patterns that could match elsewhere.

var (
	versionField  = regexp.MustCompile(`("resourceVersion":\s*)"\d+"`)
	continueField = regexp.MustCompile(`("continue":\s*)"([^"]+)"`)
)

// listMetadata masks the metadata of a list or Status: the version if the rule allows it to differ,
// and the continue token, which it replaces by its decoded contents. Bodies other than JSON objects
// are returned unchanged.
func listMetadata(body []byte, rule VersionRule) []byte {
	from, to, ok := topLevel(body, "metadata")
	if !ok {
		return body
	}
	meta := body[from:to]
	if rule == AnyVersion {
		meta = versionField.ReplaceAll(meta, []byte(`$1"MASKED"`))
	}
	meta = continueField.ReplaceAllFunc(meta, func(m []byte) []byte {
		f := continueField.FindSubmatch(m)
		return fmt.Appendf(nil, `%s"%s"`, f[1], describeToken(string(f[2]), rule))
	})
	return bytes.Join([][]byte{body[:from], meta, body[to:]}, nil)
}

// yamlStart is the beginning of every object in YAML, because the members are sorted.
var yamlStart = []byte("apiVersion: ")

var (
	yamlMetadata = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*`)
	yamlVersion  = regexp.MustCompile(`(?m)^(  resourceVersion: )"\d+"$`)
	yamlContinue = regexp.MustCompile(`(?m)^(  continue: )(\S+)$`)
)

// yamlListMetadata is listMetadata for a list in YAML.
func yamlListMetadata(body []byte, rule VersionRule) []byte {
	at := yamlMetadata.FindIndex(body)
	if at == nil {
		return body
	}
	meta := body[at[0]:at[1]]
	if rule == AnyVersion {
		meta = yamlVersion.ReplaceAll(meta, []byte(`$1"MASKED"`))
	}
	meta = yamlContinue.ReplaceAllFunc(meta, func(m []byte) []byte {
		f := yamlContinue.FindSubmatch(m)
		return fmt.Appendf(nil, `%s"%s"`, f[1], describeToken(string(f[2]), rule))
	})
	return bytes.Join([][]byte{body[:at[0]], meta, body[at[1]:]}, nil)
}

// unmarshal decodes the body into the members of into. It decodes only the metadata of a list in
// YAML, because parsing YAML is slow.
func unmarshal(body []byte, into any) error {
	switch {
	case isCBOR(body):
		var all any
		if err := direct.Unmarshal(body, &all); err != nil { // direct.Unmarshal rejects members that are not in into
			return err
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		body = text
	case bytes.HasPrefix(body, yamlStart):
		return yaml.Unmarshal(yamlMetadata.Find(body), into)
	}
	return json.Unmarshal(body, into)
}

// listVersion returns the version in a list's metadata, or "".
func listVersion(body []byte) string {
	if proto, ok := bytes.CutPrefix(body, protoMagic); ok {
		version := ""
		_, _ = rewrite(proto, []protowire.Number{unknownRaw, listMeta, listMetaVersion}, func(b []byte) []byte {
			version = string(b)
			return b
		})
		return version
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if unmarshal(body, &list) != nil {
		return ""
	}
	return list.Metadata.ResourceVersion
}

// continueToken returns the token in the metadata of a list or Status, or "".
func continueToken(body []byte) string {
	if proto, ok := bytes.CutPrefix(body, protoMagic); ok {
		return string(field(proto, unknownRaw, listMeta, listMetaContinue))
	}
	var list struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
	}
	if unmarshal(body, &list) != nil {
		return ""
	}
	return list.Metadata.Continue
}

// describeToken decodes a continue token: the start key and the version. The store writes the start
// key with or without a leading slash; both mean the same.
func describeToken(token string, rule VersionRule) string {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "undecodable " + token
	}
	var t struct {
		Version  string `json:"v"`
		Revision int64  `json:"rv"`
		Start    string `json:"start"`
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return "undecodable " + token
	}
	at := fmt.Sprint(t.Revision)
	if rule == AnyVersion && t.Revision > 0 {
		at = "MASKED"
	}
	return fmt.Sprintf("%s at %s from %s", t.Version, at, strings.Trim(fmt.Sprintf("%q", strings.TrimPrefix(t.Start, "/")), `"`))
}

// makeToken encodes a continue token.
func makeToken(revision int64, start string) string {
	b, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": revision, "start": start})
	if err != nil {
		panic(err) // cannot happen: a map of strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// topLevel returns the position of a value at the top level of a JSON object.
func topLevel(body []byte, key string) (from, to int, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, false
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return 0, 0, false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return 0, 0, false
		}
		if k == key {
			end := int(d.InputOffset())
			return end - len(v), end, true
		}
	}
	return 0, 0, false
}

// protoMagic is the prefix of every protobuf body except watch frames.
var protoMagic = []byte("k8s\x00")

// Field numbers of runtime.Unknown, of every list type, and of the metadata of lists and objects.
const (
	unknownRaw      protowire.Number = 2
	listMeta        protowire.Number = 1
	listMetaVersion protowire.Number = 2

	listMetaContinue protowire.Number = 3

	objectMeta    protowire.Number = 1
	objectVersion protowire.Number = 6
	objectCreated protowire.Number = 8
	objectManaged protowire.Number = 17
	managedTime   protowire.Number = 4
	eventType     protowire.Number = 1
	eventObject   protowire.Number = 2
	extensionRaw  protowire.Number = 1
)

// protoListMetadata is listMetadata for a protobuf list. In a body that is not a list it replaces
// the strings at the positions of a list's metadata.
func protoListMetadata(body []byte, rule VersionRule) []byte {
	out, ok := bytes.CutPrefix(body, protoMagic)
	if !ok {
		return body
	}
	replace := func(number protowire.Number, f func([]byte) []byte) error {
		replaced, err := rewrite(out, []protowire.Number{unknownRaw, listMeta, number}, f)
		if err == nil {
			out = replaced
		}
		return err
	}
	if rule == AnyVersion {
		if replace(listMetaVersion, func([]byte) []byte { return []byte("MASKED") }) != nil {
			return body
		}
	}
	describe := func(token []byte) []byte {
		if len(token) == 0 {
			return nil
		}
		return []byte(describeToken(string(token), rule))
	}
	if replace(listMetaContinue, describe) != nil {
		return body
	}
	return append(bytes.Clone(protoMagic), out...)
}

// rewrite replaces the bytes of the field at path, all of whose fields are length-delimited, and
// updates the enclosing lengths. It copies everything else.
func rewrite(msg []byte, path []protowire.Number, f func([]byte) []byte) ([]byte, error) {
	if len(path) == 0 {
		return f(msg), nil
	}
	var out []byte
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, msg[n:])
		if m < 0 {
			return nil, protowire.ParseError(m)
		}
		if num != path[0] || typ != protowire.BytesType {
			out, msg = append(out, msg[:n+m]...), msg[n+m:]
			continue
		}
		v, _ := protowire.ConsumeBytes(msg[n:])
		inner, err := rewrite(v, path[1:], f)
		if err != nil {
			return nil, err
		}
		out = protowire.AppendBytes(append(out, msg[:n]...), inner)
		msg = msg[n+m:]
	}
	return out, nil
}

// field returns the bytes of the field at path, or nil.
func field(msg []byte, path ...protowire.Number) []byte {
	var found []byte
	_, _ = rewrite(msg, path, func(b []byte) []byte {
		found = b
		return b
	})
	return found
}
