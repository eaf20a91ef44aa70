package watchmux

import (
	"slices"

	"github.com/kubeweir/kubeweir/internal/object"
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
// cursors to it and appends them to woken.
func (x *index) wake(ev *Event, woken []*Watcher) []*Watcher {
	woken = x.wakeBucket(&x.rest, ev, woken)
	woken = x.wakeTerms(ev.Object, keySlot, ev, woken)
	if ev.Prev != nil {
		// A watcher may be registered under a value that the object has lost.
		woken = x.wakeTerms(ev.Prev, fieldSlots, ev, woken)
	}
	return woken
}

// wakeTerms wakes the watchers of the values that o has for labels and for the slots from first on.
func (x *index) wakeTerms(o *object.Object, first int, ev *Event, woken []*Watcher) []*Watcher {
	switch {
	case len(x.labels) == 0:
	case len(o.Labels) <= max(fewLabels, len(x.labels)):
		for i := range o.Labels {
			woken = x.wakeBucket(x.labels[o.Labels[i].Key][o.Labels[i].Value], ev, woken)
		}
	default: // fewer labels are watched than the object has
		for key, v := range x.labels {
			if value, ok := o.Labels.Lookup(key); ok {
				woken = x.wakeBucket(v[value], ev, woken)
			}
		}
	}
	for slot := first; slot < len(x.slots); slot++ {
		switch v := x.slots[slot]; {
		case v == nil:
		case slot == keySlot:
			woken = x.wakeBucket(v[o.Key], ev, woken)
		case slot == nameSlot:
			woken = x.wakeBucket(v[o.Name], ev, woken)
		case slot == namespaceSlot:
			woken = x.wakeBucket(v[o.Namespace], ev, woken)
		case slot-fieldSlots < len(o.Fields):
			woken = x.wakeBucket(v[o.Fields[slot-fieldSlots]], ev, woken)
		}
	}
	return woken
}

// wakeBucket wakes the watchers of b, which is nil if there are none.
func (x *index) wakeBucket(b *bucket, ev *Event, woken []*Watcher) []*Watcher {
	if b == nil {
		return woken
	}
	small := ev.isSmall()
	// Backwards, because disarm moves the last one into the gap.
	for _, p := range slices.Backward(b.armed) {
		w := p.watcher
		if !ev.isAbove(w.future) {
			continue
		}
		if w.fewTerms && small {
			if _, concerns := ev.deliver(w.filter); !concerns {
				continue
			}
		}
		x.disarm(w)
		w.cursor = ev.seq
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
	t, wanted := x.choose(w.filter, terms)
	if wanted == nil {
		w.join(&x.rest)
		return
	}
	v := x.find(t)
	switch {
	case v != nil:
	case t.label != "":
		v = values{}
		x.labels[t.label] = v
	default:
		x.slots = append(x.slots, make([]values, max(0, t.slot+1-len(x.slots)))...)
		v = values{}
		x.slots[t.slot] = v
	}
	for _, value := range wanted {
		b := v[value]
		if b == nil {
			b = &bucket{term: t, value: value}
			v[value] = b
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
		if b.registered--; b.registered > 0 || b == &x.rest {
			continue
		}
		v := x.find(b.term)
		delete(v, b.value)
		if b.label != "" && len(v) == 0 {
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

// choose returns the term, and its values, under which the filter's watchers are registered: the
// object or the name if the filter fixes one, else the equality term whose buckets have the fewest
// watchers, because an event visits all watchers of a bucket. Without one it returns no values.
func (x *index) choose(f *object.Filter, terms []object.Equality) (best term, values []string) {
	if n := len(terms); n > fewTerms { // enough to choose from; the last one is the namespace, if any
		terms = append(terms[:fewTerms-1:fewTerms-1], terms[n-1])
	}
	fewest := 0
	for i := range terms {
		e := &terms[i]
		t := term{slot: fieldSlots + e.Field}
		switch e.Kind {
		case object.NameTerm:
			if f.Namespace != "" {
				return term{slot: keySlot}, []string{f.Namespace + "/" + e.Values[0]}
			}
			return term{slot: nameSlot}, e.Values
		case object.NamespaceTerm:
			t.slot = namespaceSlot
		case object.LabelTerm:
			t = term{label: e.Key}
		}
		if n := x.crowd(t, e.Values); values == nil || n < fewest {
			best, values, fewest = t, e.Values, n
		}
	}
	return best, values
}

// crowd returns the number of watchers under a term's values.
func (x *index) crowd(t term, values []string) int {
	n, v := len(values)-1, x.find(t)
	for _, value := range values {
		if b := v[value]; b != nil {
			n += b.registered
		}
	}
	return n
}

// find returns the buckets of a term, nil if there are none yet.
func (x *index) find(t term) values {
	if t.label != "" || t.slot >= len(x.slots) {
		return x.labels[t.label]
	}
	return x.slots[t.slot]
}
