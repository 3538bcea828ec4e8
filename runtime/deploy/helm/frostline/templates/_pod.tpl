{{/* Pod template for both kinds. */}}
{{- define "frostline.pod" -}}
metadata:
  labels:
    {{- include "frostline.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # Replaces the pods when the configuration changes. Hosts reload certificates without a restart.
    checksum/config: {{ include (print $.Template.BasePath "/config.yaml") . | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "frostline.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Time to finish running work, and 30 s to close connections, stop lanes and write the audit log.
  terminationGracePeriodSeconds: {{ add (int64 .Values.config.drain) 30 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.gpu }}
  {{- if and .enabled .runtimeClassName }}
  runtimeClassName: {{ .runtimeClassName }}
  {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: host
      image: {{ include "frostline.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- if eq .Values.kind "StatefulSet" }}
      args: [serve, --config, /etc/frostline/host.toml, --json]
      {{- else }}
      # In a StatefulSet, the stable pod name identifies the host. In a DaemonSet, the node name is used.
      args: [serve, --config, /etc/frostline/host.toml, --json, --name, $(NODE_NAME)]
      {{- end }}
      {{- with .Values.store.secret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      {{- if or .Values.store.env .Values.extraEnv (eq .Values.kind "DaemonSet") }}
      env:
        {{- if eq .Values.kind "DaemonSet" }}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        {{- end }}
        {{- range $name, $value := .Values.store.env }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
        {{- with .Values.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      ports:
        - {name: tenants, containerPort: {{ .Values.ports.tenants }}}
        - {name: metrics, containerPort: {{ .Values.ports.metrics }}}
        {{- if .Values.admin.enabled }}
        - {name: admin, containerPort: {{ .Values.ports.admin }}}
        {{- end }}
      # The metrics port is used because the limit of connections on the tenants' port does not affect it. A host may need up to five minutes to
      # read the state and check the store before it is ready.
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- $resources := deepCopy .Values.resources }}
      {{- if .Values.gpu.enabled }}
      {{- $limits := merge (dict .Values.gpu.resource (toString .Values.gpu.count)) ($resources.limits | default dict) }}
      {{- $_ := set $resources "limits" $limits }}
      {{- end }}
      resources: {{- toYaml $resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/frostline/host.toml, subPath: host.toml, readOnly: true}
        - {name: token, mountPath: /etc/frostline/token, readOnly: true}
        {{- if not .Values.tls.plainHttp }}
        - {name: tls, mountPath: /etc/frostline/tls, readOnly: true}
        {{- end }}
        {{- if .Values.admin.enabled }}
        - {name: admin, mountPath: /etc/frostline/admin, readOnly: true}
        {{- end }}
        - {name: local, mountPath: /var/lib/frostline}
        {{- range .Values.dataVolumes }}
        - {name: {{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "frostline.fullname" . }}}
    - name: token
      secret: {secretName: {{ include "frostline.tokenSecret" . }}, defaultMode: 0440}
    {{- if not .Values.tls.plainHttp }}
    - name: tls
      secret: {secretName: {{ include "frostline.tlsSecret" . }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.admin.enabled }}
    - name: admin
      secret: {secretName: {{ .Values.admin.secret }}, defaultMode: 0440}
    {{- end }}
    {{- if not .Values.local.persistent }}
    - name: local
      emptyDir: {sizeLimit: {{ .Values.local.size }}}
    {{- end }}
    {{- range .Values.dataVolumes }}
    - {{- omit . "mountPath" | toYaml | nindent 6 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints: {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if eq .Values.kind "StatefulSet" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "frostline.selector" . | nindent 10 }}
  {{- end }}
{{- end -}}
