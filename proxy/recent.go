package proxy

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/reason"
)

// Denial describes a denied request, without the contents of objects.
type Denial struct {
	User, UserAgent              string
	Verb                         string
	Group, Resource, Subresource string
	Namespace, Name              string
	Path                         string // of what is no resource
	Reason                       string // the authorizer's, often ""
	First, Last                  time.Time
	Count                        int
	// ID is unique for the life of the process.
	ID uint64
}

// same reports whether both are equal except for time and reason.
func (d *Denial) same(o *Denial) bool {
	return d.User == o.User && d.Verb == o.Verb && d.Resource == o.Resource && d.Namespace == o.Namespace && d.Name == o.Name &&
		d.Group == o.Group && d.Subresource == o.Subresource && d.Path == o.Path
}

// EndedWatch is a watch that ended neither by its client nor by its timeout.
type EndedWatch struct {
	User                       string
	Group, Resource, Namespace string
	Reason                     reason.WatchEnd
	Began, Ended               time.Time
}

// Bounds of what is remembered.
const (
	maxDenials      = 100
	maxEndedWatches = 100
)

// recent remembers rejections and ended watches, for operators. The zero value is ready to use; it
// is safe for concurrent use.
type recent struct {
	mu struct {
		sync.Mutex
		ids     uint64
		denials []Denial // the latest last
		ended   []EndedWatch
	}
}

// denied records a request that got 403.
func (n *recent) denied(x *exchange) {
	if x.sender == nil {
		return
	}
	user := x.sender.User
	if x.Subject != nil {
		user = x.Subject.User
	}
	d := Denial{
		User: brief(user.GetName()), UserAgent: brief(x.Request.Header.Get("User-Agent")), Verb: brief(x.Info.Verb),
		Reason: brief(x.Decision.Reason), Last: time.Now(),
	}
	if x.Info.IsResourceRequest {
		d.Group, d.Resource, d.Subresource = brief(x.Info.APIGroup), brief(x.Info.Resource), brief(x.Info.Subresource)
		d.Namespace, d.Name = brief(x.Info.Namespace), brief(x.Info.Name)
	} else {
		d.Path = brief(x.Info.Path)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.mu.denials
	i := slices.IndexFunc(all, func(o Denial) bool { return o.same(&d) })
	switch {
	case i >= 0:
		again := all[i]
		again.Last, again.UserAgent, again.Reason = d.Last, strings.Clone(d.UserAgent), strings.Clone(d.Reason)
		again.Count++
		d = again
		all = slices.Delete(all, i, i+1)
	default:
		n.mu.ids++
		d.ID, d.First, d.Count = n.mu.ids, d.Last, 1
		for _, s := range []*string{&d.User, &d.UserAgent, &d.Verb, &d.Group, &d.Resource, &d.Subresource, &d.Namespace, &d.Name, &d.Path, &d.Reason} {
			*s = strings.Clone(*s) // of a request
		}
		if len(all) >= maxDenials {
			all = slices.Delete(all, 0, 1)
		}
	}
	n.mu.denials = append(all, d)
}

// endedWatch records a watch that ended, unless for a usual reason.
func (n *recent) endedWatch(x *exchange, began time.Time, why reason.WatchEnd) {
	switch why {
	case reason.WatchTimeout, reason.WatchClient, reason.WatchDraining, reason.WatchStopped:
		return
	}
	e := EndedWatch{
		User: strings.Clone(brief(x.Subject.User.GetName())), Group: strings.Clone(x.Info.APIGroup), Resource: strings.Clone(x.Info.Resource),
		Namespace: strings.Clone(brief(x.Info.Namespace)), Reason: why, Began: began, Ended: time.Now(),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.mu.ended) >= maxEndedWatches {
		n.mu.ended = slices.Delete(n.mu.ended, 0, 1)
	}
	n.mu.ended = append(n.mu.ended, e)
}

// Denials returns the recent rejections, the latest first.
func (g *Gateway) Denials() []Denial {
	g.account.recent.mu.Lock()
	defer g.account.recent.mu.Unlock()
	list := slices.Clone(g.account.recent.mu.denials)
	slices.Reverse(list)
	return list
}

// EndedWatches returns the watches that ended recently, the latest first.
func (g *Gateway) EndedWatches() []EndedWatch {
	g.account.recent.mu.Lock()
	defer g.account.recent.mu.Unlock()
	list := slices.Clone(g.account.recent.mu.ended)
	slices.Reverse(list)
	return list
}

// brief shortens a string whose length clients choose.
func brief(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "... (" + strconv.Itoa(len(s)) + " bytes)"
}
