{{- define "edge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Short enough for the endings that other names have. */ -}}
{{- define "edge.fullname" -}}
{{- $name := include "edge.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "edge.selector" -}}
app.kubernetes.io/name: {{ include "edge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "edge.labels" -}}
{{ include "edge.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "edge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "edge.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- /* The scope of _litequic.tpl, as JSON. */ -}}
{{- define "edge.scope" -}}
{{- $service := .Values.service -}}
{{- $advertised := .Values.hostPort | default (ternary $service.nodePort $service.port (eq $service.type "NodePort")) -}}
{{- dict "values" .Values "name" (include "edge.fullname" .) "appVersion" .Chart.AppVersion "labels" (include "edge.labels" .) "advertisedPort" $advertised "preStop" false | mustToJson -}}
{{- end -}}

{{- define "edge.testHost" -}}
{{- $service := printf "%s.%s.svc" (include "edge.fullname" .) .Release.Namespace -}}
{{- $names := list $service -}}
{{- with .Values.certificates -}}{{- $names = dig "certManager" "dnsNames" $names (first .) -}}
{{- else -}}{{- with .Values.config.acme -}}{{- $names = (first .).hosts | default $names -}}{{- end -}}{{- end -}}
{{- if kindIs "string" $names -}}{{- $names = list $names -}}{{- end -}}
{{- .Values.test.host | default (first $names | replace "*" "test") -}}
{{- end -}}
