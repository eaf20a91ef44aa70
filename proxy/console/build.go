package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// topic is a document that is built of what is read at a moment.
type topic struct {
	// parameters are those that it has besides cluster.
	parameters []string
	// build makes it; the caller holds building. live tells that it is for a stream, which
	// leaves out series.
	build func(c *Console, a *ask) (any, error)
}

// topics are the documents that there are, by their names in paths.
var topics = map[string]topic{
	"overview":    {build: (*Console).overview},
	"collections": {build: (*Console).collections},
	"askers":      {[]string{"window", "sort"}, (*Console).clients},
	"watches":     {[]string{"sort", "user", "resource"}, (*Console).watches},
	"upstreams":   {build: (*Console).upstreams},
	"permissions": {build: (*Console).permissions},
	"checks":      {build: (*Console).checks},
	"store":       {build: (*Console).store},
}

// ask is what is asked for: a topic, a cluster and parameters.
type ask struct {
	topic, cluster string
	live           bool
	query          map[string]string
	now            time.Time
}

const (
	// maxParameter bounds a parameter, in bytes.
	maxParameter = 256
	// maxKept is how many documents are kept.
	maxKept = 64
)

// badParameter is an error of who asks.
type badParameter struct{ text string }

func (e badParameter) Error() string { return e.text }

// asked reads what a query asks for of a topic.
func asked(name string, query url.Values, live bool) (*ask, error) {
	t, ok := topics[name]
	if !ok {
		return nil, badParameter{"there is no topic " + strings.ToValidUTF8(name[:min(len(name), 32)], "")}
	}
	a := &ask{topic: name, cluster: query.Get("cluster"), live: live, query: make(map[string]string)}
	for _, p := range t.parameters {
		a.query[p] = query.Get(p)
		if len(a.query[p]) > maxParameter {
			return nil, badParameter{"the parameter " + p + " is too long"}
		}
	}
	if len(a.cluster) > maxParameter {
		return nil, errNoCluster
	}
	return a, nil
}

// key tells asks apart.
func (a *ask) key() string {
	key := a.topic + "\x00" + a.cluster
	if a.live {
		key += "\x00live"
	}
	for _, p := range topics[a.topic].parameters {
		key += "\x00" + a.query[p]
	}
	return key
}

// one is one of several words; the first if none is given.
func (a *ask) one(parameter string, words ...string) (string, error) {
	given := a.query[parameter]
	if given == "" {
		return words[0], nil
	}
	for _, w := range words {
		if given == w {
			return w, nil
		}
	}
	return "", badParameter{parameter + " must be " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]}
}

// kept is a document that was encoded a moment ago.
type kept struct {
	at   time.Time
	body []byte
}

// document returns what is asked for, encoded; it was built no longer than viewFresh ago.
// What it returns must not be changed.
func (c *Console) document(a *ask) ([]byte, error) {
	c.building.Lock()
	defer c.building.Unlock()
	a.now = time.Now()
	key := a.key()
	if k, ok := c.kept[key]; ok && a.now.Sub(k.at) < viewFresh {
		return k.body, nil
	}
	document, err := topics[a.topic].build(c, a)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	for other, k := range c.kept {
		if a.now.Sub(k.at) >= viewFresh {
			delete(c.kept, other)
		}
	}
	if len(c.kept) < maxKept {
		c.kept[key] = kept{a.now, body}
	}
	return body, nil
}

// serveTopic answers with a document.
func (c *Console) serveTopic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("topic")
	if _, ok := topics[name]; !ok || !c.has(name) {
		fail(w, http.StatusNotFound, "the console has nothing at "+r.URL.Path)
		return
	}
	a, err := asked(name, r.URL.Query(), false)
	if err == nil {
		var body []byte
		if body, err = c.document(a); err == nil {
			write(w, http.StatusOK, body)
			return
		}
	}
	c.failWith(w, err)
}

// failWith answers with an error.
func (c *Console) failWith(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNoCluster):
		fail(w, http.StatusNotFound, err.Error())
	case errors.As(err, new(badParameter)):
		fail(w, http.StatusBadRequest, err.Error())
	default:
		c.Log.Error("a document of the console cannot be made", "error", err)
		fail(w, http.StatusInternalServerError, "the document cannot be made; the log says why")
	}
}
