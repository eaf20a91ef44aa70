package watchmux

import (
	"github.com/kubeweir/kubeweir/object"
)

// Before a watcher is woken, its filter is evaluated if that certainly costs less than waking it in
// vain: for filters of few terms and objects of few labels. Otherwise, since clients choose both,
// the watcher finds out by itself whether an event concerns it, in Next and without the lock. So
// the cost of an event under the lock is a number of watchers times a small constant, whatever the
// watchers request.
const (
	fewTerms  = 8
	fewLabels = 32
)

// isSmall reports whether the event's states have few labels.
func (e *Event) isSmall() bool {
	return len(e.Object.Labels) <= fewLabels && (e.Prev == nil || len(e.Prev.Labels) <= fewLabels)
}

// wake removes the armed watchers that ev concerns, or may concern, from the index, sets their
// cursors to seq and appends them to woken.
func (x *index) wake(ev *Event, seq uint64, woken []*Watcher) []*Watcher {
	o := ev.Object
	woken = x.wakeBucket(&x.rest, ev, seq, woken)
	woken = x.wakeValue(&x.keys, o.Key, ev, seq, woken)
	woken = x.wakeValue(&x.names, o.Name, ev, seq, woken)
	woken = x.wakeValue(&x.namespaces, o.Namespace, ev, seq, woken)
	woken = x.wakeTerms(o, ev, seq, woken)
	if ev.Prev != nil {
		// A watcher may be registered under a value that the object has lost.
		woken = x.wakeTerms(ev.Prev, ev, seq, woken)
	}
	return woken
}

func (x *index) wakeTerms(o *object.Object, ev *Event, seq uint64, woken []*Watcher) []*Watcher {
	switch {
	case len(x.labels) == 0:
	case len(o.Labels) <= max(fewLabels, len(x.labels)):
		for i := range o.Labels {
			if v := x.labels[o.Labels[i].Key]; v != nil {
				woken = x.wakeValue(v, o.Labels[i].Value, ev, seq, woken)
			}
		}
	default: // fewer labels are watched than the object has
		for key, v := range x.labels {
			if value, ok := o.Labels.Lookup(key); ok {
				woken = x.wakeValue(v, value, ev, seq, woken)
			}
		}
	}
	for i, v := range x.fields {
		if v != nil && i < len(o.Fields) {
			woken = x.wakeValue(v, o.Fields[i], ev, seq, woken)
		}
	}
	return woken
}

func (x *index) wakeValue(v *values, value string, ev *Event, seq uint64, woken []*Watcher) []*Watcher {
	if b := v.buckets[value]; b != nil {
		return x.wakeBucket(b, ev, seq, woken)
	}
	return woken
}

func (x *index) wakeBucket(b *bucket, ev *Event, seq uint64, woken []*Watcher) []*Watcher {
	small := ev.isSmall()
	// Backwards, because disarm moves the last one into the gap.
	for i := len(b.armed) - 1; i >= 0; i-- {
		w := b.armed[i].watcher
		if !ev.isAbove(w.future) {
			continue
		}
		if w.fewTerms && small {
			if _, concerns := ev.deliver(w.filter); !concerns {
				continue
			}
		}
		x.disarm(w)
		w.cursor = seq
		woken = append(woken, w)
	}
	return woken
}

func (x *index) arm(w *Watcher) {
	w.armed = true
	for i := range w.members {
		m := &w.members[i]
		m.pos = len(m.bucket.armed)
		m.bucket.armed = append(m.bucket.armed, place{w, i})
	}
}

func (x *index) disarm(w *Watcher) {
	if !w.armed {
		return
	}
	w.armed = false
	for i := range w.members {
		m := &w.members[i]
		b := m.bucket
		last := len(b.armed) - 1
		moved := b.armed[last]
		b.armed[m.pos] = moved
		moved.watcher.members[moved.number].pos = m.pos
		b.armed[last] = place{}
		b.armed = b.armed[:last]
	}
}

// register finds the watcher's buckets and makes the missing ones. terms are its filter's equality
// terms.
func (x *index) register(w *Watcher, terms []object.Equality) {
	t, ok := x.choose(w.filter, terms)
	if !ok {
		w.join(&x.rest)
		return
	}
	v := x.make(&t)
	for _, value := range t.Values {
		b := v.buckets[value]
		if b == nil {
			b = &bucket{home: v, value: value}
			if t.Kind == object.LabelTerm {
				b.label = t.Key
			}
			v.buckets[value] = b
		}
		w.join(b)
	}
}

// unregister removes the watcher from its buckets and drops empty ones. Their names come from
// clients, so they must not pile up.
func (x *index) unregister(w *Watcher) {
	x.disarm(w)
	for _, m := range w.members {
		b := m.bucket
		if b.registered--; b.registered > 0 || b.home == nil {
			continue
		}
		delete(b.home.buckets, b.value)
		if b.label != "" && len(b.home.buckets) == 0 {
			delete(x.labels, b.label)
		}
	}
	w.members = nil
}

// join adds the watcher to a bucket.
func (w *Watcher) join(b *bucket) {
	b.registered++
	w.members = append(w.members, membership{bucket: b})
}

// keyTerm stands for namespace and name together. Its value is an Object.Key.
const keyTerm object.TermKind = 255

// choose returns the equality term under which the filter's watchers are registered: the object or
// the name if the filter fixes one, else the term whose buckets have the fewest watchers, because
// an event visits all watchers of a bucket.
func (x *index) choose(f *object.Filter, terms []object.Equality) (best object.Equality, ok bool) {
	if n := len(terms); n > fewTerms { // enough to choose from; the last one is the namespace, if any
		terms = append(terms[:fewTerms-1:fewTerms-1], terms[n-1])
	}
	fewest := 0
	for _, t := range terms {
		if t.Kind == object.NameTerm {
			if f.Namespace != "" {
				return object.Equality{Kind: keyTerm, Values: []string{f.Namespace + "/" + t.Values[0]}}, true
			}
			return t, true
		}
		if n := x.crowd(&t); !ok || n < fewest {
			best, fewest, ok = t, n, true
		}
	}
	return best, ok
}

// crowd returns the number of watchers under a term's values.
func (x *index) crowd(t *object.Equality) int {
	n := len(t.Values) - 1
	v := x.find(t)
	if v == nil {
		return n
	}
	for _, value := range t.Values {
		if b := v.buckets[value]; b != nil {
			n += b.registered
		}
	}
	return n
}

// find returns the buckets of a term, nil if there are none yet.
func (x *index) find(t *object.Equality) *values {
	switch t.Kind {
	case keyTerm:
		return &x.keys
	case object.NameTerm:
		return &x.names
	case object.NamespaceTerm:
		return &x.namespaces
	case object.LabelTerm:
		return x.labels[t.Key]
	case object.FieldTerm:
		if t.Field < len(x.fields) {
			return x.fields[t.Field]
		}
	}
	return nil
}

// make returns the buckets of a term and makes missing ones.
func (x *index) make(t *object.Equality) *values {
	v := x.find(t)
	if v == nil {
		v = &values{}
		switch t.Kind {
		case object.LabelTerm:
			if x.labels == nil {
				x.labels = map[string]*values{}
			}
			x.labels[t.Key] = v
		case object.FieldTerm:
			for len(x.fields) <= t.Field {
				x.fields = append(x.fields, nil)
			}
			x.fields[t.Field] = v
		}
	}
	if v.buckets == nil {
		v.buckets = map[string]*bucket{}
	}
	return v
}
