{{/* Checks of combinations of values, which the schema cannot express. Each message names the value and says what to do. */}}
{{- define "kubeweir.checks" -}}
{{- include "kubeweir.checkNames" . -}}
{{- include "kubeweir.checkConfig" . -}}
{{- include "kubeweir.checkCertificates" . -}}
{{- include "kubeweir.checkRoutes" . -}}
{{- include "kubeweir.checkPods" . -}}
{{- include "kubeweir.checkClusters" . -}}
{{- include "kubeweir.checkState" . -}}
{{- if eq .Values.mode "standalone" }}{{ include "kubeweir.checkStandalone" . }}{{ end -}}
{{- if and (eq .Values.mode "gateway") .Values.standalone.etcd.servers -}}
{{- fail "standalone.etcd.servers: a gateway has no store; set mode: standalone" -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkNames" -}}
{{- if not (regexMatch "^[a-z]" (include "kubeweir.fullname" .)) -}}
{{- fail (printf "fullnameOverride: required, because names of Services must begin with a letter, and %s does not" (include "kubeweir.fullname" .)) -}}
{{- end -}}
{{- if and (include "kubeweir.rbac" .) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: required if serviceAccount.create is false; with the account default, all pods of the namespace would have the gateway's permissions" -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkConfig" -}}
{{- $config := default (dict) .Values.config -}}
{{- if and $config .Values.existingConfigMap -}}
{{- fail "existingConfigMap: config is set, too; set only one of them" -}}
{{- end -}}
{{- range $key, $instead := dict "listen" "containerPorts.https" "adminListen" "containerPorts.metrics" "tls" "tls" "certDir" "tls" "kubeconfig" "upstream.existingSecret" "context" "upstream.context" "dataDir" "standalone.persistence" "etcd" "standalone.etcd" -}}
{{- if hasKey $config $key -}}
{{- fail (printf "config.%s: the chart sets it; use the value %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- range $key := list "insecureListen" "serviceAccountDir" -}}
{{- if hasKey $config $key -}}
{{- fail (printf "config.%s: anyone who reaches it has the gateway's own permissions; it is for a sidecar, which this chart does not deploy" $key) -}}
{{- end -}}
{{- end -}}
{{- $authentication := default (dict) $config.authentication -}}
{{- range $key, $instead := dict "clientCAFile" "clientCA" "tokenAuthFile" "standalone.adminToken" -}}
{{- if hasKey $authentication $key -}}
{{- fail (printf "config.authentication.%s: the chart sets it; use the value %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkCertificates" -}}
{{- $tls := .Values.tls -}}
{{- if and (eq $tls.source "existingSecret") (not $tls.existingSecret) -}}
{{- fail "tls.existingSecret: must name a Secret with tls.crt and tls.key, because tls.source is existingSecret" -}}
{{- end -}}
{{- if and $tls.existingSecret (ne $tls.source "existingSecret") -}}
{{- fail (printf "tls.existingSecret: has no effect with tls.source: %s; set tls.source: existingSecret" $tls.source) -}}
{{- end -}}
{{- if and (ne $tls.source "existingSecret") (not (include "kubeweir.dnsNames" . | fromYamlArray)) (not (include "kubeweir.ipAddresses" . | fromYamlArray)) -}}
{{- fail "tls.dnsNames: must name a host, because tls.serviceNames is false" -}}
{{- end -}}
{{- $ca := .Values.clientCA -}}
{{- if gt (len (compact (list (ternary "x" "" $ca.fromCluster) $ca.existingConfigMap $ca.existingSecret))) 1 -}}
{{- fail "clientCA: set only one of fromCluster, existingConfigMap and existingSecret" -}}
{{- end -}}
{{- if and $ca.fromCluster .Values.upstream.existingSecret -}}
{{- fail "clientCA.fromCluster: the CA of this cluster does not identify clients of the cluster of upstream.existingSecret; name the CA of that cluster in clientCA.existingConfigMap" -}}
{{- end -}}
{{- if eq (default "" $ca.existingConfigMap) "kube-root-ca.crt" -}}
{{- fail "clientCA.existingConfigMap: kube-root-ca.crt holds the CA of API servers, not of clients; copy that of kube-system/extension-apiserver-authentication, or set clientCA.fromCluster: true" -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkRoutes" -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: must name a host, because ingress.enabled is true" -}}
{{- end -}}
{{- range $route := list "httpRoute" "tlsRoute" -}}
{{- $values := index $.Values $route -}}
{{- if and $values.enabled (not $values.parentRefs) -}}
{{- fail (printf "%s.parentRefs: must name a Gateway, because %s.enabled is true" $route $route) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tlsRoute.enabled (not .Values.tlsRoute.hostnames) -}}
{{- fail "tlsRoute.hostnames: must name a host, because tlsRoute.enabled is true" -}}
{{- end -}}
{{- with .Values.httpRoute -}}
{{- if and .enabled .backendTLSPolicy.enabled (not .backendTLSPolicy.caConfigMap) (ne $.Values.tls.source "generated") -}}
{{- fail (printf "httpRoute.backendTLSPolicy.caConfigMap: must name a ConfigMap with the CA as ca.crt, because tls.source is %s" $.Values.tls.source) -}}
{{- end -}}
{{- if and .enabled .backendTLSPolicy.enabled (not (include "kubeweir.backendHostname" $)) -}}
{{- fail "httpRoute.backendTLSPolicy.hostname: must be a name that the certificate has" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkPods" -}}
{{- if and .Values.autoscaling.enabled (ne (include "kubeweir.kind" .) "Deployment") -}}
{{- fail (printf "autoscaling.enabled: only a Deployment can be scaled, not a %s" (include "kubeweir.kind" .)) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: must not exceed autoscaling.maxReplicas" -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and (toString .minAvailable | replace "<nil>" "") (toString .maxUnavailable | replace "<nil>" "") -}}
{{- fail "podDisruptionBudget.minAvailable: maxUnavailable is set, too; set only one of them" -}}
{{- end -}}
{{- end -}}
{{- if eq (include "kubeweir.httpsPort" .) (include "kubeweir.metricsPort" .) -}}
{{- fail (printf "containerPorts.metrics: port %s is also containerPorts.https; use different ports" (include "kubeweir.metricsPort" .)) -}}
{{- end -}}
{{- if and .Values.hostNetwork .Values.hostPort (ne (toString .Values.hostPort) (include "kubeweir.httpsPort" .)) -}}
{{- fail (printf "hostPort: must be %s like containerPorts.https, because of hostNetwork; omit it" (include "kubeweir.httpsPort" .)) -}}
{{- end -}}
{{- $shutdown := default (dict) (default (dict) .Values.config).shutdown -}}
{{- $then := toDate "2006-01-02" "2000-01-01" -}}
{{- $drain := sub (mustDateModify (default "20s" $shutdown.drain | toString) $then | unixEpoch | int64) ($then | unixEpoch | int64) -}}
{{- $least := add $drain .Values.preStopSleepSeconds 8 -}}
{{- if lt (int64 .Values.terminationGracePeriodSeconds) $least -}}
{{- fail (printf "terminationGracePeriodSeconds: must be at least %d, the sum of preStopSleepSeconds, config.shutdown.drain and 8, not %d" $least (int64 .Values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkClusters" -}}
{{- if (default (dict) .Values.config).clusters -}}
{{- if .Values.upstream.context -}}
{{- fail "upstream.context: does not apply to several clusters; set the context of each in config.clusters" -}}
{{- end -}}
{{- if .Values.clientCA.fromCluster -}}
{{- fail "clientCA.fromCluster: the CA of this cluster would apply to all of config.clusters; set authentication.clientCAFile of each cluster" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkState" -}}
{{- $state := default (dict) (default (dict) .Values.config).state -}}
{{- range $key, $instead := dict "dir" "state.enabled" "keyFile" "state.keySecret" -}}
{{- if hasKey $state $key -}}
{{- fail (printf "config.state.%s: the chart sets it; use the value %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.state.enabled (eq .Values.mode "standalone") -}}
{{- fail "state.enabled: only for gateways; a standalone always saves its objects" -}}
{{- end -}}
{{- if and .Values.state.keySecret (not .Values.state.enabled) -}}
{{- fail "state.keySecret: has no effect, because state.enabled is false" -}}
{{- end -}}
{{- if and (include "kubeweir.stateStays" .) (eq (include "kubeweir.kind" .) "Deployment") -}}
{{- if or .Values.autoscaling.enabled (gt (include "kubeweir.replicas" . | int) 1) -}}
{{- fail "state.volume: only one pod can use the volume; set replicas: 1, or use an emptyDir" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.checkStandalone" -}}
{{- $etcd := .Values.standalone.etcd -}}
{{- if and (not $etcd.servers) (gt (include "kubeweir.replicas" . | int) 1) -}}
{{- fail "replicas: a standalone with its own store is a single process; set standalone.etcd.servers for several" -}}
{{- end -}}
{{- if and $etcd.existingSecret (not $etcd.servers) -}}
{{- fail "standalone.etcd.existingSecret: has no effect without standalone.etcd.servers; set both" -}}
{{- end -}}
{{- with .Values.standalone.persistence -}}
{{- if and .existingClaim (not .enabled) -}}
{{- fail "standalone.persistence.existingClaim: has no effect, because standalone.persistence.enabled is false" -}}
{{- end -}}
{{- end -}}
{{- if or .Values.upstream.existingSecret .Values.upstream.context -}}
{{- fail "upstream: a standalone has none; set mode: gateway" -}}
{{- end -}}
{{- end -}}
