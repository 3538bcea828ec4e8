{{- define "frostline.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "frostline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "frostline.labels" -}}
{{ include "frostline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "frostline.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "frostline.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "frostline.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "frostline.tokenSecret" -}}
{{- .Values.token.secret | default (printf "%s-token" (include "frostline.fullname" .)) -}}
{{- end -}}

{{- define "frostline.tlsSecret" -}}
{{- if .Values.tls.secret -}}
{{- .Values.tls.secret -}}
{{- else if .Values.tls.issuerRef -}}
{{- include "frostline.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* Rejects values with which hosts cannot start. */}}
{{- define "frostline.check" -}}
{{- $sources := 0 -}}
{{- range list .Values.tls.secret .Values.tls.issuerRef .Values.tls.plainHttp -}}
{{- if . -}}{{- $sources = add1 $sources -}}{{- end -}}
{{- end -}}
{{- if ne (int $sources) 1 -}}
{{- fail "set exactly one of tls.secret, tls.issuerRef and tls.plainHttp" -}}
{{- end -}}
{{- if and .Values.admin.enabled .Values.tls.plainHttp -}}
{{- fail "admin.enabled needs TLS; set tls.secret or tls.issuerRef, or use kubectl exec instead" -}}
{{- end -}}
{{- if and .Values.admin.enabled (not .Values.admin.secret) -}}
{{- fail "admin.enabled needs admin.secret, a Secret with the key `token`" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (eq .Values.kind "DaemonSet") -}}
{{- fail "autoscaling.enabled needs kind: StatefulSet; a DaemonSet runs one host per node" -}}
{{- end -}}
{{- if and .Values.local.persistent (eq .Values.kind "DaemonSet") -}}
{{- fail "local.persistent needs kind: StatefulSet; hosts of a DaemonSet use an emptyDir" -}}
{{- end -}}
{{- range $key := list "listen" "name" "admin_listen" "metrics_listen" "local" "token_file" "admin_token_file" "admin_socket" "tls" -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s is set by the chart; use ports, token, admin or tls instead" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Renders a map as TOML. Helm reads all numbers as floats, so integral values are written as integers. */}}
{{- define "frostline.toml" -}}
{{- range $key, $value := .map }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "frostline.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .map }}
{{- if kindIs "map" $value }}

[{{ $.path }}{{ $key }}]
{{- include "frostline.toml" (dict "map" $value "path" (printf "%s%s." $.path $key)) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "frostline.tomlValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else if kindIs "slice" . -}}
[{{- range $index, $item := . }}{{ if $index }}, {{ end }}{{ include "frostline.tomlValue" $item }}{{ end -}}]
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}
