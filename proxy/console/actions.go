package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/admin"
	"github.com/kubeweir/kubeweir/proxy/audit"
)

// actionHeader is required for actions. A foreign web page cannot send it.
const actionHeader = "X-Kubeweir-Console"

// outcome describes an action, also one that failed, as far as it is known. Names chosen by clients
// are quoted and short in target.
type outcome struct {
	target string // for logs
	text   string // for the operator
}

// actions are the actions by their names in paths.
var actions = map[string]func(c *Console, body json.RawMessage) (outcome, error){
	"end-watch":          (*Console).endWatch,
	"check":              (*Console).check,
	"block-user-agent":   (*Console).blockUserAgent,
	"unblock-user-agent": (*Console).unblockUserAgent,
}

var (
	errWatchEnded = &httpError{status: http.StatusNotFound, text: "the watch has ended"}
	errNotBlocked = &httpError{status: http.StatusNotFound, text: "this pattern is not blocked"}
	errChecking   = &httpError{status: http.StatusTooManyRequests, text: "a check is already running"}
)

// serveAction performs an action if actions are enabled, and records it in the audit log.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request) error {
	name, began := r.PathValue("action"), time.Now()
	if actions[name] == nil {
		return notFound(r)
	}
	result, err := c.act(w, r, name)
	if err == nil {
		err = respond(w, ActionResult{true, result.text})
	}
	c.record(r, name, result.target, began, statusOf(err))
	return err
}

func (c *Console) act(w http.ResponseWriter, r *http.Request, name string) (outcome, error) {
	switch {
	case !c.Actions:
		return outcome{}, forbidden("actions are disabled: start kubeweir with --console-actions")
	case r.Header.Get(actionHeader) != "1":
		return outcome{}, forbidden("actions require the header " + actionHeader + ": 1")
	}
	body, err := readBody(w, r)
	if err != nil {
		return outcome{}, err
	}
	if !c.guard.actions.Allow() {
		return outcome{}, errManyActions
	}
	result, err := actions[name](c, body)
	c.Log.Warn("console action", "action", name, "what", result.target, "remote", r.RemoteAddr,
		"userAgent", shorten(r.UserAgent()), "byToken", c.TokenFile != "", "done", err == nil, "result", result.text)
	return result, err
}

// record writes an action to the audit log, also if it was rejected. The log never drops performed
// actions for want of room: there are few.
func (c *Console) record(r *http.Request, name, target string, began time.Time, status int) {
	if !c.Audit.Enabled() {
		return
	}
	who, reason := "kubeweir:console:loopback", "request from the gateway's machine without --console-token-file"
	if c.TokenFile != "" {
		who, reason = "kubeweir:console:token", "request with the token in --console-token-file"
	}
	allowed := status != http.StatusForbidden
	switch {
	case !c.Actions:
		reason = "console actions are disabled"
	case !allowed:
		reason = "possible cross-site request"
	}
	request := &api.Request{Method: r.Method, Path: r.URL.Path, RawPath: r.URL.Path, RemoteAddr: r.RemoteAddr}
	for _, header := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} {
		if value := r.Header.Get(header); value != "" {
			request.Header.Add(header, value)
		}
	}
	info := api.ParseRequestInfo(r.Method, r.URL.Path, "")
	if target != "" {
		name += ": " + target
	}
	c.Audit.Record(&audit.Action{
		Metadata: audit.Metadata{ID: uuid.NewString(), Request: request, Info: &info, Received: began, User: &user.DefaultInfo{Name: who}},
		Name:     name, Status: status, Allowed: allowed, Reason: reason,
	})
}

func (c *Console) endWatch(body json.RawMessage) (o outcome, err error) {
	var p struct{ Cluster, ID string }
	if err := decode(body, &p); err != nil {
		return o, err
	}
	if at := strings.LastIndexByte(p.ID, ':'); at >= 0 {
		p.Cluster, p.ID = p.ID[:at], p.ID[at+1:]
	}
	id, err := strconv.ParseUint(p.ID, 36, 64)
	if err != nil {
		return o, badRequest("id must be the id of a watch")
	}
	for _, cluster := range c.Clusters() {
		if cluster.Name == p.Cluster {
			o.target = describeWatch(cluster, id)
			if !cluster.Handler.EndWatch(id) {
				return o, errWatchEnded
			}
			o.text = "The watch ends now; its client may reconnect."
			return o, nil
		}
	}
	return o, errNoCluster
}

// describeWatch names a watch and, if it is open, its resource and client.
func describeWatch(cluster *Cluster, id uint64) string {
	text := "watch " + strconv.FormatUint(id, 36)
	open := cluster.Handler.OpenWatches()
	if i := slices.IndexFunc(open, func(o watch.OpenWatch) bool { return o.ID == id }); i >= 0 {
		o := &open[i]
		text += fmt.Sprintf(" of %s by %q (%q)", o.Resource.GroupResource(), shorten(o.User), shorten(o.UserAgent))
	}
	if cluster.Name != "" {
		text += " of the cluster " + cluster.Name
	}
	return text
}

// check starts a comparison of collections with the upstream, which goes on in the background.
func (c *Console) check(body json.RawMessage) (o outcome, err error) {
	var p struct {
		Cluster   string
		Resources []string
	}
	if err := decode(body, &p); err != nil {
		return o, err
	}
	o.target = "all collections"
	if len(p.Resources) > 0 {
		o.target = fmt.Sprintf("the collections of %q", shorten(strings.Join(p.Resources, ", ")))
	}
	clusters := slices.DeleteFunc(slices.Clone(c.Clusters()), func(one *Cluster) bool { return p.Cluster != "" && one.Name != p.Cluster })
	if len(clusters) == 0 {
		return o, errNoCluster
	}
	if p.Cluster != "" {
		o.target += " of the cluster " + p.Cluster
	}
	if !c.docs.checking.CompareAndSwap(false, true) {
		return o, errChecking
	}
	c.Panics.Go(&c.background, "background", func() {
		defer c.docs.checking.Store(false)
		for _, cluster := range clusters {
			cluster.Check(c.ctx, admin.Named(p.Resources))
		}
	})
	o.text = "The check of " + o.target + " has started."
	return o, nil
}

// maxBlockMinutes is how long a user agent can be blocked: a week.
const maxBlockMinutes = 7 * 24 * 60

func (c *Console) blockUserAgent(body json.RawMessage) (o outcome, err error) {
	var p struct {
		UserAgent string
		Minutes   float64
	}
	if err := decode(body, &p); err != nil {
		return o, err
	}
	agent := fmt.Sprintf("%q", shorten(p.UserAgent))
	if p.Minutes < 0 || p.Minutes > maxBlockMinutes {
		return outcome{target: agent}, badRequest("minutes must be between 0 (no end) and %d (a week)", maxBlockMinutes)
	}
	var until time.Time
	o = outcome{agent + " until it is unblocked", "Requests of " + agent + " are rejected with 429 until it is unblocked, or kubeweir restarts."}
	if p.Minutes > 0 {
		until = time.Now().Add(time.Duration(p.Minutes * float64(time.Minute)))
		at := until.UTC().Format(time.RFC3339)
		o = outcome{agent + " until " + at, "Requests of " + agent + " are rejected with 429 until " + at + "."}
	}
	if err := c.Blocked.Block(p.UserAgent, until); err != nil {
		return outcome{target: o.target}, badRequest("%s", err)
	}
	return o, nil
}

func (c *Console) unblockUserAgent(body json.RawMessage) (o outcome, err error) {
	var p struct{ UserAgent string }
	if err := decode(body, &p); err != nil {
		return o, err
	}
	o.target = fmt.Sprintf("%q", shorten(p.UserAgent))
	if !c.Blocked.Unblock(p.UserAgent) {
		return o, errNotBlocked
	}
	o.text = "Requests of " + o.target + " are served again."
	return o, nil
}
