package config

import "time"

// The settings that all commands share.

func tlsSettings(t *TLS) []setting {
	return []setting{
		{"tls.certFile", "tls-cert-file", &t.CertFile, nil,
			"PEM `file` with the serving certificate and its chain, reloaded when it changes; default: a generated certificate", ""},
		{"tls.privateKeyFile", "tls-private-key-file", &t.PrivateKeyFile, nil,
			"PEM `file` with the private key of the serving certificate", ""},
		{"tls.minVersion", "tls-min-version", &t.MinVersion, nil,
			"minimum TLS `version` of clients", ""},
		{"tls.cipherSuites", "tls-cipher-suites", &t.CipherSuites, nil,
			"`names` of the cipher suites of TLS 1.2; default: Go's choice. Those of TLS 1.3 are fixed", ""},
	}
}

// adminSettings are the settings of the admin listener.
func adminSettings(listen *string, profiling *Profiling, console *Console) []setting {
	return []setting{
		{"adminListen", "admin-listen", listen, nil,
			"`host:port` of the console, metrics, health and profiles, without TLS; \"\" for none", ""},
		{"profiling", "profiling", profiling, nil,
			"whether the admin listener serves /debug/pprof (`choice`): true, false, or auto, which is true on a loopback address",
			"recording a profile costs CPU time"},
		{"console.enabled", "console", &console.Enabled, nil,
			"serve a console at / of the admin listener, for browsers and for kubeweir top",
			""},
		{"console.actions", "console-actions", &console.Actions, nil,
			"allow actions in the console: end a watch, start a self-check, block a user agent; otherwise it is read-only", ""},
		{"console.tokenFile", "console-token-file", &console.TokenFile, nil,
			"`file` with the console's token of at least 16 characters, reloaded when it changes; without it only programs and browsers on the gateway's machine, or in its pod, may use the console", ""},
	}
}

// watchListCompressionSetting returns the setting for clients that accept gzip or zstd.
func watchListCompressionSetting(on *bool) setting {
	return setting{"watchListCompression", "watch-list-compression", on, nil,
		"compress watches with initial events, like lists: above 128 KiB, for clients that accept it",
		"compressed events are cached within limits.derivedCacheBytes and shared; above eight times that size nothing is compressed. An event of 6 KB costs 10 to 40 microseconds once for all such watches"}
}

// inFlightSetting returns the limit of requests in flight. The flag is kube-apiserver's in a gateway,
// which has no priority and fairness.
func inFlightSetting(limits *Limits, flag string) setting {
	return setting{"limits.maxInFlight", flag, &limits.MaxInFlight, atLeast(0),
		"maximum `number` of requests in flight, except long-running ones; a user may hold three quarters; 0: no limit",
		"limits peak memory and CPU time; further requests get 429"}
}

func limitSettings(limits *Limits) []section {
	return []section{{"Limits", []setting{
		{"limits.maxWatches", "max-watches", &limits.MaxWatches, atLeast(0),
			"maximum `number` of watches and other long-running requests; a user may hold three quarters; 0: no limit",
			"an open watch takes about 32 KiB of memory with TLS, 9 KiB without; further requests get 429"},
		{"limits.maxResumedWatches", "max-resumed-watches", &limits.MaxResumedWatches, atLeast(0),
			"maximum `number` of watches that the cluster continues because they start before a history that cannot be extended; a user may hold three quarters; 0: no limit",
			"each is a watch on the cluster; further ones get 410 and list again. Needed for resources without bookmarks (Events, some aggregated API servers) and if the history is full; see the reason history in reasons.md"},
		{"limits.maxConnections", "max-connections", &limits.MaxConnections, atLeast(1),
			"maximum `number` of open connections, but never more than half of the process's file descriptors",
			"each takes a file descriptor, and memory with TLS; further ones are closed at once"},
		{"limits.maxStreams", "http2-max-streams-per-connection", &limits.MaxStreams, between(1, 1<<31-1),
			"maximum `number` of concurrent requests per HTTP/2 connection",
			"clients with more requests open another connection, or wait"},
		{"limits.maxHeaderBytes", "max-header-bytes", &limits.MaxHeaderBytes, between[Bytes](4<<10, 16<<20),
			"maximum `size` of a request's header",
			"a connection takes up to this much memory while it sends a header; larger headers get 431"},
		{"limits.maxColdStarts", "max-cold-starts", &limits.MaxColdStarts, atLeast(1),
			"maximum `number` of collections that read their first list at the same time",
			"a higher number shortens startup, and sends more full lists to the cluster at once"},
		{"limits.maxStartWaiters", "max-start-waiters", &limits.MaxStartWaiters, atLeast(1),
			"maximum `number` of requests that wait for collections to start",
			"further requests get 429 and are retried by clients"},
	}}, {"Memory", []setting{
		{"limits.historyAge", "history-age", &limits.HistoryAge, atLeast(time.Second),
			"`time` for which each collection retains events",
			"events take memory for this time; clients that were disconnected for less resume their watches instead of listing again"},
		{"limits.historyBytes", "history-bytes", &limits.HistoryBytes, atLeast[Bytes](1 << 20),
			"maximum `size` of the events that each collection retains",
			"each resource and encoding with changing objects takes up to this much memory"},
		{"limits.historyEvents", "history-events", &limits.HistoryEvents, atLeast(100),
			"maximum `number` of events that each collection retains",
			"limits the overhead of events besides their objects"},
		{"limits.snapshotAge", "snapshot-age", &limits.SnapshotAge, atLeast(time.Second),
			"`time` for which a version of a collection is retained after it was read in pages or exactly",
			"replaced objects take memory for this time; later pages are forwarded to the cluster, pages with sortBy start again"},
		{"limits.snapshotBytes", "snapshot-bytes", &limits.SnapshotBytes, atLeast[Bytes](1 << 20),
			"maximum `size` of the memory that the retained snapshots of a collection hold",
			"each resource and encoding takes up to this much memory if lists are read in pages while objects change"},
		{"limits.queryBytes", "query-bytes", &limits.QueryBytes, atLeast[Bytes](1 << 20),
			"maximum `size` of the cached columns of a collection for lists with sortBy, where or countBy, including the memory that they hold",
			"each resource with such lists takes up to this much memory; a column of 150,000 names takes 13 MB, one of phases 1 MB; a column that does not fit is rebuilt by each request, which takes about a second of CPU time"},
		{"limits.derivedCacheBytes", "derived-cache-bytes", &limits.DerivedCacheBytes, atLeast[Bytes](1 << 20),
			"maximum `size` of cached compressed lists, tables and metadata",
			"takes this much memory in total; forms that do not fit are rebuilt by each request, which costs CPU time"},
		{"limits.collapsedBodyBytes", "collapsed-body-bytes", &limits.CollapsedBodyBytes, atLeast[Bytes](1 << 10),
			"maximum `size` of an upstream response that coalesced requests share; all of them together may take four times as much",
			"for larger responses each client costs a request to the cluster"},
		{"limits.maxObjectBytes", "max-object-bytes", &limits.MaxObjectBytes, between[Bytes](4<<20, 1<<30),
			"maximum `size` of a cached object",
			"reading an event takes up to this much memory; a resource with a larger object is not cached"},
		{"limits.maxIndexes", "max-indexes", &limits.MaxIndexes, between(1, 1000),
			"maximum `number` of indexed labels and fields per collection",
			"an index is built when a selector is used a second time, and takes about 12 bytes per object; other selectors scan all objects"},
		{"limits.idleCollectionTimeout", "idle-collection-timeout", &limits.IdleCollectionTimeout, atLeast(time.Second),
			"`time` without reads and watches after which a collection is dropped",
			"an unused collection costs memory and a watch for this time; the next client waits for a full list"},
		{"limits.selfCheckPeriod", "self-check-period", &limits.SelfCheckPeriod, atLeast(time.Duration(0)),
			"`time` in which each collection is compared once with the cluster, one after another; 0: never",
			"a comparison lists the names and versions of the objects, in pages, and reads ten objects; comparisons take at most a twentieth of the time; a collection that differs is listed again and its watches end with 410"},
	}}}
}

func servingSettings(timeouts *ServingTimeouts) section {
	return section{"Client timeouts", []setting{
		{"timeouts.handshake", "tls-handshake-timeout", &timeouts.Handshake, atLeast(time.Millisecond),
			"`time` limit for a client's TLS handshake", ""},
		{"timeouts.readHeader", "read-header-timeout", &timeouts.ReadHeader, atLeast(time.Millisecond),
			"`time` limit for reading a request's header", ""},
		{"timeouts.idle", "idle-timeout", &timeouts.Idle, atLeast(time.Millisecond),
			"`time` for which a client's idle connection stays open",
			"a new connection costs a TLS handshake"},
		{"timeouts.bodyIdle", "body-idle-timeout", &timeouts.BodyIdle, atLeast(time.Millisecond),
			"`time` limit for pauses in a request's body", ""},
		{"timeouts.write", "write-timeout", &timeouts.Write, atLeast(time.Millisecond),
			"`time` limit for a client to read each half MiB of a response",
			"slower clients are disconnected; unsent data takes memory for this time"},
		{"timeouts.ping", "ping-interval", &timeouts.Ping, atLeast(time.Millisecond),
			"`time` of silence after which the server pings an HTTP/2 client",
			"a ping costs one packet each way on an idle connection"},
		{"timeouts.pingAnswer", "ping-timeout", &timeouts.PingResponse, atLeast(time.Millisecond),
			"`time` limit for a client's response to a ping",
			"clients that do not respond are disconnected, and their watches end"},
	}}
}

func logSettings(l *Log) section {
	return section{"Logging", []setting{
		{"log.level", "log-level", &l.Level, nil,
			"minimum `severity` to log: debug, info, warn or error",
			"debug includes reads that are forwarded instead of cached, and all messages of Kubernetes' libraries"},
		{"log.format", "log-format", &l.Format, nil,
			"`format` of log lines: text or json", ""},
	}}
}

func tracingSettings(t *Tracing) section {
	return section{"Tracing", []setting{
		{"tracing.configFile", "tracing-config-file", &t.ConfigFile, nil,
			"`file` with a TracingConfiguration of apiserver.config.k8s.io, as for kube-apiserver: the collector of OpenTelemetry spans and the sampling rate; see docs/tracing.md; default: no spans",
			"each sampled request costs about 30 microseconds of CPU time, each other one about 10; spans are dropped if the collector is too slow"},
	}}
}

func shutdownSettings(s *Shutdown) section {
	return section{"Shutdown", []setting{
		{"shutdown.drain", "shutdown-drain", &s.Drain, between(0, time.Hour),
			"`time` over which open watches and connections are ended after SIGTERM",
			"with a shorter time more clients move to another replica at once; a pod's terminationGracePeriodSeconds must be longer"},
	}}
}
