package create

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubeweir/kubeweir/origin/registry"
)

// TestManager: the words of k8s.io/apiserver/pkg/endpoints/handlers (managerOrUserAgent, prefixFromUserAgent).
func TestManager(t *testing.T) {
	for _, tc := range []struct{ asked, agent, want string }{
		{"", "kubectl/v1.36 (linux)", "kubectl"},
		{"me", "kubectl/v1.36", "me"},
		{"", "", "unknown"},
		{"", "/", "unknown"},
		{"", "a\x01b\u00e4/", "ab\u00e4"},
		{"", strings.Repeat("a", 200), strings.Repeat("a", 128)},
		{"", strings.Repeat("a", 127) + "\u00e4b", strings.Repeat("a", 127)},
	} {
		if got := manager(tc.asked, tc.agent); got != tc.want {
			t.Errorf("manager(%q, %q) = %q, want %q", tc.asked, tc.agent, got, tc.want)
		}
	}
}

// TestReadBody: whatever was read of a body, all of it can be read again, and fails where it failed.
func TestReadBody(t *testing.T) {
	broken := errors.New("broken")
	large := strings.Repeat("x", largest+1000)
	for name, tc := range map[string]struct {
		body   io.Reader
		length int64
		read   int
		whole  string
		err    error
	}{
		"small":          {strings.NewReader("abc"), 3, 3, "abc", nil},
		"unknown length": {strings.NewReader("abc"), -1, 3, "abc", nil},
		"empty":          {strings.NewReader(""), 0, 0, "", nil},
		"large":          {strings.NewReader(large), int64(len(large)), largest + 1, large, nil},
		"breaks off":     {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), 10, 3, "abc", broken},
	} {
		t.Run(name, func(t *testing.T) {
			req := &http.Request{Body: io.NopCloser(tc.body), ContentLength: tc.length}
			body, again, err := readBody(req)
			if len(body) != tc.read || !errors.Is(err, tc.err) {
				t.Errorf("%d bytes, %v", len(body), err)
			}
			whole, err := io.ReadAll(again)
			if string(whole) != tc.whole || !errors.Is(err, tc.err) {
				t.Errorf("again: %d bytes, %v", len(whole), err)
			}
		})
	}
}

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestDropRepeatedOwners(t *testing.T) {
	yes := true
	a := metav1.OwnerReference{Kind: "A", Name: "a", UID: "1", Controller: &yes}
	other := metav1.OwnerReference{Kind: "A", Name: "other", UID: "1"}
	also := true
	same := a
	same.Controller = &also
	for _, tc := range []struct {
		owners   []metav1.OwnerReference
		kept     int
		warnings int
	}{
		{nil, 0, 0},
		{[]metav1.OwnerReference{a}, 1, 0},
		{[]metav1.OwnerReference{a, other}, 2, 0},
		{[]metav1.OwnerReference{a, same, other, a}, 2, 1},
	} {
		var told warnings
		object := &metav1.ObjectMeta{OwnerReferences: tc.owners}
		dropRepeatedOwners(warning.WithWarningRecorder(context.Background(), &told), object)
		if len(object.OwnerReferences) != tc.kept || len(told) != tc.warnings {
			t.Errorf("of %d owners %d are kept, told %q", len(tc.owners), len(object.OwnerReferences), told)
		}
	}
}

// A plugin changes objects.
type plugin struct{ change func() }

func (plugin) Handles(admission.Operation) bool { return true }

func (p plugin) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	p.change()
	return nil
}

// TestManagersAfterAdmission: admission may change managed fields, but not into what nobody can read.
func TestManagersAfterAdmission(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`),
		}
	}
	own, valid, invalid := entry("own", "Update"), entry("plugin", "Update"), entry("plugin", "Nothing")
	for name, tc := range map[string]struct {
		after    []metav1.ManagedFieldsEntry
		want     []string
		warnings int
	}{
		"as they were": {[]metav1.ManagedFieldsEntry{own}, []string{"own"}, 0},
		"others":       {[]metav1.ManagedFieldsEntry{own, valid}, []string{"own", "plugin"}, 0},
		"none":         {nil, nil, 0},
		"invalid":      {[]metav1.ManagedFieldsEntry{own, invalid}, []string{"own"}, 1},
		"replaced":     {[]metav1.ManagedFieldsEntry{invalid}, []string{"own"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			object := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{own}}
			r := &Resource{Admit: plugin{func() { object.ManagedFields = tc.after }}}
			var told warnings
			err := r.mutate(warning.WithWarningRecorder(context.Background(), &told), &creation{meta: object, managed: own}, nil)
			var got []string
			for _, e := range object.ManagedFields {
				got = append(got, e.Manager)
			}
			if err != nil || !slices.Equal(got, tc.want) || len(told) != tc.warnings {
				t.Errorf("managers %v, told %q, %v", got, told, err)
			}
		})
	}
}

// A store takes objects that have at most so many managers.
type store struct {
	managers int
	asked    int
}

func (*store) New() runtime.Object { return &corev1.ConfigMap{} }
func (*store) Destroy()            {}

func (s *store) Create(_ context.Context, object runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	s.asked++
	if len(object.(*corev1.ConfigMap).ManagedFields) > s.managers {
		return nil, registry.ErrTooLarge
	}
	return object, nil
}

// TestTooLarge: an object that is too large with its managed fields is stored without.
func TestTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		managers     int
		asked, known int
		err          error
	}{
		"fits":         {1, 1, 1, nil},
		"fits without": {0, 2, 0, nil},
		"does not fit": {-1, 2, 0, registry.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			object, s := &corev1.ConfigMap{}, &store{managers: tc.managers}
			r := &Resource{Scope: &handlers.RequestScope{}, Storage: s, Admit: plugin{func() {}}}
			managed := metav1.ManagedFieldsEntry{Manager: "own"}
			_, err := r.create(t.Context(), &creation{object: object, meta: object, managed: managed, options: &metav1.CreateOptions{}})
			if !errors.Is(err, tc.err) || s.asked != tc.asked || len(object.ManagedFields) != tc.known {
				t.Errorf("%v after %d times, %d managers", err, s.asked, len(object.ManagedFields))
			}
		})
	}
}
