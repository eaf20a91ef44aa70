{{/*
The rules of the gateway's ClusterRole, as YAML: those of `kubeweir rbac` for the same configuration (package config/rbac explains
each). files/resources.yaml lists the built-in resources by API group.
*/}}
{{- define "kubeweir.rules" -}}
{{- $cached := include "kubeweir.cachedResources" . | fromYaml -}}
{{- $read := list "get" "list" "watch" -}}
{{- $followed := include "kubeweir.followed" . | fromYamlArray -}}
{{- $own := dict -}}
{{- range $followed }}{{ $_ := set $own .group .resources }}{{ end -}}
{{- $rules := list -}}
{{- if hasKey $cached "*" -}}
{{- $rules = list (dict "apiGroups" (list "*") "resources" (list "*") "verbs" $read) -}}
{{- else -}}
{{- range $group := keys $cached | sortAlpha -}}
{{- $names := get $cached $group -}}
{{- if has "*" $names -}}
{{- $names = list "*" -}}
{{- else -}}
{{- range default list (get $own $group) }}{{ $names = without $names . }}{{ end -}}
{{- end -}}
{{- if $names -}}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" ($names | uniq | sortAlpha) "verbs" $read) -}}
{{- end -}}
{{- end -}}
{{- range $followed -}}
{{- $names := default list (get $cached .group) -}}
{{- if not (has "*" $names) -}}
{{- $served := list -}}
{{- $others := list -}}
{{- range .resources }}{{ if has . $names }}{{ $served = append $served . }}{{ else }}{{ $others = append $others . }}{{ end }}{{ end -}}
{{- if $served }}{{ $rules = append $rules (dict "apiGroups" (list .group) "resources" $served "verbs" $read) }}{{ end -}}
{{- if $others }}{{ $rules = append $rules (dict "apiGroups" (list .group) "resources" $others "verbs" (list "list" "watch")) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $rules = append $rules (dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create")) -}}
{{- $rules = append $rules (dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create")) -}}
{{- concat $rules (include "kubeweir.impersonation" . | fromYamlArray) (default list .Values.rbac.extraRules) | toYaml -}}
{{- end -}}

{{/* "true" if the chart grants the gateway its permissions: in this cluster, not in another one. */}}
{{- define "kubeweir.rbac" -}}
{{- if and .Values.rbac.create (include "kubeweir.inCluster" .) }}true{{ end -}}
{{- end -}}

{{/* Resources that the gateway lists and watches for itself. */}}
{{- define "kubeweir.followed" -}}
- {group: apiextensions.k8s.io, resources: [customresourcedefinitions]}
- {group: apiregistration.k8s.io, resources: [apiservices]}
- {group: rbac.authorization.k8s.io, resources: [clusterrolebindings, clusterroles, rolebindings, roles]}
{{- end -}}

{{/* Cached resources: plural names by API group. */}}
{{- define "kubeweir.cachedResources" -}}
{{- $builtin := .Files.Get "files/resources.yaml" | fromYaml -}}
{{- $cached := dict -}}
{{- range .Values.rbac.resources -}}
{{- if eq . "default" -}}
{{- range $group, $names := $builtin }}{{ $_ := set $cached $group (concat (default list (get $cached $group)) $names) }}{{ end -}}
{{- else if eq . "*" -}}
{{- $_ := set $cached "*" (list "*") -}}
{{- else -}}
{{- $name := regexFind "^[^.]+" . -}}
{{- $group := trimPrefix $name . | trimPrefix "." -}}
{{- if and (hasKey $builtin $group) (not (has $name (concat (get $builtin $group) (list "*" (ternary "secrets" "*" (eq $group "")))))) -}}
{{- fail (printf "rbac.resources: %q: the %s has no such resource that can be watched; names are plural, with their group, such as pods, deployments.apps or certificates.cert-manager.io" . (ternary (printf "API group %s" $group) "core API group" (ne $group ""))) -}}
{{- end -}}
{{- $_ := set $cached $group (append (default list (get $cached $group)) $name) -}}
{{- end -}}
{{- end -}}
{{- range default list (default (dict) .Values.config).cacheAggregatedGroups }}{{ $_ := set $cached . (list "*") }}{{ end -}}
{{- toYaml $cached -}}
{{- end -}}

{{/*
How requests of clients without tokens are forwarded. Clusters before 1.36 do not support constrained impersonation, and `auto` never
grants more.
*/}}
{{- define "kubeweir.impersonation" -}}
{{- $authentication := default (dict) (default (dict) .Values.config).authentication -}}
{{- $proxies := default (dict) $authentication.requestHeader -}}
{{- if not (or (include "kubeweir.clientCertificates" .) $proxies.caFile) -}}
[]
{{- else -}}
{{- $attributes := ternary (list "*") (list "uids" "userextras/authentication.kubernetes.io/credential-id") (not (empty $proxies.caFile)) -}}
{{- $how := .Values.rbac.impersonation -}}
{{- if eq $how "auto" }}{{ $how = ternary "constrained" "none" (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}{{ end -}}
{{- if eq $how "constrained" -}}
{{- if not $proxies.caFile }}{{ $attributes = concat (list "groups" "users") $attributes }}{{ end -}}
- apiGroups: [authentication.k8s.io]
  resources: {{ toJson $attributes }}
  verbs: ["impersonate:user-info"]
- apiGroups: ["*"]
  resources: ["*"]
  verbs:
    {{- range list "get" "list" "watch" "create" "update" "patch" "delete" "deletecollection" }}
    - impersonate-on:user-info:{{ . }}
    {{- end }}
- nonResourceURLs: ["*"]
  verbs: ["impersonate-on:user-info:get"]
{{- else if eq $how "none" -}}
[]
{{- else -}}
- apiGroups: [""]
  resources: [groups, serviceaccounts, users]
  verbs: [impersonate]
- apiGroups: [authentication.k8s.io]
  resources: {{ toJson $attributes }}
  verbs: [impersonate]
{{- end -}}
{{- end -}}
{{- end -}}
