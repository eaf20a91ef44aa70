{{/* The paths in the container. */}}
{{- define "kubeweir.etc" -}}/etc/kubeweir{{- end -}}
{{- define "kubeweir.data" -}}/var/lib/kubeweir{{- end -}}

{{/* The pod template. */}}
{{- define "kubeweir.pod" -}}
metadata:
  labels:
    {{- toYaml (merge (dict) (default (dict) .Values.podLabels) (include "kubeweir.labels" . | fromYaml)) | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: kubeweir
    {{- with include "kubeweir.restartConfig" . | fromYaml }}
    checksum/config: {{ toYaml . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "kubeweir.serviceAccountName" . | toYaml }}
  automountServiceAccountToken: {{ and .Values.serviceAccount.automount (not (empty (print (include "kubeweir.inCluster" .) (include "kubeweir.hubHere" .)))) }}
  {{- with concat (default list .Values.global.imagePullSecrets) (default list .Values.imagePullSecrets) | uniq }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . (dict)) "name") | toYaml }}
    {{- end }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  enableServiceLinks: false
  {{- include "kubeweir.scheduling" . | nindent 2 }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "kubeweir.container" . | indent 6 | trim }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "kubeweir.volumes" . | trim }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Scheduling and network of the pod. */}}
{{- define "kubeweir.scheduling" -}}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ toYaml . }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ toYaml . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .Values.topologySpreadConstraints (ne (include "kubeweir.kind" .) "DaemonSet") }}
topologySpreadConstraints:
  {{- range .Values.topologySpreadConstraints }}
  {{- $selector := default (dict "matchLabels" (include "kubeweir.selectorLabels" $ | fromYaml)) .labelSelector }}
  {{- $constraint := merge (dict "labelSelector" $selector) (omit . "labelSelector") (dict "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway") }}
  - {{ toYaml $constraint | indent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Volumes. Input is read-only, and only the required keys of Secrets are mounted. */}}
{{- define "kubeweir.volumes" -}}
{{- if include "kubeweir.configMap" . }}
- name: config
  configMap:
    name: {{ include "kubeweir.configMap" . | toYaml }}
{{- end }}
- name: tls
  secret:
    secretName: {{ include "kubeweir.tlsSecret" . | toYaml }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- with .Values.clientCA }}
{{- if or .fromCluster .existingConfigMap }}
- name: client-ca
  configMap:
    name: {{ default (printf "%s-client-ca" (include "kubeweir.fullname" $)) .existingConfigMap | toYaml }}
    items:
      - {key: {{ .key | quote }}, path: ca.crt}
{{- else if .existingSecret }}
- name: client-ca
  secret:
    secretName: {{ toYaml .existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ .key | quote }}, path: ca.crt}
{{- end }}
{{- end }}
{{- if .Values.upstream.existingSecret }}
- name: upstream
  secret:
    secretName: {{ toYaml .Values.upstream.existingSecret }}
    defaultMode: 0440
    {{- if not (default (dict) .Values.config).clusters }}
    items:
      - {key: {{ .Values.upstream.key | quote }}, path: kubeconfig}
    {{- end }}
{{- end }}
{{- with .Values.state }}
{{- if .enabled }}
- name: state
  {{- toYaml (default (dict "emptyDir" dict) .volume) | nindent 2 }}
{{- if .keySecret }}
- name: state-key
  secret:
    secretName: {{ toYaml .keySecret }}
    defaultMode: 0440
    items:
      - {key: {{ .key | quote }}, path: key}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.mode "standalone" }}
{{- include "kubeweir.standaloneVolumes" . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kubeweir.standaloneVolumes" -}}
{{- $standalone := .Values.standalone }}
- name: pki
  secret:
    secretName: {{ include "kubeweir.pkiSecret" . | toYaml }}
    defaultMode: 0440
- name: pki-made
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- with include "kubeweir.tokenSecret" . }}
- name: tokens
  secret:
    secretName: {{ toYaml . }}
    defaultMode: 0440
    items:
      - {key: tokens.csv, path: tokens.csv}
{{- end }}
{{- with $standalone.etcd.existingSecret }}
- name: etcd
  secret:
    secretName: {{ toYaml . }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- end }}
{{- if or $standalone.etcd.servers (not $standalone.persistence.enabled) }}
- name: data
  emptyDir: {}
{{- else if $standalone.persistence.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ toYaml $standalone.persistence.existingClaim }}
{{- end }}
{{- end -}}
