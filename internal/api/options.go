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
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ListOptions are the decoded, defaulted and validated parameters of a list,
// watch or deletecollection.
type ListOptions struct {
	// LabelSelector and FieldSelector are never nil after ParseListOptions.
	// Labels of the field selector are not converted yet: whether a field can be
	// selected on depends on the resource.
	LabelSelector labels.Selector
	FieldSelector fields.Selector
	// Watch is the watch parameter; a deprecated /watch/ path does not set it.
	Watch               bool
	AllowWatchBookmarks bool
	// ResourceVersion as it came; it need not be a number.
	ResourceVersion      string
	ResourceVersionMatch metav1.ResourceVersionMatch
	// TimeoutSeconds ends a watch; 0 when absent, which means the same.
	TimeoutSeconds int64
	// Limit is the page size; anything below 1 means no limit.
	Limit    int64
	Continue string
	// SendInitialEvents is set, by the client or by default, for a watch that
	// begins with the current objects. When it is unset the watch begins with
	// what comes after ResourceVersion ("" or "0": from now).
	SendInitialEvents bool
	// ShardSelector is an alpha feature of kube-apiserver: a request with one
	// must be forwarded.
	ShardSelector string
}

// ParseListOptions decodes, defaults and validates a raw query as
// kube-apiserver does with the WatchList feature on
// (k8s.io/apiserver/pkg/endpoints/handlers/get.go). The error is the one that
// upstream answers with: 400 for what cannot be decoded, 422 for what is
// invalid.
func ParseListOptions(rawQuery string) (ListOptions, error) {
	if opts, ok := fastListOptions(rawQuery); ok && opts.setDefaults() {
		return opts, nil
	}
	return slowListOptions(rawQuery)
}

// MostRecent reports whether a list asks for the most recent state: without a
// resourceVersion, or with a token of the rest of an expired list (see
// ContinueToken). Tokens that cannot be decoded do not.
func (o *ListOptions) MostRecent() bool {
	if o.Continue == "" {
		return o.ResourceVersion == ""
	}
	token, err := decodeContinue(o.Continue)
	return err == nil && token.ResourceVersion < 0
}

// RequireName restricts the options to one object, for watches that have its
// name in the path (deprecated /api/v1/watch/...).
func (o *ListOptions) RequireName(name string) error {
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
		return nil
	}
	if selected, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || selected != name {
		return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// decodeListOptions decodes without defaulting and validating. The error is the
// library's own, not yet a Status.
func decodeListOptions(rawQuery string) (ListOptions, error) {
	if opts, ok := fastListOptions(rawQuery); ok {
		return opts, nil
	}
	internal, err := decodeInternal(rawQuery)
	if err != nil {
		return ListOptions{}, err
	}
	return fromInternal(&internal), nil
}

// maxFastParameters bounds what the fast path reads; net/url has a limit of its
// own for longer queries.
const maxFastParameters = 64

// fastListOptions decodes a query whose parameters are all well-formed; ok is
// false when the library must have its say. As in the library the first value of
// a parameter counts and unknown parameters are ignored.
func fastListOptions(query string) (opts ListOptions, ok bool) {
	opts = ListOptions{LabelSelector: labels.Everything(), FieldSelector: fields.Everything()}
	var seen parameterSet
	for range maxFastParameters {
		key, value, rest, more := nextParameter(query)
		if !more {
			return opts, true
		}
		query = rest
		if p := listParameter(key); p != noParameter && seen.add(p) && !opts.set(p, value) {
			return ListOptions{}, false
		}
	}
	return ListOptions{}, false
}

// parameter numbers the parameters of lists and watches.
type parameter uint

const (
	noParameter parameter = iota
	paramLabelSelector
	paramFieldSelector
	paramWatch
	paramAllowWatchBookmarks
	paramResourceVersion
	paramResourceVersionMatch
	paramTimeoutSeconds
	paramLimit
	paramContinue
	paramSendInitialEvents
	paramShardSelector
)

func listParameter(name string) parameter {
	switch name {
	case "labelSelector":
		return paramLabelSelector
	case "fieldSelector":
		return paramFieldSelector
	case "watch":
		return paramWatch
	case "allowWatchBookmarks":
		return paramAllowWatchBookmarks
	case "resourceVersion":
		return paramResourceVersion
	case "resourceVersionMatch":
		return paramResourceVersionMatch
	case "timeoutSeconds":
		return paramTimeoutSeconds
	case "limit":
		return paramLimit
	case "continue":
		return paramContinue
	case "sendInitialEvents":
		return paramSendInitialEvents
	case "shardSelector":
		return paramShardSelector
	}
	return noParameter
}

// parameterSet is a set of parameters.
type parameterSet uint

// add reports whether p was not in the set yet.
func (s *parameterSet) add(p parameter) bool {
	if *s&(1<<p) != 0 {
		return false
	}
	*s |= 1 << p
	return true
}

// set decodes one parameter; false means that the library must decode the
// query, either to word the error or because the fast path cannot express it.
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
		// sendInitialEvents=false is not the same as its absence when options
		// are defaulted and validated: left to the library.
		o.SendInitialEvents = parseBool(value)
		return o.SendInitialEvents
	case paramShardSelector:
		o.ShardSelector = value
	}
	return err == nil
}

// setDefaults defaults options of the fast path and reports whether they are
// certainly valid.
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
	if o.SendInitialEvents {
		return o.ResourceVersionMatch == metav1.ResourceVersionMatchNotOlderThan && o.Continue == ""
	}
	return o.ResourceVersionMatch == ""
}

// slowListOptions does all of it with the library.
func slowListOptions(rawQuery string) (ListOptions, error) {
	opts, err := decodeInternal(rawQuery)
	if err != nil {
		return ListOptions{}, apierrors.NewBadRequest(err.Error())
	}
	metainternalversion.SetListOptionsDefaults(&opts, true)
	if errs := metainternalversionvalidation.ValidateListOptions(&opts, true); len(errs) > 0 {
		return ListOptions{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return fromInternal(&opts), nil
}

func decodeInternal(rawQuery string) (metainternalversion.ListOptions, error) {
	var opts metainternalversion.ListOptions
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(libraryQuery(rawQuery), metav1.SchemeGroupVersion, &opts)
	return opts, err
}

// libraryQuery is url.URL.Query: what is malformed is left out.
func libraryQuery(rawQuery string) url.Values {
	values, _ := url.ParseQuery(rawQuery)
	return values
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
	return out
}

// parseBool reads a boolean parameter: everything but "0" and "false" is true,
// the empty string too (runtime.Convert_Slice_string_To_bool).
func parseBool(value string) bool {
	return value != "0" && !strings.EqualFold(value, "false")
}

// GetOptions are the parameters of a get.
type GetOptions struct {
	// ResourceVersion as it came; it need not be a number.
	ResourceVersion string
}

// ParseGetOptions decodes the parameters of a get as kube-apiserver does
// (handlers.GetResource); an error is a 400.
func ParseGetOptions(rawQuery string) (GetOptions, error) {
	if export, ok := queryValue(rawQuery, "export"); ok && parseBool(export) {
		return GetOptions{}, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	version, _ := queryValue(rawQuery, "resourceVersion")
	return GetOptions{ResourceVersion: version}, nil
}

// ParseIncludeObject decodes the includeObject parameter of Table requests. The
// error is the 400 that upstream answers with once it has the objects, so errors
// of the read itself come first.
func ParseIncludeObject(rawQuery string) (IncludeObject, error) {
	value, ok := queryValue(rawQuery, "includeObject")
	if !ok {
		return IncludeMetadata, nil
	}
	switch opts := (metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(value)}); opts.IncludeObject {
	case "", metav1.IncludeMetadata:
		return IncludeMetadata, nil
	case metav1.IncludeObject:
		return IncludeObjectFull, nil
	case metav1.IncludeNone:
		return IncludeNone, nil
	default:
		errs := metav1validation.ValidateTableOptions(&opts)
		return 0, apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
}
