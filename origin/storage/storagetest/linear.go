package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// verify checks what the clients saw against the history of the store: every acknowledged change is
// in it as it was acknowledged, no other change is, revisions contradict no order of calls, and
// each key is a linearizable register.
func (w *workload) verify(h *history) {
	w.s.Helper()
	for _, err := range verifyOps(w.ops, h) {
		w.s.Error(err)
	}
}

func verifyOps(ops []op, h *history) []error {
	ops, broken := settle(ops, h)
	broken = append(broken, checkOrder(ops)...)
	return append(broken, checkRegisters(ops)...)
}

// settle determines the outcome of the unknown calls, and returns the calls that happened.
func settle(ops []op, h *history) (settled []op, broken []error) {
	type change struct {
		key string
		rev uint64
	}
	acked := map[change]op{}
	var unknown []op
	for _, o := range ops {
		switch {
		case o.kind < opGet && o.unknown:
			unknown = append(unknown, o)
			continue
		case o.unknown:
			continue // a read that failed
		case o.kind < opGet && !o.conflict:
			if other, twice := acked[change{o.key, o.rev}]; twice {
				broken = append(broken, fmt.Errorf("one change for two: %s and %s", o, other))
			}
			acked[change{o.key, o.rev}] = o
		}
		settled = append(settled, o)
	}
	// The earliest that can have made a change is as good as any: its end is open.
	slices.SortStableFunc(unknown, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	for _, ev := range h.events(h.prefix, 0, h.last()) {
		c := change{ev.KV.Key, ev.KV.Revision}
		if o, ok := acked[c]; ok {
			if !o.made(ev) {
				broken = append(broken, fmt.Errorf("changed: %s, but the store has %s", o, showEvents([]storage.Event{ev})))
			}
			delete(acked, c)
			continue
		}
		i := slices.IndexFunc(unknown, func(o op) bool { return o.made(ev) })
		if i < 0 {
			broken = append(broken, fmt.Errorf("nobody made %s", showEvents([]storage.Event{ev})))
			continue
		}
		o := unknown[i]
		o.rev, o.unknown = ev.KV.Revision, false
		settled = append(settled, o)
		unknown = slices.Delete(unknown, i, i+1)
	}
	for _, o := range acked {
		broken = append(broken, fmt.Errorf("lost: %s", o))
	}
	return settled, broken
}

// made reports whether an event can be that of the call.
func (o op) made(ev storage.Event) bool {
	before := uint64(0)
	if ev.Previous != nil {
		before = ev.Previous.Revision
	}
	if o.key != ev.KV.Key || o.expect != before {
		return false
	}
	if ev.Type == storage.Deleted {
		return o.kind == opDelete
	}
	return o.kind == opPut && o.value == string(ev.KV.Value)
}

// checkOrder checks that a call that began after the end of another has a later revision; a read
// has no older one.
func checkOrder(ops []op) (broken []error) {
	var timed []op
	for _, o := range ops {
		if !o.conflict {
			timed = append(timed, o)
		}
	}
	byEnd := slices.Clone(timed)
	slices.SortFunc(timed, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(byEnd, func(a, b op) int { return cmp.Compare(a.ret, b.ret) })
	var newest op // of those ended so far
	ended := 0
	for _, o := range timed {
		for ended < len(byEnd) && byEnd[ended].ret < o.call {
			if byEnd[ended].rev > newest.rev {
				newest = byEnd[ended]
			}
			ended++
		}
		if o.rev < newest.rev || o.kind < opGet && o.rev == newest.rev && newest.rev != 0 {
			broken = append(broken, fmt.Errorf("order: %s (revision %d) began after the end of %s (revision %d)", o, o.rev, newest, newest.rev))
		}
	}
	return broken
}

// checkRegisters asks porcupine for an order of the calls on each key.
func checkRegisters(ops []op) (broken []error) {
	byKey := map[string][]porcupine.Operation{}
	for _, o := range ops {
		if o.kind == opCurrent {
			continue
		}
		byKey[o.key] = append(byKey[o.key], porcupine.Operation{ClientId: o.client, Input: o, Output: o, Call: o.call, Return: o.ret})
	}
	for key, history := range byKey {
		switch porcupine.CheckOperationsTimeout(register(), history, 30*time.Second) {
		case porcupine.Ok:
		case porcupine.Unknown:
			broken = append(broken, fmt.Errorf("%s: no verdict about %d calls in time", key, len(history)))
		default:
			lines := make([]string, len(history))
			for i, o := range history {
				lines[i] = fmt.Sprintf("\n  %d..%d %s", o.Call, o.Return, o.Input.(op))
			}
			broken = append(broken, fmt.Errorf("%s is not linearizable:%s", key, strings.Join(lines, "")))
		}
	}
	return broken
}

// value is what a register holds; the zero value is nothing.
type value struct {
	rev uint64
	is  string
}

func valueOf(kv *storage.KeyValue) value {
	if kv == nil {
		return value{}
	}
	return value{kv.Revision, string(kv.Value)}
}

// register is the model of one key: preconditions hold or conflicts report the current state, and
// revisions rise.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return value{} },
		Step: func(state, input, _ any) (bool, any) {
			now, o := state.(value), input.(op)
			switch {
			case o.kind == opGet:
				return valueOf(o.current) == now, now
			case o.conflict:
				return valueOf(o.current) == now && now.rev != o.expect, now
			case now.rev != o.expect || o.rev <= now.rev:
				return false, now
			case o.kind == opDelete:
				return true, value{}
			}
			return true, value{o.rev, o.value}
		},
	}
}
