{{/*
The name of most objects: the release's name, followed by the chart's name unless it contains that. The name of a release may
contain dots, that of a Service may not.
*/}}
{{- define "kubeweir.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if not (contains $name .Release.Name) -}}
{{- $full = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- $full | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubeweir.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The name of cluster-scoped objects. It contains the mode, so that their purpose is recognizable. */}}
{{- define "kubeweir.clusterName" -}}
{{- printf "%s-%s" (include "kubeweir.fullname" .) .Values.mode -}}
{{- end -}}

{{- define "kubeweir.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | toYaml }}
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
{{- end -}}

{{- define "kubeweir.labels" -}}
{{ include "kubeweir.selectorLabels" . }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Metadata of an object. The argument is a dict of "root" and, if they differ from the defaults, "name", "namespace", "labels" and
"annotations".
*/}}
{{- define "kubeweir.metadata" -}}
{{- $root := .root -}}
name: {{ default (include "kubeweir.fullname" $root) .name | toYaml }}
{{- if not .clusterScoped }}
namespace: {{ default (include "kubeweir.namespace" $root) .namespace | toYaml }}
{{- end }}
labels:
  {{- $labels := merge (dict) (default (dict) .labels) (include "kubeweir.labels" $root | fromYaml) }}
  {{- toYaml $labels | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) (default (dict) $root.Values.annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kubeweir.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kubeweir.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.image" -}}
{{- $image := .Values.image -}}
{{- $name := $image.repository -}}
{{- with default $image.registry .Values.global.imageRegistry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (printf "v%s" .Chart.AppVersion) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The kind of the workload: Deployment, DaemonSet or StatefulSet. */}}
{{- define "kubeweir.kind" -}}
{{- ternary "StatefulSet" .Values.kind (eq .Values.mode "standalone") -}}
{{- end -}}

{{- define "kubeweir.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{- ternary 1 2 (eq .Values.mode "standalone") -}}
{{- else -}}
{{- .Values.replicas -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.httpsPort" -}}
{{- default (ternary 6443 8443 (eq .Values.mode "standalone")) .Values.containerPorts.https -}}
{{- end -}}

{{- define "kubeweir.metricsPort" -}}
{{- default (ternary 9443 9444 (eq .Values.mode "standalone")) .Values.containerPorts.metrics -}}
{{- end -}}

{{/*
The Secret of the serving certificate. The Secrets of cert-manager and of Helm have different names, because Helm would not adopt a
Secret of cert-manager, and deletes its own Secret when it no longer renders it.
*/}}
{{- define "kubeweir.tlsSecret" -}}
{{- if eq .Values.tls.source "existingSecret" -}}
{{- .Values.tls.existingSecret -}}
{{- else -}}
{{- printf "%s-%s" (include "kubeweir.fullname" .) (ternary "cert" "tls" (eq .Values.tls.source "certManager")) -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.configMap" -}}
{{- if .Values.existingConfigMap -}}
{{- .Values.existingConfigMap -}}
{{- /* A gateway always has a configuration file, so that even the first rule needs no restart. */ -}}
{{- else if or .Values.config (eq .Values.mode "gateway") -}}
{{- include "kubeweir.fullname" . }}
{{- end -}}
{{- end -}}

{{/* The configuration file. The files that clusters name are keys of the upstream's Secret, which is mounted beside the folder of the configuration file. */}}
{{- define "kubeweir.config" -}}
{{- $config := deepCopy (default (dict) .Values.config) -}}
{{- if .Values.upstream.existingSecret -}}
{{- range default list $config.clusters -}}
{{- $kubeconfig := ternary (get . "kubeconfig") (printf "%s.kubeconfig" .name) (hasKey . "kubeconfig") -}}
{{- if and $kubeconfig (not (isAbs $kubeconfig)) }}{{ $kubeconfig = printf "../upstream/%s" $kubeconfig }}{{ end -}}
{{- $_ := set . "kubeconfig" $kubeconfig -}}
{{- with .authentication -}}
{{- if and .clientCAFile (not (isAbs .clientCAFile)) }}{{ $_ := set . "clientCAFile" (printf "../upstream/%s" .clientCAFile) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The settings that need a restart. A gateway applies the others when the mounted file changes. */}}
{{- define "kubeweir.restartConfig" -}}
{{- $config := deepCopy (default (dict) .Values.config) -}}
{{- $live := list "clusters" -}}
{{- if eq .Values.mode "gateway" }}{{ $live = concat $live (.Files.Get "files/live-settings.yaml" | fromYamlArray) }}{{ end -}}
{{- range $path := $live -}}
{{- $keys := splitList "." $path -}}
{{- $group := $config -}}
{{- range initial $keys }}{{ $group = default (dict) (get $group .) }}{{ end -}}
{{- $_ := unset $group (last $keys) -}}
{{- end -}}
{{- $rest := dict -}}
{{- range $key, $value := $config -}}
{{- if not (and (kindIs "map" $value) (not $value)) }}{{ $_ := set $rest $key $value }}{{ end -}}
{{- end -}}
{{- /* A change from one cluster to several needs a restart. */ -}}
{{- if $.Values.config }}{{ with $.Values.config.clusters }}{{ $_ := set $rest "clusters" true }}{{ end }}{{ end -}}
{{- toYaml $rest -}}
{{- end -}}

{{/* "true" for a gateway in front of this cluster, which uses its service account. */}}
{{- define "kubeweir.inCluster" -}}
{{- if eq .Values.mode "gateway" -}}
{{- $config := default (dict) .Values.config -}}
{{- $here := not (or .Values.upstream.existingSecret (default (dict) $config.clusterProfiles).providerFile) -}}
{{- with $config.clusters -}}
{{- $here = false -}}
{{- range (include "kubeweir.config" $ | fromYaml).clusters }}{{ if not .kubeconfig }}{{ $here = true }}{{ end }}{{ end -}}
{{- end -}}
{{- if $here }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* "true" if this cluster is the hub of the ClusterProfiles, which the gateway reads with its service account. */}}
{{- define "kubeweir.hubHere" -}}
{{- $profiles := default (dict) (default (dict) .Values.config).clusterProfiles -}}
{{- if and (eq .Values.mode "gateway") $profiles.providerFile (not $profiles.kubeconfig) }}true{{ end -}}
{{- end -}}

{{/* "true" if the checkpoints are on a volume that outlives the pod. */}}
{{- define "kubeweir.stateStays" -}}
{{- $volume := default (dict "emptyDir" dict) .Values.state.volume -}}
{{- if and .Values.state.enabled (not (hasKey $volume "emptyDir")) (not (hasKey $volume "ephemeral")) }}true{{ end -}}
{{- end -}}

{{- define "kubeweir.pkiSecret" -}}
{{- default (printf "%s-pki" (include "kubeweir.fullname" .)) .Values.standalone.pki.existingSecret -}}
{{- end -}}

{{/* The Secret of the bearer tokens of a standalone, "" for none. */}}
{{- define "kubeweir.tokenSecret" -}}
{{- if .Values.standalone.adminToken.existingSecret -}}
{{- .Values.standalone.adminToken.existingSecret -}}
{{- else if .Values.standalone.adminToken.create -}}
{{- include "kubeweir.fullname" . }}-admin
{{- end -}}
{{- end -}}

{{/* "true" if client certificates are accepted. */}}
{{- define "kubeweir.clientCertificates" -}}
{{- with .Values.clientCA }}{{ if or .fromCluster .existingConfigMap .existingSecret }}true{{ end }}{{ end -}}
{{- end -}}

{{/* The DNS names of the serving certificate, as YAML. */}}
{{- define "kubeweir.dnsNames" -}}
{{- $names := list -}}
{{- if .Values.tls.serviceNames -}}
{{- $name := include "kubeweir.fullname" . -}}
{{- $namespace := include "kubeweir.namespace" . -}}
{{- $names = list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.%s" $name $namespace .Values.clusterDomain) "localhost" -}}
{{- if eq .Values.mode "standalone" -}}
{{- $names = concat $names (list "kubernetes" "kubernetes.default" "kubernetes.default.svc" (printf "kubernetes.default.svc.%s" .Values.clusterDomain)) -}}
{{- end -}}
{{- end -}}
{{- $names = concat $names (default list .Values.tls.dnsNames) -}}
{{- range default list (default (dict) .Values.config).clusters }}{{ $names = concat $names (default list .hosts) }}{{ end -}}
{{- if .Values.ingress.enabled }}{{ $names = concat $names (default list .Values.ingress.hosts) }}{{ end -}}
{{- if .Values.httpRoute.enabled }}{{ $names = concat $names (default list .Values.httpRoute.hostnames) }}{{ end -}}
{{- if .Values.tlsRoute.enabled }}{{ $names = concat $names (default list .Values.tlsRoute.hostnames) }}{{ end -}}
{{- uniq $names | toYaml -}}
{{- end -}}

{{/* A name of the serving certificate, "" if none is known: a provided certificate may have other names than tls.serviceNames says. */}}
{{- define "kubeweir.backendHostname" -}}
{{- $first := "" -}}
{{- range reverse (include "kubeweir.dnsNames" . | fromYamlArray) }}{{ if not (hasPrefix "*" .) }}{{ $first = . }}{{ end }}{{ end -}}
{{- default $first .Values.httpRoute.backendTLSPolicy.hostname -}}
{{- end -}}

{{/* The host name that the commands of the notes expect in the certificate. */}}
{{- define "kubeweir.notesHost" -}}
{{- $name := "localhost" -}}
{{- if not .Values.tls.serviceNames -}}
{{- range reverse (include "kubeweir.dnsNames" . | fromYamlArray) }}{{ if not (hasPrefix "*" .) }}{{ $name = . }}{{ end }}{{ end -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The IP addresses of the serving certificate, as YAML. */}}
{{- define "kubeweir.ipAddresses" -}}
{{- concat (ternary (list "127.0.0.1") list .Values.tls.serviceNames) (default list .Values.tls.ipAddresses) | uniq | toYaml -}}
{{- end -}}

{{/* "true" if objects of a kind are rendered. The argument is a dict of "root", "enabled" and "api". */}}
{{- define "kubeweir.monitoring" -}}
{{- if and .enabled (or (eq .root.Values.metrics.renderMode "always") (.root.Capabilities.APIVersions.Has .api)) -}}true{{- end -}}
{{- end -}}
