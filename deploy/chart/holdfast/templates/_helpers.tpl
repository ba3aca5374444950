{{- /* Made by tools/deploy.py; do not edit. */ -}}
{{- define "holdfast.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- define "holdfast.account" -}}
{{- $values := index . 0 -}}
{{- if not $values.serviceAccount.create -}}
{{- $name := $values.serviceAccount.name -}}
{{- required "serviceAccount.name goes with serviceAccount.create: false" $name -}}
{{- else -}}
{{- $values.serviceAccount.name | default (index . 1) -}}
{{- end -}}
{{- end -}}
