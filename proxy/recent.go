package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// DeniedRequest identifies a request that was denied.
type DeniedRequest struct {
	User        string `json:"user"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Path        string `json:"path,omitempty"` // of what is no resource
}

// Denial describes a request that was denied Count times, without the contents of objects.
type Denial struct {
	DeniedRequest
	// UserAgent, Reason and Last describe the last such request. Reason comes from the authorizer
	// and is often "".
	UserAgent string    `json:"userAgent"`
	Reason    string    `json:"reason,omitempty"`
	Last      time.Time `json:"at"`
	Count     int       `json:"count"`
	// ID is unique for the life of the process.
	ID uint64 `json:"-"`
}

// EndedWatch is a watch that ended neither by its client nor by its timeout, after so many seconds.
type EndedWatch struct {
	User      string    `json:"user"`
	Group     string    `json:"group"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Reason    string    `json:"reason"`
	Ended     time.Time `json:"at"`
	Seconds   float64   `json:"seconds"`
}

// Bounds of the recorded denials and ended watches.
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
		denials []Denial // the latest first, as ended
		ended   []EndedWatch
	}
}

// denied records a request that got 403.
func (n *recent) denied(x *exchange) {
	if x.sender == nil {
		return
	}
	user, info := x.sender.User, x.Info
	if x.Subject != nil {
		user = x.Subject.User
	}
	what := DeniedRequest{User: api.Brief(user.GetName()), Verb: api.Brief(info.Verb), Path: api.Brief(info.Path)}
	if info.IsResourceRequest {
		what = DeniedRequest{
			what.User, what.Verb, api.Brief(info.APIGroup), api.Brief(info.Resource), api.Brief(info.Subresource), api.Brief(info.Namespace), api.Brief(info.Name), "",
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	d := Denial{DeniedRequest: what}
	if i := slices.IndexFunc(n.mu.denials, func(o Denial) bool { return o.DeniedRequest == what }); i >= 0 {
		d = n.mu.denials[i]
		n.mu.denials = slices.Delete(n.mu.denials, i, i+1)
	} else {
		n.mu.ids++
		d.ID = n.mu.ids
	}
	d.UserAgent, d.Reason, d.Last = api.Brief(x.Request.Header.Get("User-Agent")), api.Brief(x.Decision.Reason), time.Now()
	d.Count++
	n.mu.denials = prepend(n.mu.denials, d, maxDenials)
}

// endedWatch records a watch that ended, unless for a usual reason.
func (n *recent) endedWatch(x *exchange, began time.Time, why reason.WatchEnd) {
	switch why {
	case reason.WatchTimeout, reason.WatchClient, reason.WatchDraining, reason.WatchStopped:
		return
	}
	e := EndedWatch{
		User: api.Brief(x.Subject.User.GetName()), Group: api.Brief(x.Info.APIGroup), Resource: api.Brief(x.Info.Resource), Namespace: api.Brief(x.Info.Namespace),
		Reason: cmp.Or(why.String(), "unknown"), Ended: time.Now(), Seconds: time.Since(began).Seconds(),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.ended = prepend(n.mu.ended, e, maxEndedWatches)
}

// prepend adds the latest of at most limit.
func prepend[T any](list []T, latest T, limit int) []T {
	list = slices.Insert(list, 0, latest)
	return list[:min(len(list), limit)]
}

// Denials returns the recent rejections, the latest first.
func (g *Gateway) Denials() []Denial {
	g.account.recent.mu.Lock()
	defer g.account.recent.mu.Unlock()
	return slices.Clone(g.account.recent.mu.denials)
}

// EndedWatches returns the watches that ended recently, the latest first.
func (g *Gateway) EndedWatches() []EndedWatch {
	g.account.recent.mu.Lock()
	defer g.account.recent.mu.Unlock()
	return slices.Clone(g.account.recent.mu.ended)
}
