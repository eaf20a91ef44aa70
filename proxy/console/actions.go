package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/proxy/audit"
)

// maxBody bounds what is posted, in bytes.
const maxBody = 64 << 10

// readBody reads a JSON document, and answers if that cannot be.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "the body is too large, or broke off")
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		fail(w, http.StatusBadRequest, "the body is not the JSON that is wanted: "+shorten(err.Error()))
		return false
	}
	return true
}

// action changes something. What it did, or was to do, is told with an error, too, as far as that is known.
type action func(c *Console, body json.RawMessage) (deed, error)

// deed is what an action did: what for logs, text for who asked. Names that clients chose are quoted and short in what.
type deed struct{ what, text string }

// actions are those that there are, by their names in paths.
var actions = map[string]action{
	"end-watch": (*Console).endWatch,
	"check":     (*Console).check,

	"block-user-agent":   (*Console).blockUserAgent,
	"unblock-user-agent": (*Console).unblockUserAgent,
}

// Why an action is not done.
var (
	errOver = errors.New("the watch is over")
	errBusy = errors.New("the collections are being compared already")
)

// serveAction does what somebody asks for, if that is allowed, and records who did.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("action")
	do, ok := actions[name]
	if !ok {
		fail(w, http.StatusNotFound, "the console has no such action")
		return
	}
	began, answered := time.Now(), &answerWriter{w, http.StatusOK}
	what := c.act(answered, r, name, do)
	c.record(r, name, what, began, answered.status)
}

// act does what serveAction is for, and returns what that was.
func (c *Console) act(w http.ResponseWriter, r *http.Request, name string, do action) (what string) {
	switch {
	case !c.Actions:
		fail(w, http.StatusForbidden, "the console only shows; --console-actions lets it act")
		return ""
	case r.Header.Get(actionHeader) != "1":
		fail(w, http.StatusForbidden, "an action needs the header "+actionHeader+": 1, which pages of elsewhere cannot send")
		return ""
	}
	var body json.RawMessage
	if !readBody(w, r, &body) {
		return ""
	}
	if !c.guard.mayAct() {
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusTooManyRequests, "too many actions, try again in some seconds")
		return ""
	}
	d, err := do(c, body)
	c.Log.Warn("an action of the console", "action", name, "what", d.what, "remote", r.RemoteAddr,
		"userAgent", shorten(r.UserAgent()), "byToken", c.TokenFile != "", "done", err == nil, "result", d.text)
	switch {
	case err == nil:
		answer(w, http.StatusOK, ActionResult{true, d.text})
	case errors.Is(err, errOver), errors.Is(err, errNotBlocked):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, errBusy):
		fail(w, http.StatusTooManyRequests, err.Error())
	default:
		c.failWith(w, err)
	}
	return d.what
}

// answerWriter remembers the status of an answer.
type answerWriter struct {
	http.ResponseWriter
	status int
}

func (w *answerWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// record tells the audit log of an action, those that were refused included. Those that were done are never dropped for want
// of room: there are few.
func (c *Console) record(r *http.Request, name, what string, began time.Time, status int) {
	if !c.Audit.Enabled() {
		return
	}
	who, reason := "kubeweir:console:loopback", "a program or browser of the gateway's machine"
	if c.TokenFile != "" {
		who, reason = "kubeweir:console:token", "the token of --console-token-file"
	}
	allowed := status != http.StatusForbidden
	switch {
	case !c.Actions:
		reason = "the console only shows"
	case !allowed:
		reason = "a page of elsewhere may have sent it"
	}
	request := &api.Request{Method: r.Method, Path: r.URL.Path, RawPath: r.URL.Path, RemoteAddr: r.RemoteAddr}
	for _, header := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} {
		if value := r.Header.Get(header); value != "" {
			request.Header.Add(header, value)
		}
	}
	info := api.ParseRequestInfo(r.Method, r.URL.Path, "")
	if what != "" {
		name += ": " + what
	}
	c.Audit.Record(&audit.Event{
		Stage: auditv1.StageResponseComplete, ID: uuid.NewString(), Request: request, Info: &info, Received: began, User: &user.DefaultInfo{Name: who},
		Code: status, Allowed: allowed, Reason: reason, Action: name, Keep: status == http.StatusOK,
	})
}

// wanted reads what an action is to do.
func wanted(body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return badParameter{"the body is not the JSON that is wanted: " + shorten(err.Error())}
	}
	return nil
}

// endWatch ends one watch.
func (c *Console) endWatch(body json.RawMessage) (d deed, err error) {
	var w struct{ Cluster, ID string }
	if err := wanted(body, &w); err != nil {
		return d, err
	}
	if at := strings.LastIndexByte(w.ID, ':'); at >= 0 {
		w.Cluster, w.ID = w.ID[:at], w.ID[at+1:]
	}
	id, err := strconv.ParseUint(w.ID, 36, 64)
	if err != nil {
		return d, badParameter{"id must be that of a watch"}
	}
	for _, cluster := range c.Clusters() {
		if cluster.Name == w.Cluster {
			d.what = nameWatch(cluster, id)
			if !cluster.Handler.EndWatch(id) {
				return d, errOver
			}
			d.text = "The watch ends now; its client may come back."
			return d, nil
		}
	}
	return d, errNoCluster
}

// nameWatch tells whose watch it is.
func nameWatch(of *Cluster, id uint64) string {
	what := "watch " + strconv.FormatUint(id, 36)
	open := of.Handler.OpenWatches()
	if i := slices.IndexFunc(open, func(o watch.OpenWatch) bool { return o.ID == id }); i >= 0 {
		o := &open[i]
		what += fmt.Sprintf(" of %s by %q (%q)", o.Resource.GroupResource(), shorten(o.User), shorten(o.UserAgent))
	}
	if of.Name != "" {
		what += " of the cluster " + of.Name
	}
	return what
}

// check begins a comparison of collections with the upstream; it goes on after the answer.
func (c *Console) check(body json.RawMessage) (d deed, err error) {
	var w struct {
		Cluster   string
		Resources []string
	}
	if err := wanted(body, &w); err != nil {
		return d, err
	}
	d.what = "all collections"
	if len(w.Resources) > 0 {
		d.what = fmt.Sprintf("the collections of %q", shorten(strings.Join(w.Resources, ", ")))
	}
	var of []*Cluster
	for _, cluster := range c.Clusters() {
		if w.Cluster == "" || cluster.Name == w.Cluster {
			of = append(of, cluster)
		}
	}
	if len(of) == 0 {
		return d, errNoCluster
	}
	if w.Cluster != "" {
		d.what += " of the cluster " + w.Cluster
	}
	if !c.checking.CompareAndSwap(false, true) {
		return d, errBusy
	}
	c.Panics.Go(&c.background, "background", func() {
		defer c.checking.Store(false)
		for _, cluster := range of {
			cluster.Check(c.ctx, func(gvr schema.GroupVersionResource) bool { return named(w.Resources, gvr) })
		}
	})
	d.text = "The comparison of " + d.what + " has begun."
	return d, nil
}

// named reports whether a resource is one of names, which are all if there are none.
func named(names []string, gvr schema.GroupVersionResource) bool {
	for _, name := range names {
		if gr := schema.ParseGroupResource(name); gr.Resource == gvr.Resource && (gr.Group == "" || gr.Group == gvr.Group) {
			return true
		}
	}
	return len(names) == 0
}
