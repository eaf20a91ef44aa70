package config

// setting ties a field of the file to its flag. Names of flags that kube-apiserver
// has are kube-apiserver's.
type setting struct {
	path  string // in the file: limits.maxInFlight
	flag  string
	value any // pointer to the field
	usage string
}

func tlsSettings(t *TLS) []setting {
	return []setting{
		{"tls.certFile", "tls-cert-file", &t.CertFile, "PEM `file` of the serving certificate and its chain; without it one is generated"},
		{"tls.privateKeyFile", "tls-private-key-file", &t.PrivateKeyFile, "PEM `file` of its private key"},
	}
}

func limitSettings(limits *Limits) []setting {
	return []setting{
		{"limits.maxInFlight", "max-requests-inflight", &limits.MaxInFlight, "`number` of requests under way at most, but for long-running ones, of which a user gets three quarters; 0 for no limit"},
		{"limits.maxWatches", "max-watches", &limits.MaxWatches, "`number` of watches and other long-running requests at most, of which a user gets three quarters; 0 for no limit"},
		{"limits.maxResumedWatches", "max-resumed-watches", &limits.MaxResumedWatches, "`number` of watches that the cluster continues at most because they begin before the cache's history, of which a user gets three quarters; 0 for no limit"},
		{"limits.maxConnections", "max-connections", &limits.MaxConnections, "`number` of open connections at most, and never above half of the files that the process may open"},
		{"limits.maxStreams", "http2-max-streams-per-connection", &limits.MaxStreams, "`number` of concurrent requests on one HTTP/2 connection at most"},
		{"limits.maxHeaderBytes", "max-header-bytes", &limits.MaxHeaderBytes, "`size` of a request's header at most"},
		{"limits.historyAge", "history-age", &limits.HistoryAge, "`time` for which each collection keeps events"},
		{"limits.historyBytes", "history-bytes", &limits.HistoryBytes, "`size` of the events that each collection keeps at most"},
		{"limits.historyEvents", "history-events", &limits.HistoryEvents, "`number` of events that each collection keeps at most"},
		{"limits.snapshotAge", "snapshot-age", &limits.SnapshotAge, "`time` for which a retained state of a collection stays unused"},
		{"limits.snapshotBytes", "snapshot-bytes", &limits.SnapshotBytes, "`size` of what retained states of a collection keep from being freed at most"},
		{"limits.derivedCacheBytes", "derived-cache-bytes", &limits.DerivedCacheBytes, "`size` of the compressed lists, tables and metadata that are kept at most"},
		{"limits.collapsedBodyBytes", "collapsed-body-bytes", &limits.CollapsedBodyBytes, "`size` of an answer of the cluster that is shared between callers at most; all at a time have four times as much"},
		{"limits.maxObjectBytes", "max-object-bytes", &limits.MaxObjectBytes, "`size` of a cached object at most"},
		{"limits.maxColdStarts", "max-cold-starts", &limits.MaxColdStarts, "`number` of collections that read their first list at a time at most"},
		{"limits.maxStartWaiters", "max-start-waiters", &limits.MaxStartWaiters, "`number` of requests that wait for collections to start at most"},
		{"limits.maxIndexes", "max-indexes", &limits.MaxIndexes, "`number` of labels and fields indexed in a collection at most"},
		{"limits.idleCollectionTimeout", "idle-collection-timeout", &limits.IdleCollectionTimeout, "`time` without reads or watches after which a collection is dropped"},
	}
}

func servingSettings(timeouts *ServingTimeouts) []setting {
	return []setting{
		{"timeouts.handshake", "tls-handshake-timeout", &timeouts.Handshake, "`time` for a client's TLS handshake"},
		{"timeouts.readHeader", "read-header-timeout", &timeouts.ReadHeader, "`time` for reading a request's header"},
		{"timeouts.idle", "idle-timeout", &timeouts.Idle, "`time` for which a client's idle connection stays open"},
		{"timeouts.bodyIdle", "body-idle-timeout", &timeouts.BodyIdle, "`time` for which a request's body may bring nothing"},
		{"timeouts.write", "write-timeout", &timeouts.Write, "`time` that a client may take for each half MiB of a response"},
		{"timeouts.ping", "ping-interval", &timeouts.Ping, "`time` of silence after which an HTTP/2 client is pinged"},
		{"timeouts.pingAnswer", "ping-timeout", &timeouts.PingAnswer, "`time` for a client's answer to a ping"},
	}
}

func auditSettings(a *Audit) []setting {
	return []setting{
		{"audit.path", "audit-log-path", &a.Path, "`file` for an audit event (level Metadata) of every request that is answered or forwarded, - for standard output; events of reads are dropped when they come faster than they are written, those of others never"},
		{"audit.maxSize", "audit-log-max-size", &a.MaxSize, "`size` at which the audit log is put aside; 0 for never"},
		{"audit.maxBackups", "audit-log-max-backups", &a.MaxBackups, "`number` of audit logs put aside that are kept"},
	}
}

func logSettings(l *Log) []setting {
	return []setting{
		{"log.level", "log-level", &l.Level, "least `severity` that is logged: debug, info, warn or error"},
		{"log.format", "log-format", &l.Format, "`format` of log lines: text or json"},
	}
}

func shutdownSettings(s *Shutdown) []setting {
	return []setting{
		{"shutdown.drain", "shutdown-drain", &s.Drain, "`time` over which open watches and connections are ended after SIGTERM"},
	}
}
