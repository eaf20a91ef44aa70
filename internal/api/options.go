package api

import (
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ListOptions are the decoded, defaulted and validated parameters of a list or
// watch.
type ListOptions struct {
	// LabelSelector and FieldSelector are never nil after ParseListOptions. The field selector's
	// labels are not converted yet: which fields can be selected depends on the resource.
	LabelSelector       labels.Selector
	FieldSelector       fields.Selector
	Watch               bool
	AllowWatchBookmarks bool
	// ResourceVersion is the parameter as sent. It need not be a number.
	ResourceVersion      string
	ResourceVersionMatch metav1.ResourceVersionMatch
	// TimeoutSeconds is the duration of a watch. 0 means that the parameter is absent or 0.
	TimeoutSeconds int64
	// Limit is the page size. Values below 1 mean no limit.
	Limit    int64
	Continue string
	// SendInitialEvents is set, by the client or by default, for a watch that begins with the
	// current objects. Otherwise the watch begins with the events after ResourceVersion ("" or "0":
	// from now, but see UnmarkedStart).
	SendInitialEvents bool
	// UnmarkedStart is set for a watch that begins with the current objects, at any version,
	// without SendInitialEvents, as clients before Kubernetes 1.34 watch: no bookmark marks their
	// end.
	UnmarkedStart bool
	// ShardSelector selects the part of the collection that is read, "" for all of it. It is an
	// alpha feature of kube-apiserver. Package shard parses it.
	ShardSelector string
}

// ParseListOptions decodes, defaults and validates a raw query as kube-apiserver does with the
// WatchList feature enabled (k8s.io/apiserver/pkg/endpoints/handlers/get.go). The error is the
// upstream's: 400 for a query that cannot be decoded, 422 for an invalid one. Requests served from
// the cache have their options in RequestInfo.
func ParseListOptions(rawQuery string) (ListOptions, error) {
	q := parseQuery(rawQuery)
	return q.listOptions(rawQuery)
}

// listOptions is ParseListOptions for a query that is parsed already. With an error it returns the
// options from which the upstream still derives the verb and the name of the request: those that
// could be decoded, or only the watch parameter.
func (q *query) listOptions(raw string) (ListOptions, error) {
	if opts, ok := q.fastListOptions(); ok && opts.setDefaults() {
		return opts, nil
	}
	return q.slowListOptions(raw)
}

// MostRecent reports whether a list must return the most recent state: it has no resourceVersion,
// or a token that continues an expired list (see ContinueToken). Tokens that cannot be decoded do
// not count.
func (o *ListOptions) MostRecent() bool {
	if o.Continue == "" {
		return o.ResourceVersion == ""
	}
	token, err := decodeContinue(o.Continue)
	return err == nil && token.ResourceVersion < 0
}

// isAnyVersion reports whether ResourceVersion is unset or zero, in any spelling.
func (o *ListOptions) isAnyVersion() bool {
	rv, err := ParseResourceVersion(o.ResourceVersion)
	return err == nil && rv == 0
}

// fastListOptions decodes without the library. ok is false if the library is needed.
func (q *query) fastListOptions() (opts ListOptions, ok bool) {
	opts = ListOptions{LabelSelector: labels.Everything(), FieldSelector: fields.Everything()}
	for p := paramLabelSelector; p <= paramShardSelector; p++ {
		if q.has(p) && !opts.set(p, q.values[p]) {
			return ListOptions{}, false
		}
	}
	return opts, true
}

// set decodes one parameter. It returns false if the library must decode the query, either to word
// the error or because the fast path cannot express it.
func (o *ListOptions) set(p parameter, value string) bool {
	var err error
	switch p {
	case paramLabelSelector:
		o.LabelSelector, err = labels.Parse(value)
	case paramFieldSelector:
		o.FieldSelector, err = fields.ParseSelector(value)
	case paramWatch:
		o.Watch = parseBool(value)
	case paramAllowWatchBookmarks:
		o.AllowWatchBookmarks = parseBool(value)
	case paramResourceVersion:
		o.ResourceVersion = value
	case paramResourceVersionMatch:
		o.ResourceVersionMatch = metav1.ResourceVersionMatch(value)
	case paramTimeoutSeconds:
		o.TimeoutSeconds, err = strconv.ParseInt(value, 10, 64)
	case paramLimit:
		o.Limit, err = strconv.ParseInt(value, 10, 64)
	case paramContinue:
		o.Continue = value
	case paramSendInitialEvents:
		// sendInitialEvents=false differs from its absence in defaulting and validation, so the
		// library handles it.
		o.SendInitialEvents = parseBool(value)
		return o.SendInitialEvents
	case paramShardSelector:
		o.ShardSelector = value
	}
	return err == nil
}

// setDefaults defaults the options of the fast path and reports whether they are certainly valid.
func (o *ListOptions) setDefaults() bool {
	match := o.ResourceVersionMatch
	if !o.Watch {
		switch {
		case o.SendInitialEvents:
			return false
		case match == "":
			return true
		case o.Continue != "" || o.ResourceVersion == "":
			return false
		}
		return match == metav1.ResourceVersionMatchNotOlderThan ||
			match == metav1.ResourceVersionMatchExact && o.ResourceVersion != "0"
	}
	if !o.SendInitialEvents && match == "" && (o.ResourceVersion == "" || o.ResourceVersion == "0") {
		o.SendInitialEvents = true
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	o.UnmarkedStart = !o.SendInitialEvents && o.isAnyVersion()
	if o.SendInitialEvents {
		return o.ResourceVersionMatch == metav1.ResourceVersionMatchNotOlderThan && o.Continue == ""
	}
	return o.ResourceVersionMatch == ""
}

// slowListOptions decodes, defaults and validates with the library.
func (q *query) slowListOptions(raw string) (ListOptions, error) {
	values, _ := url.ParseQuery(raw) // malformed parameters are left out
	var opts metainternalversion.ListOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &opts); err != nil {
		watch := q.has(paramWatch) && parseBool(q.values[paramWatch])
		return ListOptions{Watch: watch}, apierrors.NewBadRequest(err.Error())
	}
	metainternalversion.SetListOptionsDefaults(&opts, true)
	if errs := metainternalversionvalidation.ValidateListOptions(&opts, true); len(errs) > 0 {
		return fromInternal(&opts), apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return fromInternal(&opts), nil
}

func fromInternal(in *metainternalversion.ListOptions) ListOptions {
	out := ListOptions{
		LabelSelector:        in.LabelSelector,
		FieldSelector:        in.FieldSelector,
		Watch:                in.Watch,
		AllowWatchBookmarks:  in.AllowWatchBookmarks,
		ResourceVersion:      in.ResourceVersion,
		ResourceVersionMatch: in.ResourceVersionMatch,
		Limit:                in.Limit,
		Continue:             in.Continue,
		SendInitialEvents:    in.SendInitialEvents != nil && *in.SendInitialEvents,
		ShardSelector:        in.ShardSelector,
	}
	if out.LabelSelector == nil {
		out.LabelSelector = labels.Everything()
	}
	if out.FieldSelector == nil {
		out.FieldSelector = fields.Everything()
	}
	if in.TimeoutSeconds != nil {
		out.TimeoutSeconds = *in.TimeoutSeconds
	}
	out.UnmarkedStart = in.Watch && in.SendInitialEvents == nil && out.isAnyVersion()
	return out
}

// parseBool reads a boolean parameter: everything but "0" and "false" is true,
// the empty string too (runtime.Convert_Slice_string_To_bool).
func parseBool(value string) bool {
	return value != "0" && !strings.EqualFold(value, "false")
}

// ParseIncludeObject parses the includeObject parameter of Table requests. ok is false for values
// that the upstream rejects.
func ParseIncludeObject(value string) (include IncludeObject, ok bool) {
	switch metav1.IncludeObjectPolicy(value) {
	case "", metav1.IncludeMetadata:
		return IncludeMetadata, true
	case metav1.IncludeObject:
		return IncludeObjectFull, true
	case metav1.IncludeNone:
		return IncludeNone, true
	}
	return 0, false
}
