{{- /*
What Prometheus, its operator and Grafana read: a PodMonitor, a PrometheusRule, and ConfigMaps with the rules and the dashboard.

Takes scope (that of _litequic.tpl), namespace (the release's), selector (labels of the pods, as YAML) and files (the chart's).
*/ -}}
{{- define "litequic.monitoring" -}}
{{- $metrics := .scope.values.metrics -}}
{{- $name := .scope.name -}}
{{- $labels := .scope.labels -}}
{{- $monitor := $metrics.podMonitor -}}
{{- $rule := $metrics.prometheusRule -}}
{{- $file := $metrics.rules -}}
{{- $dashboard := $metrics.dashboard -}}
{{- if $monitor.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ $name }}
  {{- with $monitor.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
    {{- with $monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with $monitor.jobLabel }}
  jobLabel: {{ . }}
  {{- end }}
  {{- if $monitor.namespace }}
  namespaceSelector:
    matchNames: [{{ .namespace }}]
  {{- end }}
  selector:
    matchLabels:
      {{- .selector | nindent 6 }}
  podMetricsEndpoints:
    - port: probes
      {{- include "litequic.endpoint" $monitor | nindent 6 }}
{{- end }}
{{- if or $rule.enabled $file.enabled }}
{{- $disabled := $rule.disabled }}
{{- $groups := list }}
{{- range (.files.Get "files/rules.yaml" | fromYaml).groups }}
{{- $rules := list }}
{{- range .rules }}{{- if not (has .alert $disabled) }}{{- $rules = append $rules . }}{{- end }}{{- end }}
{{- if $rules }}{{- $groups = append $groups (dict "name" .name "rules" $rules) }}{{- end }}
{{- end }}
{{- with $rule.rules }}{{- $groups = append $groups (dict "name" $name "rules" .) }}{{- end }}
{{- if $rule.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $name }}
  {{- with $rule.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
    {{- with $rule.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    {{- toYaml $groups | nindent 4 }}
{{- end }}
{{- if $file.enabled }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-rules
  {{- with $file.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
    {{- with $file.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $file.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{ $name }}.yaml: |
    {{- dict "groups" $groups | toYaml | nindent 4 }}
{{- end }}
{{- end }}
{{- if $dashboard.enabled }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-dashboard
  {{- with $dashboard.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- $labels | nindent 4 }}
    {{- with $dashboard.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $dashboard.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{ $name }}.json: |
    {{- .files.Get "files/dashboard.json" | trim | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* What a ServiceMonitor's and a PodMonitor's endpoint share, of its values. */ -}}
{{- define "litequic.endpoint" -}}
path: /metrics
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
