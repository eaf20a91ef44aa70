package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managersField precedes the managers of an object in JSON.
var managersField = []byte(`"managedFields":`)

// sortManagers sorts the managers of every object in JSON without regard to their times. A server
// sorts them by the second of their last write, and two steps may fall into the same second at one
// server only. It leaves managers unchanged that are not in the order of a server, so that the
// comparison fails.
func sortManagers(body []byte) []byte {
	var out []byte
	for {
		before, after, found := bytes.Cut(body, managersField)
		out = append(out, before...)
		if !found {
			return out
		}
		out, body = append(out, managersField...), after
		var managers json.RawMessage
		decoder := json.NewDecoder(bytes.NewReader(after))
		if decoder.Decode(&managers) != nil {
			continue // it is not the field
		}
		out, body = append(out, sorted(managers)...), after[decoder.InputOffset():]
	}
}

// sorted returns the sorted managers of one object.
func sorted(managers json.RawMessage) []byte {
	var raw []json.RawMessage
	var entries []metav1.ManagedFieldsEntry
	if json.Unmarshal(managers, &raw) != nil || json.Unmarshal(managers, &entries) != nil || !slices.IsSortedFunc(entries, serverOrder) {
		return managers
	}
	slices.SortFunc(raw, func(a, b json.RawMessage) int {
		return bytes.Compare(anyTime.ReplaceAll(a, nil), anyTime.ReplaceAll(b, nil))
	})
	return slices.Concat([]byte("["), bytes.Join(anySlice(raw), []byte(",")), []byte("]"))
}

func anySlice(raw []json.RawMessage) [][]byte {
	out := make([][]byte, len(raw))
	for i, r := range raw {
		out[i] = r
	}
	return out
}

// serverOrder is the order of k8s.io/apimachinery/pkg/util/managedfields/internal
// (sortEncodedManagedFields).
func serverOrder(a, b metav1.ManagedFieldsEntry) int {
	if c := cmp.Compare(a.Operation, b.Operation); c != 0 {
		return c
	}
	if a.Time != nil && b.Time != nil && !a.Time.Equal(b.Time) {
		return a.Time.Compare(b.Time.Time)
	}
	return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}
