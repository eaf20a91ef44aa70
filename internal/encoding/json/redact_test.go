package json

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		secret         bool
	}{
		{name: "nothing", in: `{"kind":"Node","metadata":{"name":"a","labels":{"env":"prod"}},"spec":{}}`},
		{name: "secret", in: `{"kind":"Secret","data":{"a":"c2VjcmV0","b":"","c":"YQ==","d":null},"stringData":{"e":"abc\n"},"type":"Opaque"}`,
			want: `{"kind":"Secret","data":{"a":"NiBieXRlcw==","b":"MCBieXRlcw==","c":"MSBieXRlcw==","d":null},"stringData":{"e":"4 bytes"},"type":"Opaque"}`},
		{name: "secret, sorted", in: `{"apiVersion":"v1","data":{"a":"c2VjcmV0"},"kind":"Secret","metadata":{"name":"data"}}`,
			want: `{"apiVersion":"v1","data":{"a":"NiBieXRlcw=="},"kind":"Secret","metadata":{"name":"data"}}`},
		{name: "other data", in: `{"kind":"ConfigMap","data":{"a":"plain"},"binaryData":{"b":"YQ=="}}`},
		{name: "items do not say their kind", secret: true, in: `{"kind":"SecretList","metadata":{"annotations":{"data":"x"}},"items":[{"data":{"a":"c2VjcmV0"}},{"metadata":{}}]}`,
			want: `{"kind":"SecretList","metadata":{"annotations":{"data":"x"}},"items":[{"data":{"a":"NiBieXRlcw=="}},{"metadata":{}}]}`},
		{name: "rows", secret: true, in: `{"kind":"Table","rows":[{"cells":["a"],"object":{"data":{"a":"c2VjcmV0"}}}]}`,
			want: `{"kind":"Table","rows":[{"cells":["a"],"object":{"data":{"a":"NiBieXRlcw=="}}}]}`},
		{name: "event", secret: true, in: `{"type":"DELETED","object":{"data":{"a":"c2VjcmV0"}}}`, want: `{"type":"DELETED","object":{"data":{"a":"NiBieXRlcw=="}}}`},
		{name: "embedded", in: `{"spec":{"manifests":[{"data":{"a":"c2VjcmV0"},"kind":"Secret"},{"data":{"a":"kept"},"kind":"Other"}]}}`,
			want: `{"spec":{"manifests":[{"data":{"a":"NiBieXRlcw=="},"kind":"Secret"},{"data":{"a":"kept"},"kind":"Other"}]}}`},
		{name: "embedded list", in: `{"spec":{"items":[ {"stringData":{"a":"x"}}, 1],"kind":"SecretList"}}`,
			want: `{"spec":{"items":[ {"stringData":{"a":"1 bytes"}}, 1],"kind":"SecretList"}}`},
		{name: "data of another shape", in: `{"kind":"secret","Data":"c2VjcmV0","stringdata":{"a":{"kind":"Secret","data":{"b":"c"}}}}`,
			want: `{"kind":"secret","Data":"NiBieXRlcw==","stringdata":{"a":"34 bytes"}}`},
		{name: "escaped names", in: `{"\u006bind":"S\u0065cret","d\u0061ta":{"a":"c2VjcmV0"},"\u0065nv":[{"v\u0061lue":"x"}]}`,
			want: `{"\u006bind":"S\u0065cret","d\u0061ta":{"a":"NiBieXRlcw=="},"\u0065nv":[{}]}`},
		{name: "repeated", in: `{"data":{"a":"c2VjcmV0"},"kind":"Secret","kind":"Other","data":{"a":"c2VjcmV0"}}`,
			want: `{"data":{"a":"NiBieXRlcw=="},"kind":"Secret","kind":"Other","data":{"a":"NiBieXRlcw=="}}`},

		{name: "env", in: `{"containers":[{"name":"c","env":[{"name":"A","value":"x"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"value"}}},{"value":"y","name":"C"},{"value":"z"}],"image":"i"}]}`,
			want: `{"containers":[{"name":"c","env":[{"name":"A"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"value"}}},{"name":"C"},{}],"image":"i"}]}`},
		{name: "env, twice", in: `{"env":[{"value":"x","value":"y","name":"C","value":"z"},{"value":1, "value" : {"a":[{"env":[{"value":2}]}]} }]}`,
			want: `{"env":[{"name":"C"},{ }]}`},
		{name: "env, indented", in: "{\n  \"env\": [\n    {\n      \"name\": \"A\",\n      \"value\": \"x\"\n    }\n  ]\n}",
			want: "{\n  \"env\": [\n    {\n      \"name\": \"A\"\n    }\n  ]\n}"},
		{name: "env of strings", in: `{"extraEnv":["A=x=y","B","C\u003dz"]}`, want: `{"extraEnv":["A=","B","C="]}`},
		{name: "env by name", in: `{"envVars":{"A":"x","B":"y"},"env":{"C":{"value":"z"},"D":[{"value":"z"}]}}`,
			want: `{"envVars":{"A":"","B":""},"env":{"C":{},"D":[{}]}}`},
		{name: "env by name, of texts and others", in: `{"env":{"A":"x","PORT":8080,"B":{"value":"y","name":"b"},"ON":true,"C":null,"PIN":-1},"Env":{"type":"x","A":"y"},"dbEnv":{"value":"x","n":1}}`,
			want: `{"env":{"A":"","PORT":null,"B":{"name":"b"},"ON":true,"C":null,"PIN":null},"Env":{"type":"","A":""},"dbEnv":{"value":"","n":null}}`},
		{name: "env as a text", in: `{"env":"A=x\nB=y","labels":{"env":"prod"}}`, want: `{"env":"A=","labels":{"env":"prod"}}`},
		{name: "schema", in: `{"properties":{"env":{"type":"array","description":"d","items":{"properties":{"name":{"type":"string"},"value":{"type":"string"}}}},"environment":{"type":"string"}}}`},
		{name: "value elsewhere", in: `{"params":[{"name":"a","value":"kept"}],"envFrom":[{"secretRef":{"name":"s"}}]}`},

		{name: "annotations", in: `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","a":"b","objectset.rio.cattle.io/applied":"H4","kubernetes.io/change-cause":"set env"}}}`,
			want: `{"metadata":{"annotations":{"a":"b"}}}`},
		{name: "annotations of a template", in: `{"spec":{"template":{"metadata":{"annotations":{"kapp.k14s.io/original-diff-md5":"x","kopf.zalando.org/last-handled-configuration":"{}"}}}}}`,
			want: `{"spec":{"template":{"metadata":{"annotations":{}}}}}`},
		{name: "an annotation named env", in: `{"metadata":{"annotations":{"env":"a=b","annotations":"x"}}}`},
		{name: "managedFields", in: `{"metadata":{"managedFields":[{"fieldsV1":{"f:env":{"v:\"A=x\"":{}}}}],"name":"a"},"spec":{"properties":{"managedFields":{"type":"array"}}}}`,
			want: `{"metadata":{"name":"a"},"spec":{"properties":{"managedFields":{"type":"array"}}}}`},
		{name: "revision", in: `{"kind":"ControllerRevision","data":{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"A","value":"x"}]}]}}}}}`,
			want: `{"kind":"ControllerRevision","data":{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"A"}]}]}}}}}`},
	} {
		want := c.want
		if want == "" {
			want = c.in
		}
		got, err := Redact([]byte(c.in), c.secret)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, got, want)
		}
	}
}

func TestRedactMalformed(t *testing.T) {
	for _, in := range []string{
		"", " ", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":1}}`, `{"a":1} x`, `{"kind":"Secret","data":{"a"}}`, `{"kind":"Secret","data":`, `[1,]`,
		`{"env":[{"value":"a"]}`, `{"env":{"a":"b"`, `{"env":{"a":"b",}}`, `{"items":[{"data":{"a":1}},],"kind":"SecretList"}`, "{\"a\":\"\n\"}", `{a:1}`, `{"a":tru}`,
		strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		if got, err := Redact([]byte(in), false); err == nil {
			t.Errorf("%.40q became %.40q", in, got)
		}
	}
}

func TestMayRedact(t *testing.T) {
	for path, want := range map[string]bool{
		"metadata.name": false, "type": false, "spec.nodeName": false, "spec.environmentName": false,
		"spec.env.A": true, "spec.dbEnv.A": true, "data.a": true, "spec.stringData.a": true, "spec.Value": true, "metadata.annotations.a": true,
	} {
		if got := MayRedact(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// seed replaces the secrets in a fuzzed text; nothing of it may be left.
const seed = "s3cr3tBYTES"

// FuzzRedact puts a secret into every redacted place of an object, around any JSON: the result is
// JSON with the same keys and without the secret.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"kind":"Secret","data":{"a":"YQ=="}}`), "a", "b", false)
	f.Add([]byte(`{"items":[{"env":[{"name":"a","value":"b"}]}]}`), "env", "kind", true)
	f.Add([]byte(`[]`), "annotations", "data", false)
	f.Add([]byte(`{"kind":"SecretList","items":[{"data":{}}]}`), "managedFields", "kind", true)
	f.Fuzz(func(t *testing.T, other []byte, key, name string, secret bool) {
		if got, err := Redact(other, secret); err == nil && (!json.Valid(other) || !json.Valid(got)) {
			t.Fatalf("%q became %q", other, got)
		}
		if !json.Valid(other) {
			return
		}
		k, n := quote(key), quote(name)
		for _, around := range []string{
			`{§K:§O,"kind":"Secret","data":{§N:"§S","b":"§S"},"metadata":{§N:§O}}`,
			`{"data":{§N:"§S"},"stringData":{§K:"§S","a":"§S"},"kind":"Secret",§N:§O}`,
			`{§N:[§O,{"data":{§K:"§S"},§K:§O,"kind":"Secret"}]}`,
			`{§N:§O,"env":[§O,{"name":§K,"value":"§S"},{"value":"§S","name":"x"},{"value":["§S",§O]}],§K:§O}`,
			`{§N:{"extraEnv":["A=§S",§O]},§K:§O}`,
			`{"env":{§N:"§S","b":1,"c":§O,"d":"§S"},§K:"x"}`,
			`{"metadata":{"annotations":{§N:"a","kubectl.kubernetes.io/last-applied-configuration":"§S",§K:"b"},"managedFields":[{"fieldsV1":{"v:§S":{}}},§O]}}`,
			`{"items":[{"stringData":{§N:"§S"}},§O],"kind":"SecretList"}`,
		} {
			text := strings.NewReplacer("§K", k, "§N", n, "§O", string(other), "§S", seed).Replace(around)
			if !json.Valid([]byte(text)) || strings.Contains(string(other)+key+name, seed) {
				return
			}
			got, err := Redact([]byte(text), secret)
			if err != nil {
				continue // too deep, or not a string for encoding/json
			}
			if bytes.Contains(got, []byte(seed)) || !json.Valid(got) {
				t.Fatalf("%s\nbecame %s", text, got)
			}
			var before, after any
			if json.Unmarshal([]byte(text), &before) != nil || json.Unmarshal(got, &after) != nil {
				t.Fatal(text)
			}
			sameStructure(t, before, after)
		}
	})
}

// sameStructure fails if something was added.
func sameStructure(t *testing.T, before, after any) {
	t.Helper()
	switch after := after.(type) {
	case map[string]any:
		was, ok := before.(map[string]any)
		if !ok {
			t.Fatalf("%v became %v", before, after)
		}
		for name, value := range after {
			if _, ok := was[name]; !ok {
				t.Fatalf("%s is new", name)
			}
			if text, ok := value.(string); !ok || reflect.TypeOf(was[name]) == reflect.TypeOf(text) {
				sameStructure(t, was[name], value)
			}
		}
	case []any:
		was, ok := before.([]any)
		if !ok || len(was) != len(after) {
			t.Fatalf("%v became %v", before, after)
		}
		for i := range after {
			sameStructure(t, was[i], after[i])
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	env := strings.Repeat(`{"name":"VARIABLE","value":"some value of it"},`, 20)
	pod := []byte(`{"kind":"Pod","metadata":{"name":"a","annotations":{"a":"b"}},"spec":{"containers":[{"env":[` + env[:len(env)-1] + `]}],"volumes":[` + strings.Repeat(`{"name":"a","projected":{"sources":[{"configMap":{"name":"x"}}]}},`, 60) + `{}]}}`)
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Redact(pod, false); err != nil {
			b.Fatal(err)
		}
	}
}
