package bench

import "time"

// An effort says how much is measured. More makes figures steadier: the kernel tells processor time in steps of 10 ms.
type effort struct {
	// pods in the cluster, and the most watchers of a row.
	pods, watchers int
	// rounds is how often each server is measured in turn.
	rounds int
	// The processor time that each server is to spend on a row's requests, over all rounds.
	apiserver, gateway, floor time.Duration
	// requests are the fewest in a slice.
	requests int
	// bursts of each server in a row, and the most clients of one.
	bursts, clients int
	// watching is how long events are sent in one slice, and fastEvents how many are sent as fast as possible.
	watching   time.Duration
	fastEvents int
	// queries are the lists of a row of kind Queries.
	queries int
	// visible are the lists of a row of kind Visible.
	visible int
	// labelWatching is watching of rows with few deliveries.
	labelWatching time.Duration
	// looking is how long tabs are looked at in a slice: several times as long as their windows become.
	looking time.Duration
	// objects are the most pods of a synthetic API server, updates the events of a row of kind Growth.
	objects, updates int
	// quiet is how long a process must rest before a slice; zero for not at all.
	quiet time.Duration
	// informers are the most of a row.
	informers int
	// writes are those whose latency is compared.
	writes int
	// creating is how long clients create objects in one slice.
	creating time.Duration
	// settle is how long a process is left alone before its memory is read: longer than kubeweir takes to give back,
	// in three times, what is not needed while nobody asks.
	settle time.Duration
	// restart begins with a new kube-apiserver after the pods are written, so that its memory is not that of writing.
	restart bool
	// judged compares results with targets.
	judged bool
}

func fullEffort() effort {
	return effort{
		pods: 5000, watchers: 10000, rounds: 4,
		apiserver: 3 * time.Second, gateway: 1500 * time.Millisecond, floor: 800 * time.Millisecond,
		requests: 2, bursts: 2, clients: 50,
		watching: 5 * time.Second, fastEvents: 600, labelWatching: 10 * time.Second, looking: 60 * time.Second,
		objects: 150_000, updates: 360_000, queries: 1000, visible: 100,
		quiet: 150 * time.Millisecond, informers: 200,
		writes: 1000, creating: 5 * time.Second, settle: 45 * time.Second, restart: true, judged: true,
	}
}

func shortEffort() effort {
	return effort{
		pods: 1000, watchers: 100, rounds: 1,
		apiserver: 100 * time.Millisecond, gateway: 40 * time.Millisecond, floor: 20 * time.Millisecond,
		requests: 1, bursts: 1, clients: 10,
		watching: 250 * time.Millisecond, fastEvents: 20, labelWatching: 250 * time.Millisecond, looking: time.Second,
		objects: 1000, updates: 3000, queries: 10, visible: 5,
		informers: 5,
		writes:    20, creating: 200 * time.Millisecond, settle: 200 * time.Millisecond,
	}
}
