package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/watch"
)

// MaxWatches is how many watches are shown at most.
const MaxWatches = 200

// shownWatch is a watch of a cluster.
type shownWatch struct {
	v *view
	*watch.OpenWatch
}

func (c *Console) watches(a *ask) (any, error) {
	order, err := a.one("sort", "age", "events", "user")
	if err != nil {
		return nil, err
	}
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	document := &OpenWatches{At: a.now, Watches: []OpenWatch{}}
	var all []shownWatch
	user, resource := strings.ToLower(a.query["user"]), strings.ToLower(a.query["resource"])
	for _, v := range views {
		open := v.Handler.OpenWatches()
		document.Open += len(open)
		for i := range open {
			o := &open[i]
			if strings.Contains(strings.ToLower(o.User), user) && strings.Contains(strings.ToLower(o.Resource.GroupResource().String()), resource) {
				all = append(all, shownWatch{v, o})
			}
		}
	}
	slices.SortFunc(all, func(a, b shownWatch) int {
		byAge := cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
		switch order {
		case "events":
			return cmp.Or(cmp.Compare(b.Events, a.Events), byAge)
		case "user":
			return cmp.Or(cmp.Compare(a.User, b.User), byAge)
		}
		return byAge
	})
	for _, w := range all[:min(len(all), MaxWatches)] {
		document.Watches = append(document.Watches, w.row())
	}
	document.Shown = len(document.Watches)
	return document, nil
}

func (w shownWatch) row() OpenWatch {
	return OpenWatch{
		ID: w.v.numberedID(w.ID), Cluster: w.v.Name, User: shorten(w.User), UserAgent: shorten(w.UserAgent),
		Group: w.Resource.Group, Version: w.Resource.Version, Resource: w.Resource.Resource, Namespace: shorten(w.Namespace),
		Selector: shorten(w.LabelSelector), FieldSelector: shorten(w.FieldSelector), Form: formOf(w.Rep),
		Began: w.Began, Events: w.Events, Lagging: w.Lagging(),
	}
}

// formOf says in words how a watch gets its objects.
func formOf(rep api.Representation) string {
	form := rep.Encoding.String()
	switch rep.Transform {
	case api.Table:
		form += " table"
	case api.PartialMetadata:
		form += " metadata"
	}
	return form
}

// maxShown bounds what a client wrote, in bytes.
const maxShown = 256

// shorten cuts what a client may make as long as it likes.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "..."
}
