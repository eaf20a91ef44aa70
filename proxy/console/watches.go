package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
)

// MaxWatches is the maximum number of watches in a document.
const MaxWatches = 200

// watches lists the open watches whose user and resource contain the parameters.
func (b *builder) watches(m *moment) any {
	type clusterWatch struct {
		v *view
		*watch.OpenWatch
	}
	document := &OpenWatches{At: m.now, Watches: []OpenWatch{}}
	var all []clusterWatch
	contains := func(s, parameter string) bool {
		return strings.Contains(strings.ToLower(s), strings.ToLower(m.parameters[parameter]))
	}
	for _, v := range m.views {
		open := v.Handler.OpenWatches()
		document.Open += len(open)
		for i := range open {
			if o := &open[i]; contains(o.User, "user") && contains(o.Resource.GroupResource().String(), "resource") {
				all = append(all, clusterWatch{v, o})
			}
		}
	}
	slices.SortFunc(all, func(a, b clusterWatch) int {
		byAge := cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
		switch m.parameters["sort"] {
		case "events":
			return cmp.Or(cmp.Compare(b.Events, a.Events), byAge)
		case "user":
			return cmp.Or(cmp.Compare(a.User, b.User), byAge)
		}
		return byAge
	})
	for _, w := range all[:min(len(all), MaxWatches)] {
		document.Watches = append(document.Watches, OpenWatch{
			ID: w.v.number(w.ID), Cluster: w.v.Name, User: shorten(w.User), UserAgent: shorten(w.UserAgent),
			Group: w.Resource.Group, Version: w.Resource.Version, Resource: w.Resource.Resource, Namespace: shorten(w.Namespace),
			Selector: shorten(w.LabelSelector), FieldSelector: shorten(w.FieldSelector), Form: format(w.Rep),
			Began: w.Began, Events: w.Events, Lagging: w.Lagging(),
		})
	}
	document.Shown = len(document.Watches)
	return document
}

// format describes the representation of a watch's objects.
func format(rep api.Representation) string {
	text := rep.Encoding.String()
	switch rep.Transform {
	case api.Table:
		text += " table"
	case api.PartialMetadata:
		text += " metadata"
	}
	return text
}
