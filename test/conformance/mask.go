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

// Masking replaces what two right answers may differ in. Everything else is compared byte by byte, so masks find
// their place by the structure of the body, not by a pattern that could match elsewhere.

var (
	versionField  = regexp.MustCompile(`("resourceVersion":\s*)"\d+"`)
	continueField = regexp.MustCompile(`("continue":\s*)"([^"]+)"`)
)

// listMetadata replaces in a list's or Status's own metadata the version, if the rule lets it differ, and the
// continue token by what it says. Bodies that are no JSON object are returned as they are.
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

// yamlStart begins every object in YAML, whose members are sorted.
var yamlStart = []byte("apiVersion: ")

var (
	yamlMetadata = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*`)
	yamlVersion  = regexp.MustCompile(`(?m)^(  resourceVersion: )"\d+"$`)
	yamlContinue = regexp.MustCompile(`(?m)^(  continue: )(\S+)$`)
)

// yamlListMetadata is listMetadata of a list in YAML.
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

// unmarshal reads of a body what into has members for. Of a list in YAML, which takes long to read, there are its version
// and its token alone.
func unmarshal(body []byte, into any) error {
	switch {
	case isCBOR(body):
		var all any
		if err := direct.Unmarshal(body, &all); err != nil { // which takes no members that are not in into
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

// listVersion is the version in a list's own metadata, empty if there is none.
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

// continueToken is the token in a list's or Status's metadata, empty if there is none.
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

// describeToken spells a continue token out: where it goes on and at which version. The store writes the start key
// with a leading slash or without; both mean the same.
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

// makeToken writes a continue token.
func makeToken(revision int64, start string) string {
	b, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": revision, "start": start})
	if err != nil {
		panic(err) // a map of strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// topLevel finds the bytes of a value at the top level of a JSON object.
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

// protoMagic starts every protobuf body that is not a watch frame.
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

// protoListMetadata is listMetadata of a protobuf list. Bodies that are none are returned as they are, but for the words
// that stand where a list has its metadata.
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

// rewrite replaces the bytes of the field at path, a length-delimited one inside length-delimited ones, and fixes
// the lengths around it. Everything else is copied.
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

// field is the bytes of the field at path, nil if there is none.
func field(msg []byte, path ...protowire.Number) []byte {
	var found []byte
	_, _ = rewrite(msg, path, func(b []byte) []byte {
		found = b
		return b
	})
	return found
}
