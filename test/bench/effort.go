package bench

import "time"

// An effort says how much is measured. More effort makes figures steadier: the kernel reports
// processor time in steps of 10 ms.
type effort struct {
	// pods is the number of pods in the cluster, watchers the most watchers of a row.
	pods, watchers int
	// rounds is how often each server is measured in turn.
	rounds int
	// The processor time that each server spends on a row's requests, over all rounds.
	apiserver, gateway, floor time.Duration
	// requests is the minimum number of requests in a slice.
	requests int
	// bursts is the number of bursts per server in a row, clients the most clients of one burst.
	bursts, clients int
	// watching is how long events are sent in one slice, fastEvents how many are sent as fast as
	// possible.
	watching   time.Duration
	fastEvents int
	// queries is the number of lists in a row of kind Queries.
	queries int
	// visible is the number of lists in a row of kind Visible.
	visible int
	// labelWatching replaces watching in rows with few deliveries.
	labelWatching time.Duration
	// looking is how long tabs watch in a slice: several times the longest delivery interval.
	looking time.Duration
	// objects is the most pods of a synthetic API server, updates the number of events in a row of
	// kind Growth.
	objects, updates int
	// quiet is how long a process must be idle before a slice; zero means no wait.
	quiet time.Duration
	// informers is the most informers of a row.
	informers int
	// writes is the number of writes whose latency is compared.
	writes int
	// creating is how long clients create objects in one slice.
	creating time.Duration
	// settle is how long a process is idle before its memory is read: longer than kubeweir needs to
	// return unused memory to the system, which it does in three steps.
	settle time.Duration
	// restart restarts kube-apiserver after the pods are written, so that its memory is not that of
	// writing.
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
