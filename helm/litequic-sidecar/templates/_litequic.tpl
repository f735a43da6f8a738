{{- /*
What a pod with litequic has, edge proxy or sidecar: the edge chart has a link to this folder.

Most take a scope: root (the chart's own context), values (those documented in values.yaml), name (of the ConfigMap) and
preStop (whether SIGTERM comes too late: it reaches a sidecar after the application has ended).
*/ -}}

{{- /* A value of YAML as TOML has it. Helm's numbers are floats; a JSON string is one of TOML's. */ -}}
{{- define "litequic.toml.value" -}}
{{- if kindIs "string" . -}}{{ mustToRawJson . }}
{{- else if kindIs "bool" . -}}{{ . }}
{{- else if kindIs "slice" . -}}
[{{ range $index, $value := . }}{{ if $index }}, {{ end }}{{ include "litequic.toml.value" $value }}{{ end }}]
{{- else if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ include "litequic.toml.key" $key }} = {{ include "litequic.toml.value" (get $ $key) }}{{ end }} }
{{- else if eq (float64 .) (floor .) -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{- define "litequic.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ mustToRawJson . }}{{ end -}}
{{- end -}}

{{- /* Whether a list has tables alone. */ -}}
{{- define "litequic.toml.tables" -}}
{{- $tables := not (empty .) -}}
{{- range . -}}{{- if not (kindIs "map" .) -}}{{- $tables = false -}}{{- end -}}{{- end -}}
{{ $tables }}
{{- end -}}

{{- /* table as TOML, at path: its own keys, then its tables, then its lists of tables. */ -}}
{{- define "litequic.toml" -}}
{{- $path := .path -}}
{{- $tables := list -}}
{{- $lists := list -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}{{- $tables = append $tables $key -}}
{{- else if and (kindIs "slice" $value) (eq (include "litequic.toml.tables" $value) "true") -}}{{- $lists = append $lists $key -}}
{{- else }}
{{ include "litequic.toml.key" $key }} = {{ include "litequic.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- range $key := $tables -}}
{{- $inner := printf "%s%s" $path (include "litequic.toml.key" $key) }}

[{{ $inner }}]
{{- include "litequic.toml" (dict "path" (printf "%s." $inner) "table" (index $.table $key)) }}
{{- end -}}
{{- range $key := $lists -}}
{{- $inner := printf "%s%s" $path (include "litequic.toml.key" $key) }}
{{- range $item := index $.table $key }}

[[{{ $inner }}]]
{{- include "litequic.toml" (dict "path" (printf "%s." $inner) "table" $item) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The whole configuration: the user's, and what follows from the other values. */ -}}
{{- define "litequic.config" -}}
{{- $values := .values -}}
{{- $config := deepCopy $values.config -}}
{{- $any := $values.listenAddress -}}
{{- $listen := $config.listen | default dict -}}
{{- $_ := set $listen "udp" (list (printf "%s:%v" $any $values.ports.https)) -}}
{{- $_ := set $listen "tcp" (list (printf "%s:%v" $any $values.ports.https)) -}}
{{- $_ := set $listen "advertised_port" .advertisedPort -}}
{{- if $values.redirect -}}
{{- $_ := set $listen "redirect" (list (printf "%s:%v" $any $values.ports.redirect)) -}}
{{- end -}}
{{- if $values.secret.existingSecret -}}
{{- if $listen.secret_file -}}{{- fail "config.listen.secret_file: secret.existingSecret sets it" -}}{{- end -}}
{{- $_ := set $listen "secret_file" "/etc/litequic/secret/secret" -}}
{{- end -}}
{{- $_ := set $config "listen" $listen -}}
{{- $certificates := list -}}
{{- range $values.certificates -}}
{{- $file := printf "/etc/litequic/tls/%s" .secretName -}}
{{- $certificates = append $certificates (dict "cert" (printf "%s.crt" $file) "key" (printf "%s.key" $file)) -}}
{{- end -}}
{{- if $certificates -}}{{- $_ := set $config "certificates" $certificates -}}{{- end -}}
{{- $timeouts := $config.timeouts | default dict -}}
{{- $_ := set $timeouts "drain_grace" (printf "%vs" $values.drain.graceSeconds) -}}
{{- $_ := set $timeouts "drain" (printf "%vs" $values.drain.seconds) -}}
{{- $_ := set $config "timeouts" $timeouts -}}
{{- $admin := $config.admin | default dict -}}
{{- $_ := set $admin "listen" (printf "127.0.0.1:%v" $values.ports.admin) -}}
{{- $_ := set $admin "probes" (printf "%s:%v" $any $values.ports.probes) -}}
{{- $_ := set $config "admin" $admin -}}
{{- $toml := include "litequic.toml" (dict "path" "" "table" $config) | trim -}}
{{- include "litequic.refuse" (dict "values" $values "toml" $toml) -}}
{{- $toml -}}
{{- end -}}

{{- /* What changes when a running litequic cannot take a change on: docs/configuration.md says so of these keys. */ -}}
{{- define "litequic.restartChecksum" -}}
{{- $config := .values.config -}}
{{- $log := $config.log | default dict -}}
{{- $listen := omit ($config.listen | default dict) "proxy_protocol_from" -}}
{{- /* Of a server ID a reload follows all but the lengths; the ID is a variable that each pod has another value of. */ -}}
{{- $serverId := $listen.server_id | default dict | mustToJson -}}
{{- $listen = merge (dict "server_id" (regexReplaceAll " +rotation=[0-6]" $serverId "")) (omit $listen "server_id") -}}
{{- $admin := omit ($config.admin | default dict) "ready_needs_origin" -}}
{{- $kept := dict "listen" $listen "litequic" $config.litequic "admin" $admin "format" $log.format -}}
{{- list $kept .values.secret .values.listenAddress .values.ports .values.redirect .advertisedPort | mustToJson | sha256sum -}}
{{- end -}}

{{- define "litequic.image" -}}
{{- $image := .values.image -}}
{{- $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .appVersion }}{{ end -}}
{{- end -}}

{{- define "litequic.container" -}}
{{- $values := .values -}}
{{- $redirectHostPort := and $values.redirect $values.hostPort $values.redirectHostPort -}}
{{- if and $redirectHostPort (eq (int $redirectHostPort) (int $values.hostPort)) -}}
{{- fail "redirectHostPort: is hostPort already, where https is" -}}
{{- end -}}
name: litequic
image: {{ include "litequic.image" . | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: [run, --config, /etc/litequic/config/litequic.toml]
env:
  {{- include "litequic.env" . | trim | nindent 2 }}
{{- with $values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: h3, containerPort: {{ $values.ports.https }}, protocol: UDP{{ with $values.hostPort }}, hostPort: {{ . }}{{ end }}}
  - {name: https, containerPort: {{ $values.ports.https }}, protocol: TCP{{ with $values.hostPort }}, hostPort: {{ . }}{{ end }}}
  {{- if $values.redirect }}
  - {name: redirect, containerPort: {{ $values.ports.redirect }}, protocol: TCP{{ with $redirectHostPort }}, hostPort: {{ . }}{{ end }}}
  {{- end }}
  - {name: probes, containerPort: {{ $values.ports.probes }}, protocol: TCP}
# Whether litequic itself runs; never about an origin, which no restart of the proxy would mend.
{{- if $values.startupProbe.enabled }}
startupProbe:
  httpGet: {path: /healthz, port: probes}
  {{- omit $values.startupProbe "enabled" | toYaml | nindent 2 }}
{{- end }}
{{- if $values.livenessProbe.enabled }}
livenessProbe:
  httpGet: {path: /healthz, port: probes}
  {{- omit $values.livenessProbe "enabled" | toYaml | nindent 2 }}
{{- end }}
# /readyz fails in a drain. The probe must not, before the drain is over: once a pod is unready, kube-proxy sends the packets
# of its QUIC connections to other pods. A pod's end is announced by its deletion.
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  failureThreshold: {{ $values.readinessProbe.failureThreshold | default (include "litequic.readinessThreshold" . | int) }}
  {{- omit $values.readinessProbe "failureThreshold" | toYaml | nindent 2 }}
{{- $lifecycle := dict }}
{{- if .preStop }}
{{- $address := printf "127.0.0.1:%v" $values.ports.admin }}
{{- $lifecycle = dict "preStop" (dict "exec" (dict "command" (list "/usr/local/bin/litequic" "ctl" "drain" "--admin" $address))) }}
{{- end }}
{{- range $key, $value := $values.lifecycle }}{{- $_ := set $lifecycle $key $value }}{{- end }}
{{- with $lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
volumeMounts:
  {{- include "litequic.volumeMounts" . | nindent 2 }}
{{- end -}}

{{- /*
The container's environment: values' own, and where `litequic ctl` finds the running litequic, with its token. What `config`
has as ${NAME} is $(NAME) here; a variable comes after those that it names.
*/ -}}
{{- define "litequic.env" -}}
{{- $values := .values -}}
{{- $has := dict -}}
{{- range $values.env -}}{{- $_ := set $has .name true -}}{{- end -}}
{{- $admin := $values.config.admin | default dict -}}
{{- $ours := list (dict "name" "LITEQUIC_ADMIN" "value" (printf "127.0.0.1:%v" $values.ports.admin)) -}}
{{- if not $values.configMap -}}
{{- /* A variable of envFrom is not expanded in a value. */ -}}
{{- with and (not (and $values.envFrom (contains "${" ($admin.token_file | default "")))) $admin.token_file -}}
{{- $file := regexReplaceAll "\\$\\{([A-Za-z0-9_]+)\\}" . "$(${1})" -}}
{{- $ours = append $ours (dict "name" "LITEQUIC_ADMIN_TOKEN_FILE" "value" $file) -}}
{{- end -}}
{{- end -}}
{{- range $values.env }}
-
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $values.podIP (not (hasKey $has "POD_IP")) }}
{{ include "litequic.podIP" . }}
{{- end }}
{{- range $ours }}
{{- if not (hasKey $has .name) }}
- {name: {{ .name }}, value: {{ .value | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The pod's address, for `${POD_IP}`. */ -}}
{{- define "litequic.podIP" -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end -}}

{{- /* Names of Secrets, each as it is or as a Pod has it, {name: NAME}: a pod's value. */ -}}
{{- define "litequic.imagePullSecrets" -}}
{{- range . }}
- name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end -}}

{{- /* The claim of the volume for ACME; empty without one. */ -}}
{{- define "litequic.acmeClaim" -}}
{{- $acme := .values.acmeVolume -}}
{{- $acme.existingClaim | default (ternary (printf "%s-acme" .name) "" $acme.enabled) -}}
{{- end -}}

{{- define "litequic.volumeMounts" -}}
# Directories, no single files (subPath): litequic notices when Kubernetes swaps what is in them.
- {name: litequic-config, mountPath: /etc/litequic/config, readOnly: true}
{{- if .values.certificates }}
- {name: litequic-tls, mountPath: /etc/litequic/tls, readOnly: true}
{{- end }}
{{- if include "litequic.acmeClaim" . }}
- {name: litequic-acme, mountPath: /var/lib/litequic}
{{- end }}
{{- if .values.secret.existingSecret }}
- {name: litequic-secret, mountPath: /etc/litequic/secret, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "litequic.readinessThreshold" -}}
{{- $drain := add .values.drain.graceSeconds .values.drain.seconds -}}
{{- add 2 (div $drain .values.readinessProbe.periodSeconds) -}}
{{- end -}}

{{- define "litequic.volumes" -}}
- name: litequic-config
  configMap: {name: {{ .values.configMap | default .name }}}
{{- if .values.certificates }}
- name: litequic-tls
  projected:
    # The volume is in this container alone, whose user is not root.
    defaultMode: 0444
    sources:
      {{- range .values.certificates }}
      - secret:
          name: {{ .secretName }}
          items:
            - {key: tls.crt, path: {{ .secretName }}.crt}
            - {key: tls.key, path: {{ .secretName }}.key}
      {{- end }}
{{- end }}
{{- with include "litequic.acmeClaim" . }}
- name: litequic-acme
  {{- if $.check }}
  # `check` looks whether the folder can be written; what is stored is the pods'.
  emptyDir: {}
  {{- else }}
  persistentVolumeClaim: {claimName: {{ . }}}
  {{- end }}
{{- end }}
{{- with .values.secret.existingSecret }}
- name: litequic-secret
  secret:
    secretName: {{ . }}
    # As of the certificates above. litequic warns of the mode.
    defaultMode: 0444
    items:
      - {key: {{ $.values.secret.key }}, path: secret}
{{- end }}
{{- end -}}

{{- /* The ConfigMap, cert-manager's Certificates, the claim for ACME, and the Job of `check`. Also takes labels, as YAML. */ -}}
{{- define "litequic.manifests" -}}
{{- $scope := . -}}
{{- if not .values.configMap -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  labels:
    {{- .labels | nindent 4 }}
data:
  litequic.toml: |
    {{- include "litequic.config" . | nindent 4 }}
{{- end }}
{{- range .values.certificates }}
{{- $secretName := .secretName }}
{{- with .certManager }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $secretName }}
  labels:
    {{- $scope.labels | nindent 4 }}
spec:
  secretName: {{ $secretName }}
  dnsNames:
    {{- toYaml .dnsNames | nindent 4 }}
  issuerRef:
    {{- toYaml .issuerRef | nindent 4 }}
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  usages: [digital signature, server auth]
  {{- with .duration }}
  duration: {{ . }}
  {{- end }}
  {{- with .renewBefore }}
  renewBefore: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
{{- $acme := .values.acmeVolume }}
{{- if and $acme.enabled (not $acme.existingClaim) }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "litequic.acmeClaim" . }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    # It has the keys of certificates, and of the account at the CA.
    helm.sh/resource-policy: keep
spec:
  accessModes:
    {{- toYaml $acme.accessModes | nindent 4 }}
  {{- with $acme.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ $acme.size }}}
{{- end }}
{{- if .values.check.enabled }}
{{- include "litequic.check" . }}
{{- end }}
{{- end -}}

{{- /* A Service's ports. Also takes protocols (of UDP and TCP), port, and optionally nodePort and redirectPort. */ -}}
{{- define "litequic.servicePorts" -}}
{{- if has "UDP" .protocols }}
- {name: h3, port: {{ .port }}, targetPort: h3, protocol: UDP{{ with .nodePort }}, nodePort: {{ . }}{{ end }}}
{{- end }}
{{- if has "TCP" .protocols }}
- {name: https, port: {{ .port }}, targetPort: https, protocol: TCP, appProtocol: https{{ with .nodePort }}, nodePort: {{ . }}{{ end }}}
{{- if .values.redirect }}
- {name: redirect, port: {{ .redirectPort | default 80 }}, targetPort: redirect, protocol: TCP, appProtocol: http}
{{- end }}
{{- end }}
{{- end -}}
