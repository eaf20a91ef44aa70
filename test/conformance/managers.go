package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managersField begins the managers of an object in JSON.
var managersField = []byte(`"managedFields":`)

// sortManagers puts the managers of every object in JSON in an order that their times have no part in: a server sorts
// them by the second, and a second may begin between two steps at one server and not at the other. Managers that are
// not in a server's order stay as they are, for the comparison to see.
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
			continue // it only looks like one
		}
		out, body = append(out, sorted(managers)...), after[decoder.InputOffset():]
	}
}

// sorted is one object's managers, each as it was.
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

// serverOrder is that of k8s.io/apimachinery/pkg/util/managedfields/internal (sortEncodedManagedFields).
func serverOrder(a, b metav1.ManagedFieldsEntry) int {
	if c := cmp.Compare(a.Operation, b.Operation); c != 0 {
		return c
	}
	if a.Time != nil && b.Time != nil && !a.Time.Equal(b.Time) {
		return a.Time.Compare(b.Time.Time)
	}
	return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
}
