package main

import (
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/audit"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// This file turns the configuration into the options of the parts.

func newLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level.Slog()}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

func upstreamOptions(c *config.Gateway, log *slog.Logger, registerer prometheus.Registerer) upstream.Options {
	return upstream.Options{
		Kubeconfig: c.Kubeconfig, Context: c.Context, UserAgent: "kubeweir/" + buildVersion(),
		Logger: log, Registerer: registerer,
		Limits: upstream.Limits{
			DialTimeout: c.Timeouts.UpstreamDial, RequestTimeout: c.Timeouts.UpstreamRequest, StallTimeout: c.Timeouts.UpstreamStall,
			PingInterval: c.Timeouts.UpstreamPing, PingTimeout: c.Timeouts.UpstreamPingAnswer,
			FeedReadTimeout: c.Timeouts.FeedRead, MaxObjectBytes: int(c.Limits.MaxObjectBytes),
		},
	}
}

func cacheOptions(c *config.Gateway, source cache.Source, log *slog.Logger, registerer prometheus.Registerer) cache.Options {
	return cache.Options{
		Source: source, Logger: log, Registerer: registerer,
		Limits: cache.Limits{
			HistoryAge: c.Limits.HistoryAge, HistoryBytes: int64(c.Limits.HistoryBytes), HistoryEvents: c.Limits.HistoryEvents,
			SnapshotAge: c.Limits.SnapshotAge, SnapshotBytes: int64(c.Limits.SnapshotBytes),
			IdleAfter: c.Limits.IdleCollectionTimeout, ColdStarts: c.Limits.MaxColdStarts, StartWaiters: c.Limits.MaxStartWaiters,
			StaleAfter: c.Timeouts.FeedStale, Indexes: c.Limits.MaxIndexes,
		},
	}
}

func auditOptions(c *config.Gateway, log *slog.Logger, registerer prometheus.Registerer) audit.Options {
	return audit.Options{
		Path: c.Audit.Path, MaxSize: int64(c.Audit.MaxSize), MaxBackups: c.Audit.MaxBackups,
		Logger: log, Registerer: registerer,
	}
}

func authenticatorOptions(c *config.Gateway, reviewer identity.TokenReviewer, log *slog.Logger, registerer prometheus.Registerer) identity.AuthenticatorOptions {
	a := &c.Authentication
	return identity.AuthenticatorOptions{
		TokenReviewer: reviewer, ClientCAFile: a.ClientCAFile, Anonymous: a.Anonymous,
		RequestHeader: identity.RequestHeaderOptions{
			CAFile: a.RequestHeader.CAFile, AllowedNames: a.RequestHeader.AllowedNames,
			UsernameHeaders: a.RequestHeader.UsernameHeaders, UIDHeaders: a.RequestHeader.UIDHeaders,
			GroupHeaders: a.RequestHeader.GroupHeaders, ExtraHeaderPrefixes: a.RequestHeader.ExtraHeaderPrefixes,
		},
		GatewayUser: &user.DefaultInfo{Name: "kubeweir"}, SidecarHosts: c.SidecarHosts,
		SuccessTTL: a.TokenTTL, FailureTTL: a.TokenFailureTTL, OfflineTTL: a.OfflineTTL,
		CacheSize: a.CacheSize, ReviewTimeout: c.Timeouts.Review,
		Registerer: registerer, Log: log,
	}
}

func authorizerOptions(c *config.Gateway, reviewer identity.AccessReviewer, registerer prometheus.Registerer) identity.AuthorizerOptions {
	return identity.AuthorizerOptions{
		AccessReviewer: reviewer,
		AllowedTTL:     c.Authorization.AllowedTTL, DeniedTTL: c.Authorization.DeniedTTL, OfflineTTL: c.Authentication.OfflineTTL,
		CacheSize: c.Authorization.CacheSize, ReviewTimeout: c.Timeouts.Review, Registerer: registerer,
	}
}

func consistency(c *config.Gateway) proxy.Consistency {
	out := proxy.Consistency{Default: proxy.Mode(c.Consistency.Default), MaxStaleness: c.Consistency.MaxStaleness}
	for _, r := range c.Consistency.Rules {
		out.Rules = append(out.Rules, proxy.Rule{
			Users: r.Users, Groups: r.Groups, UserAgents: r.UserAgents, Resources: r.Resources, Mode: proxy.Mode(r.Mode),
		})
	}
	return out
}

func proxyLimits(c *config.Gateway) proxy.Limits {
	return proxy.Limits{
		InFlight: int64(c.Limits.MaxInFlight), LongRunning: int64(c.Limits.MaxWatches),
		Resumed:        int64(c.Limits.MaxResumedWatches),
		CollapsedBytes: int64(c.Limits.CollapsedBodyBytes),
	}
}

func edgeOptions(c *config.Gateway, log *slog.Logger, registerer prometheus.Registerer) edge.Options {
	return edge.Options{
		Listen: c.Listen, SidecarListen: c.InsecureListen, CertFile: c.TLS.CertFile, KeyFile: c.TLS.PrivateKeyFile,
		MaxConnections: c.Limits.MaxConnections, MaxHeaderBytes: int(c.Limits.MaxHeaderBytes), MaxStreams: uint32(c.Limits.MaxStreams),
		HandshakeTimeout: c.Timeouts.Handshake, ReadHeaderTimeout: c.Timeouts.ReadHeader, IdleTimeout: c.Timeouts.Idle,
		BodyIdleTimeout: c.Timeouts.BodyIdle, WriteTimeout: c.Timeouts.Write,
		PingInterval: c.Timeouts.Ping, PingTimeout: c.Timeouts.PingAnswer,
		Logger: log, Registerer: registerer,
	}
}
