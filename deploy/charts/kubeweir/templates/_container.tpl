{{/* The container. */}}
{{- define "kubeweir.container" -}}
name: kubeweir
image: {{ include "kubeweir.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  {{- include (printf "kubeweir.%sArgs" .Values.mode) . | trim | nindent 2 }}
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "kubeweir.env" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: https
    containerPort: {{ include "kubeweir.httpsPort" . }}
    {{- with .Values.hostPort }}
    hostPort: {{ . }}
    {{- end }}
    protocol: TCP
  - name: metrics
    containerPort: {{ include "kubeweir.metricsPort" . }}
    protocol: TCP
{{- include "kubeweir.probes" . }}
terminationMessagePolicy: FallbackToLogsOnError
{{- if .Values.preStopSleepSeconds }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .Values.preStopSleepSeconds }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "kubeweir.volumeMounts" . | trim | nindent 2 }}
{{- end -}}

{{- define "kubeweir.probes" -}}
{{- $live := "/livez" }}
{{- if .Values.standalone.etcd.servers }}{{ $live = "/livez?exclude=store" }}{{ end }}
{{- $ready := ternary "/readyz?exclude=feeds" "/readyz" (eq .Values.mode "gateway") }}
{{- range $probe, $path := dict "startupProbe" $live "livenessProbe" $live "readinessProbe" $ready }}
{{- with index $.Values $probe }}
{{- $usual := or (hasKey . "httpGet") (hasKey . "tcpSocket") (hasKey . "exec") (hasKey . "grpc") | ternary (dict) (dict "httpGet" (dict "path" $path "port" "metrics")) }}
{{ $probe }}:
  {{- toYaml (merge (dict) . $usual) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Arguments of both modes. */}}
{{- define "kubeweir.commonArgs" -}}
- --listen=:{{ include "kubeweir.httpsPort" . }}
- --admin-listen=:{{ include "kubeweir.metricsPort" . }}
- --tls-cert-file={{ include "kubeweir.etc" . }}/tls/tls.crt
- --tls-private-key-file={{ include "kubeweir.etc" . }}/tls/tls.key
{{- with .Values.tls.minVersion }}
- --tls-min-version={{ . }}
{{- end }}
{{- with .Values.tls.cipherSuites }}
- --tls-cipher-suites={{ join "," . }}
{{- end }}
{{- if include "kubeweir.clientCertificates" . }}
- --client-ca-file={{ include "kubeweir.etc" . }}/client-ca/ca.crt
{{- end }}
{{- if include "kubeweir.configMap" . }}
- --config={{ include "kubeweir.etc" . }}/config/config.yaml
{{- end }}
{{- end -}}

{{- define "kubeweir.gatewayArgs" -}}
- gateway
{{ include "kubeweir.commonArgs" . }}
{{- if and .Values.upstream.existingSecret (not (default (dict) .Values.config).clusters) }}
- --kubeconfig={{ include "kubeweir.etc" . }}/upstream/kubeconfig
{{- with .Values.upstream.context }}
- {{ printf "--context=%s" . | toYaml }}
{{- end }}
{{- end }}
{{- if .Values.state.enabled }}
- --state-dir={{ include "kubeweir.data" . }}/state
{{- if .Values.state.keySecret }}
- --state-key-file={{ include "kubeweir.etc" . }}/state-key/key
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubeweir.standaloneArgs" -}}
{{- $etcd := .Values.standalone.etcd -}}
- standalone
{{ include "kubeweir.commonArgs" . }}
- --data-dir={{ include "kubeweir.data" . }}
- --advertise-address=$(POD_IP)
{{- if include "kubeweir.tokenSecret" . }}
- --token-auth-file={{ include "kubeweir.etc" . }}/tokens/tokens.csv
{{- end }}
{{- if $etcd.servers }}
- {{ printf "--etcd-servers=%s" (join "," $etcd.servers) | toYaml }}
- {{ printf "--etcd-prefix=%s" $etcd.prefix | toYaml }}
{{- if $etcd.existingSecret }}
- --etcd-cafile={{ include "kubeweir.etc" . }}/etcd/ca.crt
- --etcd-certfile={{ include "kubeweir.etc" . }}/etcd/tls.crt
- --etcd-keyfile={{ include "kubeweir.etc" . }}/etcd/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{- define "kubeweir.env" -}}
{{- if eq .Values.mode "standalone" }}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- end }}
{{- with include "kubeweir.memoryLimit" . }}
- name: GOMEMLIMIT
  value: {{ . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Nine tenths of the memory limit, in bytes; "" without a limit, or if extraEnv sets GOMEMLIMIT. */}}
{{- define "kubeweir.memoryLimit" -}}
{{- $given := false -}}
{{- range .Values.extraEnv }}{{ if eq .name "GOMEMLIMIT" }}{{ $given = true }}{{ end }}{{ end -}}
{{- $resources := default (dict) .Values.resources -}}
{{- $limits := default (dict) $resources.limits -}}
{{- $limit := default "" $limits.memory -}}
{{- /* Helm may format a number as 2e+09. */}}
{{- $limit = kindIs "float64" $limit | ternary (printf "%.0f" (float64 $limit)) (toString $limit) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $limit -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := trimPrefix $number $limit -}}
{{- if and $number (hasKey $units $unit) (not $given) -}}
{{- mulf (float64 $number) (index $units $unit) 0.9 | printf "%.0f" -}}
{{- end -}}
{{- end -}}

{{- define "kubeweir.volumeMounts" -}}
{{- $etc := include "kubeweir.etc" . -}}
{{- if include "kubeweir.configMap" . }}
- {name: config, mountPath: {{ $etc }}/config, readOnly: true}
{{- end }}
- {name: tls, mountPath: {{ $etc }}/tls, readOnly: true}
{{- if include "kubeweir.clientCertificates" . }}
- {name: client-ca, mountPath: {{ $etc }}/client-ca, readOnly: true}
{{- end }}
{{- if .Values.upstream.existingSecret }}
- {name: upstream, mountPath: {{ $etc }}/upstream, readOnly: true}
{{- end }}
{{- if .Values.state.enabled }}
- {name: state, mountPath: {{ include "kubeweir.data" . }}}
{{- if .Values.state.keySecret }}
- {name: state-key, mountPath: {{ $etc }}/state-key, readOnly: true}
{{- end }}
{{- end }}
{{- if eq .Values.mode "standalone" }}
{{- include "kubeweir.standaloneVolumeMounts" . }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The data folder. Its pki is a folder in memory with the files that must be permanent and the same in all pods (the CAs and the key
of service accounts, from a Secret). Each start creates the certificates of these CAs there.
*/}}
{{- define "kubeweir.standaloneVolumeMounts" -}}
{{- $etc := include "kubeweir.etc" . }}
{{- $data := include "kubeweir.data" . }}
{{- if include "kubeweir.tokenSecret" . }}
- {name: tokens, mountPath: {{ $etc }}/tokens, readOnly: true}
{{- end }}
{{- if .Values.standalone.etcd.existingSecret }}
- {name: etcd, mountPath: {{ $etc }}/etcd, readOnly: true}
{{- end }}
- {name: data, mountPath: {{ $data }}}
- {name: pki-made, mountPath: {{ $data }}/pki}
{{- range list "ca.crt" "ca.key" "front-proxy-ca.crt" "front-proxy-ca.key" "sa.key" }}
- {name: pki, mountPath: {{ $data }}/pki/{{ . }}, subPath: {{ . }}, readOnly: true}
{{- end }}
{{- end -}}
