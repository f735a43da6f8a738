{{- /*
What `litequic check` refuses and values.schema.json cannot: what is wrong between keys. The messages are litequic's own.
Ranges of sizes and durations, names of fields and what stands in files are left to the Job below, which runs `litequic check`
itself.
*/ -}}

{{- /* Fails with the first fault of values, those documented in values.yaml. */ -}}
{{- define "litequic.refuse" -}}
{{- $values := .values -}}
{{- $config := $values.config -}}
{{- $origins := $config.origins | default dict -}}
{{- $names := keys $origins -}}
{{- if $config.origin -}}
{{- if hasKey $origins "origin" -}}{{- fail "config.origins.origin: is reserved for [origin]; expected another name" -}}{{- end -}}
{{- $names = append $names "origin" -}}
{{- end -}}
{{- range $name, $origin := $origins -}}
{{- include "litequic.refuse.twice" (dict "key" (printf "config.origins.%s.url" $name) "list" $origin.url) -}}
{{- end -}}
{{- with $config.origin -}}{{- include "litequic.refuse.twice" (dict "key" "config.origin.url" "list" .url) -}}{{- end -}}

{{- $clients := $config.client_certificates | default dict -}}
{{- if not (hasKey $clients "ca") -}}
{{- $asks := ne ($clients.verify | default "none") "none" -}}
{{- range $key, $useless := dict "verify" $asks "crl" (hasKey $clients "crl") "chain" ($clients.chain | default false) -}}
{{- if $useless -}}{{- fail (printf "config.client_certificates.%s: has no effect without client_certificates.ca; expected client_certificates.ca, the path of a PEM file" $key) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- $seen := dict -}}
{{- $called := dict -}}
{{- range $n, $route := $config.routes -}}
{{- $key := printf "config.routes[%d]" $n -}}
{{- $has := dict -}}
{{- range $name, $_ := $route -}}{{- $_ := set $has $name true -}}{{- end -}}
{{- if not (or $has.origin $has.redirect $has.respond) -}}{{- fail (printf "%s.origin: missing; expected the name of an origin, or redirect, or respond" $key) -}}{{- end -}}
{{- if $has.respond -}}
{{- range list "origin" "rewrite_host" "max_body_bytes" "request_headers" "timeouts" "intercept_errors" "upgrade" "redirect" "rewrite_prefix" -}}
{{- if hasKey $has . -}}{{- fail (printf "%s.%s: has no effect beside respond" $key .) -}}{{- end -}}
{{- end -}}
{{- else if $has.redirect -}}
{{- range list "origin" "rewrite_host" "max_body_bytes" "request_headers" "timeouts" "intercept_errors" "upgrade" -}}
{{- if hasKey $has . -}}{{- fail (printf "%s.%s: has no effect beside redirect" $key .) -}}{{- end -}}
{{- end -}}
{{- else if not (or (has $route.origin $names) (contains "${" $route.origin)) -}}
{{- fail (printf "%s.origin = %q: no origin has this name; expected one of %s" $key $route.origin (sortAlpha $names | join ", ")) -}}
{{- end -}}
{{- if and $has.path $has.path_prefix -}}{{- fail (printf "%s.path_prefix: has no effect beside path" $key) -}}{{- end -}}
{{- $path := hasKey $has "path" | ternary (printf "=%s" $route.path) (regexReplaceAll "/+$" ($route.path_prefix | default "/") "") -}}
{{- $place := printf "%s %s %s" ($route.host | default "" | lower | trimSuffix ".") $path ($route.match | default dict | toJson) -}}
{{- if hasKey $seen $place -}}{{- fail (printf "%s: another route has the same host and %s" $key (hasKey $has "match" | ternary "path, and the same conditions" (hasKey $has "path" | ternary "path" "prefix"))) -}}{{- end -}}
{{- $_ := set $seen $place true -}}
{{- if $has.name -}}
{{- if hasKey $called $route.name -}}{{- fail (printf "%s.name = %q: another route has this name" $key $route.name) -}}{{- end -}}
{{- $_ := set $called $route.name true -}}
{{- end -}}
{{- if and (ne ($route.client_certificate | default "none") "none") (not (hasKey $clients "ca")) -}}
{{- fail (printf "%s.client_certificate: has no effect without client_certificates.ca; expected client_certificates.ca, the path of a PEM file" $key) -}}
{{- end -}}
{{- if and $route.intercept_errors (not $config.error_pages) (not $route.error_pages) -}}
{{- fail (printf "%s.intercept_errors: has no effect without an error page; expected pages in [error_pages] or in error_pages of the route" $key) -}}
{{- end -}}
{{- include "litequic.refuse.twice" (dict "key" (printf "%s.upgrade" $key) "list" $route.upgrade) -}}
{{- range $headers := list "request_headers" "response_headers" -}}
{{- $rules := index $route $headers | default dict -}}
{{- $set := dict -}}
{{- range $name, $_ := $rules.set -}}{{- $_ := set $set (lower $name) true -}}{{- end -}}
{{- range (kindIs "string" $rules.remove | ternary (list $rules.remove) $rules.remove) -}}
{{- if hasKey $set (lower .) -}}{{- fail (printf "%s.%s.remove: %s is set as well" $key $headers .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if not (or $values.certificates $config.acme) -}}{{- fail "certificates: without one, and without config.acme" -}}{{- end -}}
{{- $acme := $values.acmeVolume -}}
{{- $hasVolume := or $acme.enabled $acme.existingClaim -}}
{{- range $n, $table := $config.acme -}}
{{- $folder := $table.folder | default "" -}}
{{- if not (or $values.extraVolumeMounts (contains "${" $folder)) -}}
{{- if not $hasVolume -}}{{- fail (printf "config.acme[%d].folder = %q: is in no volume; expected acmeVolume.enabled or acmeVolume.existingClaim" $n $folder) -}}{{- end -}}
{{- if not (hasPrefix "/var/lib/litequic/" $folder) -}}{{- fail (printf "config.acme[%d].folder = %q: is in no volume; expected a folder in /var/lib/litequic" $n $folder) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- include "litequic.refuse.twice" (dict "key" "config.access_log.fields" "list" ($config.access_log | default dict).fields) -}}

{{- $taken := dict -}}
{{- range $name, $port := $values.ports -}}
{{- if or (ne $name "redirect") $values.redirect -}}
{{- if hasKey $taken (toString $port) -}}{{- fail (printf "ports.%s: is ports.%s already" $name (get $taken (toString $port))) -}}{{- end -}}
{{- $_ := set $taken (toString $port) $name -}}
{{- end -}}
{{- end -}}

{{- $known := dict -}}
{{- range $values.env -}}{{- $_ := set $known .name true -}}{{- end -}}
{{- range $values.injectedEnv -}}
{{- if hasKey $known . -}}{{- fail (printf "injectedEnv: %s is in env too, and what is there is not injected" .) -}}{{- end -}}
{{- $_ := set $known . true -}}
{{- end -}}
{{- if $values.podIP -}}{{- $_ := set $known "POD_IP" true -}}{{- end -}}
{{- range regexFindAll "\\$\\{[^}\"]*\\}?" .toml -1 -}}
{{- $name := . | trimPrefix "${" | trimSuffix "}" -}}
{{- if not (hasSuffix "}" .) -}}{{- fail (printf "config: %s: `${` without `}`" .) -}}{{- end -}}
{{- if not (regexMatch "^[A-Za-z0-9_]+$" $name) -}}{{- fail (printf "config: `%s` is not the name of an environment variable" .) -}}{{- end -}}
{{- /* What a container has by itself; what envFrom brings is not known here. */ -}}
{{- if not (or $values.envFrom (hasKey $known $name) (regexMatch "^(HOSTNAME|HOME|PATH|KUBERNETES_.*)$" $name)) -}}
{{- fail (printf "config: environment variable %s is not set; expected it in env, or injectedEnv" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Fails where list, at key, has a value twice, with no regard to case. */ -}}
{{- define "litequic.refuse.twice" -}}
{{- if kindIs "slice" .list -}}
{{- $seen := dict -}}
{{- range $n, $value := .list -}}
{{- if hasKey $seen (lower (toString $value)) -}}{{- fail (printf "%s[%d] = %q: is listed twice" $.key $n (toString $value)) -}}{{- end -}}
{{- $_ := set $seen (lower (toString $value)) true -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
A Job that runs `litequic check` before an install, an upgrade or a rollback, which it refuses by failing: `helm rollback` also
goes back to a revision that was refused. A Secret that cert-manager has yet to write is not there before the first install.
*/ -}}
{{- define "litequic.check" -}}
{{- $values := .values -}}
{{- $hooks := "pre-install,pre-upgrade,pre-rollback" -}}
{{- range $values.certificates -}}{{- if .certManager -}}{{- $hooks = "pre-upgrade,pre-rollback" -}}{{- end -}}{{- end -}}
{{- $name := printf "%s-check" .name -}}
{{- if not $values.configMap }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $hooks }}
    helm.sh/hook-weight: "-1"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
data:
  litequic.toml: |
    {{- include "litequic.config" . | nindent 4 }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  labels:
    {{- .labels | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $hooks }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 0
  # Also that long for a Secret that is not there.
  activeDeadlineSeconds: {{ $values.check.seconds }}
  template:
    metadata:
      labels:
        app.kubernetes.io/component: check
        {{- with $values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with $values.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- include "litequic.imagePullSecrets" . | trim | nindent 8 }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: check
          image: {{ include "litequic.image" . | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: [check, --config, /etc/litequic/config/litequic.toml]
          # The faults, for `kubectl describe`.
          terminationMessagePolicy: FallbackToLogsOnError
          {{- /* Nothing is injected into a Job: an AWS server ID stands in, as 8 bytes in base64. */}}
          {{- $stand := list -}}
          {{- range $values.injectedEnv -}}{{- $stand = append $stand (dict "name" . "value" "AAAAAAAAAAA=") -}}{{- end -}}
          {{- if or $values.env $stand $values.podIP }}
          env:
            {{- with concat ($values.env | default list) $stand }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            {{- if $values.podIP }}
            {{- include "litequic.podIP" . | nindent 12 }}
            {{- end }}
          {{- end }}
          {{- with $values.envFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- toYaml $values.securityContext | nindent 12 }}
          resources:
            requests: {cpu: 10m, memory: 32Mi}
            limits: {memory: 64Mi}
          volumeMounts:
            {{- include "litequic.volumeMounts" . | nindent 12 }}
      volumes:
        {{- include "litequic.volumes" (merge (dict "name" $name "check" true) .) | nindent 8 }}
        {{- with concat ($values.extraVolumes | default list) ($values.check.extraVolumes | default list) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
