package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// Source feeds the cache from the upstream, with the gateway's own credentials. It sends the same
// GETs as client-go would. It is safe for concurrent use.
//
// Watches share HTTP/2 connections; a new one is opened when the others carry as many streams as
// the server allows. A connection that is silent for Limits.PingInterval is pinged, and closed if
// nothing comes. Over HTTP/1.1 each watch has a connection, which is closed after
// Limits.FeedReadTimeout of silence.
type Source struct {
	c *Client
}

var (
	_ source.VersionLister    = (*Source)(nil)
	_ source.ColumnSource     = (*Source)(nil)
	_ source.ReplicatedSource = (*Source)(nil)
	_ source.CompressedSource = (*Source)(nil)
)

// Source returns the source of the client's upstream. Its watches end with Client.Close.
func (c *Client) Source() *Source { return &Source{c} }

// List implements source.Source. The body is split as it arrives; see package encoding.
func (s *Source) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func(item []byte) error) (source.ListMeta, error) {
	a, err := s.get(ctx, res, &call{purpose: forList, accept: enc.MediaType(), path: collectionPath(res, opts.Namespace), query: listQuery(&opts)})
	if err != nil {
		return source.ListMeta{}, err
	}
	defer func() { _ = a.Close() }()
	return s.readList(a, res, enc, visit)
}

func listQuery(opts *source.ListOptions) url.Values {
	query := url.Values{}
	set(query, "labelSelector", opts.LabelSelector)
	set(query, "fieldSelector", opts.FieldSelector)
	set(query, "resourceVersion", opts.ResourceVersion)
	set(query, "resourceVersionMatch", opts.ResourceVersionMatch)
	set(query, "continue", opts.Continue)
	if opts.Limit > 0 {
		query.Set("limit", strconv.FormatInt(opts.Limit, 10))
	}
	return query
}

// Compressed implements cache.CompressedSource.
func (s *Source) Compressed() bool { return s.c.compress }

// CurrentVersion implements source.Source. kube-apiserver does not tell its current version; it is
// that of a list without resourceVersion, of one object's metadata.
func (s *Source) CurrentVersion(ctx context.Context, res *source.Resource) (uint64, error) {
	// The second form is for API servers without metadata-only lists.
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	a, err := s.get(ctx, res, &call{purpose: forVersion, accept: accept, path: collectionPath(res, ""), query: url.Values{"limit": {"1"}}})
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Close() }()
	meta, err := s.readList(a, res, api.JSON, func([]byte) error { return nil })
	if err != nil {
		return 0, err
	}
	if meta.ResourceVersion == 0 {
		return 0, fmt.Errorf("list of %s has no resourceVersion", res.GroupResource())
	}
	return meta.ResourceVersion, nil
}

// NewestVersion implements source.ReplicatedSource.
func (s *Source) NewestVersion(ctx context.Context, res *source.Resource) (uint64, error) {
	if s.c.servers == nil {
		return 0, fmt.Errorf("%w: there is one server", source.ErrUnsupported)
	}
	var newest uint64
	var failed error
	for _, one := range s.c.servers.Servers() {
		if one.Standing() > health.NotReady {
			continue
		}
		version, err := s.CurrentVersion(one.Only(ctx), res)
		newest = max(newest, version)
		if one.Standing() == health.Ready {
			failed = errors.Join(failed, err)
		}
	}
	if newest == 0 {
		failed = cmp.Or(failed, balance.ErrNoServers)
	}
	return newest, failed
}

// maxVersion bounds the body of /version, in bytes.
const maxVersion = 64 << 10

// Server implements source.Source: what /version says, which includes the build date.
func (s *Source) Server(ctx context.Context) (string, error) {
	if s.c.local != nil {
		return localHost, nil // the same as long as this process lives
	}
	a, err := s.c.get(ctx, &call{purpose: forVersion, rt: s.small(), path: "/version", accept: "application/json"})
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Close() }()
	if a.StatusCode != http.StatusOK {
		return "", a.rejection("get", schema.GroupResource{Resource: "version"})
	}
	body, err := io.ReadAll(io.LimitReader(a.body, maxVersion))
	if err != nil {
		return "", fmt.Errorf("version of the upstream: %w", err)
	}
	s.c.version.Store(&body)
	return string(body), nil
}

// maxColumns bounds the body of a Table of one row, without its object, in bytes.
const maxColumns = 1 << 20

// Columns implements cache.ColumnSource, by a Table of one object.
func (s *Source) Columns(ctx context.Context, res *source.Resource) ([]byte, error) {
	const accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
	a, err := s.get(ctx, res, &call{
		purpose: forVersion, accept: accept, path: collectionPath(res, ""), query: url.Values{"limit": {"1"}, "includeObject": {"None"}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	var page struct {
		Columns json.RawMessage `json:"columnDefinitions"`
	}
	if err := json.NewDecoder(io.LimitReader(a.body, maxColumns)).Decode(&page); err != nil {
		return nil, fmt.Errorf("table of %s: %w", res.GroupResource(), err)
	}
	if len(page.Columns) == 0 {
		return nil, fmt.Errorf("table of %s: no columns", res.GroupResource())
	}
	return page.Columns, nil
}

// LastContact implements source.Source: the least recent contact of the connections that carry
// watches.
func (s *Source) LastContact() time.Time {
	if s.c.local != nil {
		return time.Now() // no connection can be lost
	}
	return s.c.health.Conns().LastContact()
}

// Delay implements source.Source.
func (s *Source) Delay() time.Duration {
	if s.c.local != nil {
		return 0
	}
	return s.c.health.Lag()
}

// small returns the transport for requests whose response is tiny, see forwarding.transport. Until
// it is known how far the upstream is, many are sent at once, one for each collection.
func (s *Source) small() http.RoundTripper {
	if rtt, known := s.c.health.RTT(); rtt >= farAfter || !known {
		return s.c.own.narrow
	}
	return s.c.own.short
}

// get lists or watches res. A status other than 200 is an error.
func (s *Source) get(ctx context.Context, res *source.Resource, call *call) (*response, error) {
	p := call.purpose
	call.compress = p == forList || p == forVersionList
	call.rt = s.c.feed
	switch { // a client waits
	case p == forVersion, p == forVersionList && call.query.Get("limit") == "1":
		call.rt = s.small()
	case p == forVersionList:
		call.rt = s.c.own.short
	}
	a, err := s.c.get(ctx, call)
	if err != nil {
		return nil, err
	}
	if a.StatusCode == http.StatusOK {
		return a, nil
	}
	defer func() { _ = a.Close() }()
	verb := "list"
	if p == forWatch {
		verb = "watch"
	}
	return nil, unsupported(a.rejection(verb, res.GroupResource()), call.query.Get("sendInitialEvents") == "true")
}

func (s *Source) readList(a *response, res *source.Resource, enc api.Encoding, visit func(item []byte) error) (source.ListMeta, error) {
	body, err := a.decoded()
	if err != nil {
		return source.ListMeta{}, err
	}
	opts := encoding.ReadOptions{Limit: s.c.limits.MaxObjectBytes}
	if !res.Custom { // custom resources carry both, wherever their sorted keys put them
		opts.APIVersion, opts.Kind = res.GroupVersion().String(), res.Kind
	}
	meta, err := object.Codec(enc).ReadList(body, opts, visit)
	if err != nil {
		return source.ListMeta{}, fmt.Errorf("list of %s: %w", res.GroupResource(), err)
	}
	return listMeta(res, a, &meta)
}

func listMeta(res *source.Resource, a *response, meta *encoding.ListMeta) (source.ListMeta, error) {
	rv, err := api.ParseResourceVersion(meta.ResourceVersion)
	if err != nil {
		return source.ListMeta{}, fmt.Errorf("list of %s: resourceVersion: %w", res.GroupResource(), err)
	}
	return source.ListMeta{
		ResourceVersion: rv, Continue: meta.Continue, RemainingItemCount: meta.RemainingItemCount,
		Kind: meta.Kind, APIVersion: meta.APIVersion, Warnings: a.Header.Values("Warning"),
	}, nil
}

// Watch implements source.Source. It returns nil when the server ended the watch cleanly, the cause
// of ctx when that is done, and the error of handle unchanged.
//
// An API server that ignores sendInitialEvents silently would never send the bookmark that ends the
// initial events. kube-apiserver rejects options of this kind that it does not know since 1.27.
func (s *Source) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	accept := enc.MediaType()
	if enc == api.Protobuf {
		accept += ";stream=watch"
	}
	a, err := s.get(ctx, res, &call{purpose: forWatch, accept: accept, path: collectionPath(res, ""), query: watchQuery(opts)})
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	defer s.c.health.Conns().Watch(a.conn, a.ProtoMajor == 2)()
	a.body.Timeout = s.c.limits.FeedReadTimeout
	if s.c.local != nil {
		a.body.Timeout = 0
	}
	if a.conn != nil {
		a.body.Alive = a.conn.LastContact
	}
	events := object.Codec(enc).NewEvents(a.body, s.c.limits.MaxObjectBytes)
	if err := handle(source.Event{Type: source.WatchAccepted}); err != nil {
		return err
	}
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watch of %s: %w", res.GroupResource(), err)
		}
		if event.Type == api.Error {
			return watchError(res, enc, event.Object, opts.SendInitialEvents)
		}
		e, err := sourceEvent(enc, event)
		if err != nil {
			return fmt.Errorf("watch of %s: %w", res.GroupResource(), err)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

func watchQuery(opts source.WatchOptions) url.Values {
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}}
	if opts.ResourceVersion > 0 {
		query.Set("resourceVersion", strconv.FormatUint(opts.ResourceVersion, 10))
	}
	if opts.SendInitialEvents {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	}
	if opts.TimeoutSeconds > 0 {
		query.Set("timeoutSeconds", strconv.FormatInt(opts.TimeoutSeconds, 10))
	}
	return query
}

func sourceEvent(enc api.Encoding, event encoding.Event) (source.Event, error) {
	e := source.Event{Type: event.Type, Object: event.Object}
	if event.Type != api.Bookmark {
		return e, nil
	}
	bookmark, err := object.Codec(enc).ParseBookmark(event.Object)
	e.ResourceVersion, e.InitialEventsEnd = bookmark.ResourceVersion, bookmark.InitialEventsEnd
	return e, err
}

// watchError returns the error that an ERROR event carries.
func watchError(res *source.Resource, enc api.Encoding, content []byte, initialEvents bool) error {
	failure, err := object.Codec(enc).ParseStatus(content)
	if err != nil {
		return fmt.Errorf("watch of %s: ERROR event: %w", res.GroupResource(), err)
	}
	return unsupported(&apierrors.StatusError{ErrStatus: *failure}, initialEvents)
}

// collectionPath returns the path of the objects of a resource, in one namespace or, with "", in
// all.
func collectionPath(res *source.Resource, namespace string) string {
	path := "/apis/" + res.Group + "/" + res.Version + "/"
	if res.Group == "" {
		path = "/api/" + res.Version + "/"
	}
	if namespace != "" {
		path += "namespaces/" + namespace + "/"
	}
	return path + res.Resource
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// unsupported wraps err with source.ErrUnsupported if the server does not support this kind of
// read.
func unsupported(err error, initialEvents bool) error {
	var failure *apierrors.StatusError
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.ErrStatus.Code {
	case http.StatusNotAcceptable:
		// No protobuf: custom resources, and some aggregated API servers.
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		if !initialEvents || !namesInitialEvents(&failure.ErrStatus) {
			return err
		}
	default:
		return err
	}
	return fmt.Errorf("%w: %w", source.ErrUnsupported, err)
}

// namesInitialEvents reports whether a rejection is of the streaming list.
func namesInitialEvents(failure *metav1.Status) bool {
	mentions := func(s string) bool {
		return strings.Contains(s, "sendInitialEvents") || strings.Contains(s, "resourceVersionMatch")
	}
	if mentions(failure.Message) {
		return true
	}
	if failure.Details != nil {
		for _, cause := range failure.Details.Causes {
			if mentions(cause.Field) || mentions(cause.Message) {
				return true
			}
		}
	}
	return false
}
