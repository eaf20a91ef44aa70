package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// action changes something. Its text says what was done.
type action func(c *Console, body json.RawMessage) (text string, err error)

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

// serveAction does what somebody asks for, if that is allowed, and logs who did.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("action")
	do, ok := actions[name]
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "the console has no such action")
		return
	case !c.Actions:
		fail(w, http.StatusForbidden, "the console only shows; --console-actions lets it act")
		return
	case r.Header.Get(actionHeader) != "1":
		fail(w, http.StatusForbidden, "an action needs the header "+actionHeader+": 1, which pages of elsewhere cannot send")
		return
	}
	var body json.RawMessage
	if !readBody(w, r, &body) {
		return
	}
	if !c.guard.mayAct() {
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusTooManyRequests, "too many actions, try again in some seconds")
		return
	}
	text, err := do(c, body)
	c.Log.Warn("an action of the console", "action", name, "what", shorten(string(body)), "remote", r.RemoteAddr,
		"userAgent", shorten(r.UserAgent()), "byToken", c.TokenFile != "", "done", err == nil, "result", text)
	switch {
	case err == nil:
		answer(w, http.StatusOK, Done{true, text})
	case errors.Is(err, errOver), errors.Is(err, errNotBlocked):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, errBusy):
		fail(w, http.StatusTooManyRequests, err.Error())
	default:
		c.failWith(w, err)
	}
}

// wanted reads what an action is to do.
func wanted(body json.RawMessage, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return badParameter{"the body is not the JSON that is wanted: " + shorten(err.Error())}
	}
	return nil
}

// endWatch ends one watch.
func (c *Console) endWatch(body json.RawMessage) (string, error) {
	var w struct{ Cluster, ID string }
	if err := wanted(body, &w); err != nil {
		return "", err
	}
	if at := strings.LastIndexByte(w.ID, ':'); at >= 0 {
		w.Cluster, w.ID = w.ID[:at], w.ID[at+1:]
	}
	id, err := strconv.ParseUint(w.ID, 36, 64)
	if err != nil {
		return "", badParameter{"id must be that of a watch"}
	}
	for _, cluster := range c.Clusters() {
		if cluster.Name == w.Cluster {
			if !cluster.Handler.EndWatch(id) {
				return "", errOver
			}
			return "The watch ends now; its client may come back.", nil
		}
	}
	return "", errNoCluster
}

// check begins a comparison of collections with the upstream; it goes on after the answer.
func (c *Console) check(body json.RawMessage) (string, error) {
	var w struct {
		Cluster   string
		Resources []string
	}
	if err := wanted(body, &w); err != nil {
		return "", err
	}
	var of []*Cluster
	for _, cluster := range c.Clusters() {
		if w.Cluster == "" || cluster.Name == w.Cluster {
			of = append(of, cluster)
		}
	}
	if len(of) == 0 {
		return "", errNoCluster
	}
	if !c.checking.CompareAndSwap(false, true) {
		return "", errBusy
	}
	c.Panics.Go(&c.background, "background", func() {
		defer c.checking.Store(false)
		for _, cluster := range of {
			cluster.Check(c.ctx, func(gvr schema.GroupVersionResource) bool { return named(w.Resources, gvr) })
		}
	})
	what := "all collections"
	if len(w.Resources) > 0 {
		what = fmt.Sprintf("the collections of %s", shorten(strings.Join(w.Resources, ", ")))
	}
	return "The comparison of " + what + " with the cluster has begun.", nil
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
