{{/* The objects of a file that kustomize uses too, as a YAML list: for the namespace of the release. */}}
{{- define "kcp-webhook.objects" -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) }}
{{- if not $text }}
{{- fail (printf "the chart has no files/%s: a download without symbolic links is incomplete; run `helm package manifests/helm` in a checkout, and install the package" .file) }}
{{- end }}
{{- range splitList "\n---\n" ($text | replace "kcp-webhook-system" .root.Release.Namespace) }}
- {{ . | fromYaml | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{/* One object with the labels and the namespace that kustomize sets. */}}
{{- define "kcp-webhook.object" -}}
{{- $labels := dict "app.kubernetes.io/name" "kcp-webhook" "app.kubernetes.io/part-of" "kubectl-kcp" }}
{{- $_ := set .object.metadata "labels" (merge (default dict .object.metadata.labels) $labels) }}
{{- if not (regexMatch "^Cluster|WebhookConfiguration$" .object.kind) }}
{{- $_ := set .object.metadata "namespace" .root.Release.Namespace }}
{{- end }}
{{- range .object.subjects }}
{{- $_ := set . "namespace" (default $.root.Release.Namespace .namespace) }}
{{- end }}
---
{{ toYaml .object }}
{{ end }}

{{/* All objects of some files, unchanged. */}}
{{- define "kcp-webhook.files" -}}
{{- range $file := .files }}
{{- range include "kcp-webhook.objects" (dict "root" $.root "file" $file) | fromYamlArray }}
{{- include "kcp-webhook.object" (dict "root" $.root "object" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* An image of the values. */}}
{{- define "kcp-webhook.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end }}
{{- end }}
