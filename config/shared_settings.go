package config

import "time"

// The sections that all commands have.

func tlsSettings(t *TLS) []setting {
	return []setting{
		{"tls.certFile", "tls-cert-file", &t.CertFile, nil,
			"PEM `file` of the serving certificate and its chain, read again when it changes; without it one is generated", ""},
		{"tls.privateKeyFile", "tls-private-key-file", &t.PrivateKeyFile, nil,
			"PEM `file` of its private key", ""},
		{"tls.minVersion", "tls-min-version", &t.MinVersion, nil,
			"oldest `version` of TLS that clients may speak", ""},
		{"tls.cipherSuites", "tls-cipher-suites", &t.CipherSuites, nil,
			"`names` of the cipher suites that TLS 1.2 may use; without any, Go's choice. Those of TLS 1.3 are fixed", ""},
	}
}

// adminSettings are the settings of the admin listener.
func adminSettings(listen *string, profiling *Profiling, console *Console) []setting {
	return []setting{
		{"adminListen", "admin-listen", listen, nil,
			"`host:port` of the console, metrics, health and profiles, without TLS; \"\" for none", ""},
		{"profiling", "profiling", profiling, nil,
			"whether the admin listener serves /debug/pprof (`choice`): true, false, or auto, which is true on a loopback address",
			"a profile costs processor time while it is made"},
		{"console.enabled", "console", &console.Enabled, nil,
			"serve a console at / of the admin listener, for browsers and for kubeweir top",
			""},
		{"console.actions", "console-actions", &console.Actions, nil,
			"let the console change something: end a watch, begin a self-check; else it only shows", ""},
		{"console.tokenFile", "console-token-file", &console.TokenFile, nil,
			"`file` with the token, of 16 characters at least, that the console wants of its clients, read again when it changes; without it only programs and browsers of the gateway's machine, or pod, are let in", ""},
	}
}

// watchListCompressionSetting is for clients that accept gzip or zstd.
func watchListCompressionSetting(on *bool) setting {
	return setting{"watchListCompression", "watch-list-compression", on, nil,
		"compress watches that begin with the objects there are, as lists are: above 128 KiB, for clients that accept it",
		"the compressed events are kept within limits.derivedCacheBytes and shared; of more than eight times as much nothing is compressed. An event of 6 KB costs 10 to 40 microseconds once for all such watches"}
}

func limitSettings(limits *Limits) []section {
	return []section{{"Limits", []setting{
		{"limits.maxInFlight", "max-requests-inflight", &limits.MaxInFlight, atLeast(0),
			"`number` of requests under way at most, but for long-running ones, of which a user gets three quarters; 0 for no limit",
			"bounds memory and processor time at their height; one more is answered 429"},
		{"limits.maxWatches", "max-watches", &limits.MaxWatches, atLeast(0),
			"`number` of watches and other long-running requests at most, of which a user gets three quarters; 0 for no limit",
			"an open watch has about 32 KiB of memory over TLS, 9 KiB without; one more is answered 429"},
		{"limits.maxResumedWatches", "max-resumed-watches", &limits.MaxResumedWatches, atLeast(0),
			"`number` of watches that the cluster continues at most because they begin before the cache's history, of which a user gets three quarters; 0 for no limit",
			"each is a watch on the cluster; one more is told to list again (410)"},
		{"limits.maxConnections", "max-connections", &limits.MaxConnections, atLeast(1),
			"`number` of open connections at most, and never above half of the files that the process may open",
			"each has a file descriptor, and memory of its own over TLS; one more is closed at once"},
		{"limits.maxStreams", "http2-max-streams-per-connection", &limits.MaxStreams, between(1, 1<<31-1),
			"`number` of concurrent requests on one HTTP/2 connection at most",
			"a client with more of them opens another connection, or waits"},
		{"limits.maxHeaderBytes", "max-header-bytes", &limits.MaxHeaderBytes, between[Bytes](4<<10, 16<<20),
			"`size` of a request's header at most",
			"a connection has up to so much memory while it sends a header; a larger one is answered 431"},
		{"limits.maxColdStarts", "max-cold-starts", &limits.MaxColdStarts, atLeast(1),
			"`number` of collections that read their first list at a time at most",
			"more of them make a start shorter, and put as many full lists on the cluster at once"},
		{"limits.maxStartWaiters", "max-start-waiters", &limits.MaxStartWaiters, atLeast(1),
			"`number` of requests that wait for collections to start at most",
			"one more is answered 429, to come again"},
	}}, {"Memory", []setting{
		{"limits.historyAge", "history-age", &limits.HistoryAge, atLeast(time.Second),
			"`time` for which each collection keeps events",
			"the events of so long are in memory; a client that was away for less resumes its watch instead of listing again"},
		{"limits.historyBytes", "history-bytes", &limits.HistoryBytes, atLeast[Bytes](1 << 20),
			"`size` of the events that each collection keeps at most",
			"each resource and encoding whose objects change has up to so much memory for it"},
		{"limits.historyEvents", "history-events", &limits.HistoryEvents, atLeast(100),
			"`number` of events that each collection keeps at most",
			"bounds what events have besides their objects"},
		{"limits.snapshotAge", "snapshot-age", &limits.SnapshotAge, atLeast(time.Second),
			"`time` for which a version of a collection that was read in pages, or exactly, is retained",
			"changes since then stay in memory; the cluster decides about a page requested later, kubeweir's own pages (sortBy) then begin again"},
		{"limits.snapshotBytes", "snapshot-bytes", &limits.SnapshotBytes, atLeast[Bytes](1 << 20),
			"`size` of what retained states of a collection keep from being freed at most",
			"each resource and encoding has up to so much memory for it, where lists are read in pages while objects change"},
		{"limits.queryBytes", "query-bytes", &limits.QueryBytes, atLeast[Bytes](1 << 20),
			"`size` of the columns that lists with sortBy, where or countBy have made of a collection at most, with what these keep from being freed",
			"each resource so read has up to so much memory for it; a column of 150,000 names takes 13 MB, one of phases 1 MB; one that does not fit is made anew by each request, which takes a second of processor time"},
		{"limits.derivedCacheBytes", "derived-cache-bytes", &limits.DerivedCacheBytes, atLeast[Bytes](1 << 20),
			"`size` of the compressed lists, tables and metadata that are kept at most",
			"this much memory in all; what does not fit is made anew by each request, which costs processor time"},
		{"limits.collapsedBodyBytes", "collapsed-body-bytes", &limits.CollapsedBodyBytes, atLeast[Bytes](1 << 10),
			"`size` of an answer of the cluster that is shared between callers at most; all at a time have four times as much",
			"a larger answer is one request to the cluster for each caller"},
		{"limits.maxObjectBytes", "max-object-bytes", &limits.MaxObjectBytes, between[Bytes](4<<20, 1<<30),
			"`size` of a cached object at most",
			"an event has up to so much memory while it is read; a resource with a larger object is not cached"},
		{"limits.maxIndexes", "max-indexes", &limits.MaxIndexes, between(1, 1000),
			"`number` of labels and fields indexed in a collection at most",
			"one is made when a selector asks a second time and costs about 12 bytes for each object; other selectors look at every object"},
		{"limits.idleCollectionTimeout", "idle-collection-timeout", &limits.IdleCollectionTimeout, atLeast(time.Second),
			"`time` without reads or watches after which a collection is dropped",
			"so long its objects stay in memory and its watch on the cluster open; who comes later waits for a full list"},
		{"limits.selfCheckPeriod", "self-check-period", &limits.SelfCheckPeriod, atLeast(time.Duration(0)),
			"`time` in which each collection is compared once with the cluster, one at a time; 0 for never",
			"a comparison lists the names and versions of the objects, in pages, and reads ten objects; none is under way for more than a twentieth of the time; a collection that differs is listed anew and its watches end with 410"},
	}}}
}

func servingSettings(timeouts *ServingTimeouts) section {
	return section{"Timeouts of clients", []setting{
		{"timeouts.handshake", "tls-handshake-timeout", &timeouts.Handshake, atLeast(time.Millisecond),
			"`time` for a client's TLS handshake", ""},
		{"timeouts.readHeader", "read-header-timeout", &timeouts.ReadHeader, atLeast(time.Millisecond),
			"`time` for reading a request's header", ""},
		{"timeouts.idle", "idle-timeout", &timeouts.Idle, atLeast(time.Millisecond),
			"`time` for which a client's idle connection stays open",
			"a new one costs a TLS handshake"},
		{"timeouts.bodyIdle", "body-idle-timeout", &timeouts.BodyIdle, atLeast(time.Millisecond),
			"`time` for which a request's body may bring nothing", ""},
		{"timeouts.write", "write-timeout", &timeouts.Write, atLeast(time.Millisecond),
			"`time` that a client may take for each half MiB of a response",
			"a client that reads more slowly is disconnected; what is not yet sent to it stays in memory so long"},
		{"timeouts.ping", "ping-interval", &timeouts.Ping, atLeast(time.Millisecond),
			"`time` of silence after which an HTTP/2 client is pinged",
			"that is a packet each way for a silent connection"},
		{"timeouts.pingAnswer", "ping-timeout", &timeouts.PingAnswer, atLeast(time.Millisecond),
			"`time` for a client's answer to a ping",
			"a client that does not answer is disconnected, its watches end"},
	}}
}

func auditSettings(a *Audit, l *Log) section {
	return section{"Audit and logging", []setting{
		{"audit.path", "audit-log-path", &a.Path, nil,
			"`file` for an audit event (level Metadata) of every request that is answered or forwarded, - for standard output; events of reads are dropped when they come faster than they are written, those of others never",
			"each request costs processor time and a line of JSON, mostly below 1 KB"},
		{"audit.maxSize", "audit-log-max-size", &a.MaxSize, atLeast[Bytes](0),
			"`size` at which the audit log is put aside; 0 for never",
			"with audit.maxBackups this bounds the disk"},
		{"audit.maxBackups", "audit-log-max-backups", &a.MaxBackups, between(0, 10_000),
			"`number` of audit logs put aside that are kept",
			"so many times audit.maxSize of disk"},
		{"log.level", "log-level", &l.Level, nil,
			"least `severity` that is logged: debug, info, warn or error",
			"debug has lines for what is forwarded instead of cached, and all that Kubernetes' libraries tell"},
		{"log.format", "log-format", &l.Format, nil,
			"`format` of log lines: text or json", ""},
	}}
}

func shutdownSettings(s *Shutdown) section {
	return section{"Shutdown", []setting{
		{"shutdown.drain", "shutdown-drain", &s.Drain, between(0, time.Hour),
			"`time` over which open watches and connections are ended after SIGTERM",
			"a shorter time lets more clients come to another replica at once; a pod's terminationGracePeriodSeconds must be longer"},
	}}
}
