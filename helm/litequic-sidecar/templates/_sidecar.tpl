{{- /*
What an application's chart includes; README.md shows where. Each takes the application's context.
*/ -}}

{{- define "litequic-sidecar.scope" -}}
{{- $values := index .Values "litequic-sidecar" | required "litequic-sidecar: Chart.yaml must have it among its dependencies, by this name" -}}
{{- $chart := index .Subcharts "litequic-sidecar" -}}
{{- $labels := printf "app.kubernetes.io/name: litequic-sidecar\napp.kubernetes.io/instance: %s\napp.kubernetes.io/managed-by: %s" .Release.Name .Release.Service -}}
{{- with $values.commonLabels -}}{{- $labels = printf "%s\n%s" $labels (toYaml .) -}}{{- end -}}
{{- dict "values" $values "name" (include "litequic-sidecar.name" .) "appVersion" $chart.Chart.AppVersion "labels" $labels "advertisedPort" $values.advertisedPort "preStop" true | mustToJson -}}
{{- end -}}

{{- define "litequic-sidecar.name" -}}
{{- printf "%s-litequic" (.Release.Name | trunc 50 | trimSuffix "-") -}}
{{- end -}}

{{- /* Whole manifests: the ConfigMap, cert-manager's Certificates, the Job of `check`, and what is asked for of `metrics`. */ -}}
{{- define "litequic-sidecar.manifests" -}}
{{- $scope := include "litequic-sidecar.scope" . | fromJson -}}
{{- $monitor := $scope.values.metrics.podMonitor -}}
{{- if and $monitor.enabled (not $monitor.selector) -}}
{{- fail "litequic-sidecar.metrics.podMonitor.selector: missing; expected the labels of the application's pods" -}}
{{- end -}}
{{- $files := (index .Subcharts "litequic-sidecar").Files -}}
{{- include "litequic.manifests" $scope -}}
{{- include "litequic.monitoring" (dict "scope" $scope "namespace" .Release.Namespace "selector" (toYaml $monitor.selector) "files" $files) -}}
{{- end -}}

{{- /* One of the pod's initContainers. The kubelet starts it before the application, and ends it after. */ -}}
{{- define "litequic-sidecar.container" -}}
-
  {{- include "litequic.container" (include "litequic-sidecar.scope" . | fromJson) | nindent 2 }}
  restartPolicy: Always
{{- end -}}

{{- /* Some of the pod's volumes. */ -}}
{{- define "litequic-sidecar.volumes" -}}
{{- include "litequic.volumes" (include "litequic-sidecar.scope" . | fromJson) -}}
{{- end -}}

{{- /* Ports of the application's Service. */ -}}
{{- define "litequic-sidecar.servicePorts" -}}
{{- $values := (include "litequic-sidecar.scope" . | fromJson).values -}}
{{- include "litequic.servicePorts" (dict "values" $values "protocols" (list "UDP" "TCP") "port" $values.servicePort) | trim -}}
{{- end -}}

{{- /* Annotations of the pod: one that changes with what takes a restart. */ -}}
{{- define "litequic-sidecar.annotations" -}}
litequic/restart: {{ include "litequic.restartChecksum" (include "litequic-sidecar.scope" . | fromJson) }}
{{- end -}}

{{- /* The application's container's lifecycle: it goes on while litequic drains. Kubernetes 1.30 and later. */ -}}
{{- define "litequic-sidecar.originLifecycle" -}}
preStop:
  sleep: {seconds: {{ (include "litequic-sidecar.scope" . | fromJson).values.drain.originSeconds }}}
{{- end -}}

{{- /* The pod's: for the longer of the drain and the application's wait, and then the application's end. */ -}}
{{- define "litequic-sidecar.terminationGracePeriodSeconds" -}}
{{- $drain := (include "litequic-sidecar.scope" . | fromJson).values.drain -}}
{{- add (max (add $drain.graceSeconds $drain.seconds) $drain.originSeconds) $drain.originStopSeconds -}}
{{- end -}}
