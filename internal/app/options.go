package app

import (
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/review"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// This file turns the configuration into the options of the parts.

func upstreamOptions(c *config.Gateway, userAgent string) upstream.Options {
	return upstream.Options{
		Kubeconfig: c.Kubeconfig, Context: c.Context, UserAgent: userAgent,
		Servers: c.UpstreamServers,
		Limits: upstream.Limits{
			DialTimeout: c.Timeouts.UpstreamDial, RequestTimeout: c.Timeouts.UpstreamRequest, StallTimeout: c.Timeouts.UpstreamStall,
			SilenceTimeout: c.Timeouts.UpstreamSilence,
			ServerCheck:    c.Timeouts.UpstreamServerCheck, ServerSilence: c.Timeouts.UpstreamServerSilence,
			PingInterval: c.Timeouts.UpstreamPing, PingTimeout: c.Timeouts.UpstreamPingResponse,
			FeedReadTimeout: c.Timeouts.FeedRead, MaxObjectBytes: int(c.Limits.MaxObjectBytes),
		},
	}
}

func cacheOptions(l *config.Limits, source source.Source) cache.Options {
	return cache.Options{
		Source: source, CheckPeriod: l.SelfCheckPeriod,
		Limits: cache.Limits{
			HistoryAge: l.HistoryAge, HistoryBytes: int64(l.HistoryBytes), HistoryEvents: l.HistoryEvents,
			SnapshotAge: l.SnapshotAge, SnapshotBytes: int64(l.SnapshotBytes),
			QueryBytes: int64(l.QueryBytes),
			IdleAfter:  l.IdleCollectionTimeout, ColdStarts: l.MaxColdStarts, StartWaiters: l.MaxStartWaiters,
			Indexes: l.MaxIndexes,
		},
	}
}

func authenticatorOptions(c *config.Gateway, reviewer authn.TokenReviewer) authn.Options {
	a := &c.Authentication
	return authn.Options{
		TokenReviewer: reviewer, ClientCAFile: a.ClientCAFile, Anonymous: a.Anonymous,
		RequestHeader: requestHeaderOptions(&a.RequestHeader),
		SidecarHosts:  c.SidecarHosts,
		SuccessTTL:    a.TokenTTL, FailureTTL: a.TokenFailureTTL, UnverifiedTokens: unverifiedTokens(&c.Limits),
		Settings: reviewSettings(c, a.CacheSize),
	}
}

func requestHeaderOptions(h *config.RequestHeader) authn.RequestHeaderOptions {
	return authn.RequestHeaderOptions{
		CAFile: h.CAFile, AllowedNames: h.AllowedNames,
		UsernameHeaders: h.UsernameHeaders, UIDHeaders: h.UIDHeaders,
		GroupHeaders: h.GroupHeaders, ExtraHeaderPrefixes: h.ExtraHeaderPrefixes,
	}
}

// unverifiedTokens returns how many requests with unverified tokens may wait: a quarter of the
// requests that may be in flight.
func unverifiedTokens(l *config.Limits) int { return max(l.MaxInFlight/4, min(l.MaxInFlight, 16)) }

func authorizerOptions(c *config.Gateway, reviewer authz.AccessReviewer) authz.Options {
	return authz.Options{
		AccessReviewer: reviewer,
		AllowedTTL:     c.Authorization.AllowedTTL, DeniedTTL: c.Authorization.DeniedTTL,
		Settings: reviewSettings(c, c.Authorization.CacheSize),
	}
}

func reviewSettings(c *config.Gateway, cacheSize int) review.Settings {
	return review.Settings{OfflineTTL: offlineTTL(c), CacheSize: cacheSize, ReviewTimeout: c.Timeouts.Review}
}

func policyOf(c *config.Gateway) policy.Policy {
	return policy.Policy{
		Consistency:         policy.Consistency{Default: policy.Mode(c.Consistency.Default), MaxStaleness: c.Consistency.MaxStaleness},
		Offline:             policy.Offline{Allow: c.Offline.Default == config.Allow, TTL: c.Offline.TTL},
		Pace:                watch.Pace{Coalesce: c.Coalesce, BytesPerSecond: int64(c.WatchBytesPerSecond)},
		RememberSelfReviews: c.Authorization.SelfReviews == config.Cached,
		Rules:               rules(c), Limits: proxyLimits(&c.Limits),
	}
}

func rules(c *config.Gateway) (list []policy.Rule) {
	for i := range c.Rules {
		r := c.Rules[i].Complete()
		dropped := policy.Unset
		if slices.Contains(r.Drop, config.ManagedFields) {
			dropped = policy.Yes
		}
		list = append(list, policy.Rule{
			Match: policy.Match{Users: r.Users, Groups: r.Groups, UserAgents: r.UserAgents, Resources: r.Resources},
			Settings: policy.Settings{
				Mode: policy.Mode(r.Consistency), Offline: choice(r.Offline, config.Allow), SelfReviews: choice(r.SelfReviews, config.Cached), ReadOnly: choice(r.ReadOnly, config.On), VisibleLists: choice(r.VisibleLists, config.On),
				Redacted: choice(r.View, config.Redacted), DropManagedFields: dropped,
				Coalesce: time.Duration(r.Coalesce), WatchBytesPerSecond: int64(r.WatchBytesPerSecond),
				UpstreamRequestsPerSecond: int64(r.UpstreamRequestsPerSecond), UpstreamBytesPerSecond: int64(r.UpstreamBytesPerSecond),
				OverBudget: policy.OverBudget(r.OverBudget), Block: choice(r.Block, config.On),
			},
		})
	}
	return list
}

// choice returns Yes if value is yes, No for any other value, and unset for "".
func choice[T ~string](value, yes T) policy.Choice {
	switch value {
	case "":
		return policy.Unset
	case yes:
		return policy.Yes
	}
	return policy.No
}

// offlineTTL returns how long the cluster's last decisions about clients are cached for outages.
func offlineTTL(c *config.Gateway) time.Duration {
	if !c.ServesOffline() {
		return 0
	}
	return c.Offline.TTL
}

func proxyLimits(l *config.Limits) policy.Limits {
	return policy.Limits{
		InFlight: int64(l.MaxInFlight), LongRunning: int64(l.MaxWatches),
		Resumed:        int64(l.MaxResumedWatches),
		CollapsedBytes: int64(l.CollapsedBodyBytes),
	}
}

func edgeOptions(l *config.Limits, t *config.ServingTimeouts, log *slog.Logger, registerer prometheus.Registerer) edge.Options {
	return edge.Options{
		MaxConnections: l.MaxConnections, MaxHeaderBytes: int(l.MaxHeaderBytes), MaxStreams: uint32(l.MaxStreams),
		HandshakeTimeout: t.Handshake, ReadHeaderTimeout: t.ReadHeader, IdleTimeout: t.Idle,
		BodyIdleTimeout: t.BodyIdle, WriteTimeout: t.Write,
		PingInterval: t.Ping, PingTimeout: t.PingResponse,
		Logger: log, Registerer: registerer,
	}
}
