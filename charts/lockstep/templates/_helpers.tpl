{{- define "lockstep.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lockstep.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "lockstep.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "lockstep.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lockstep.controllerName" -}}
{{- include "lockstep.fullname" . }}-controller
{{- end -}}

{{- define "lockstep.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lockstep.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "lockstep.commonLabels" -}}
app.kubernetes.io/name: {{ include "lockstep.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lockstep.labels" -}}
{{ include "lockstep.commonLabels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{- /* The controller's pods as a NetworkPolicyPeer, in JSON. Older servers don't label namespaces by their names. */ -}}
{{- define "lockstep.controllerPeer" -}}
{{- $namespaces := dict -}}
{{- if semverCompare ">=1.21.0-0" .Capabilities.KubeVersion.Version -}}
{{- $namespaces = dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- end -}}
{{- $labels := dict "app.kubernetes.io/name" (include "lockstep.name" .) "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/component" "controller" -}}
{{- dict "namespaceSelector" $namespaces "podSelector" (dict "matchLabels" $labels) | toJson -}}
{{- end -}}

{{- define "lockstep.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "lockstep.controllerName" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "lockstep.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* As the controller names it: those of different namespaces don't follow each other. */ -}}
{{- define "lockstep.lease" -}}
lockstep-controller{{ with .Values.watchNamespace }}-{{ . }}{{ end }}
{{- end -}}

{{- define "lockstep.keySecret" -}}
{{- .Values.key.existingSecret | default (printf "%s-key" (include "lockstep.controllerName" .)) -}}
{{- end -}}

{{- /* "true" where objects of the Prometheus operator's kind .kind are to be made, else empty. */ -}}
{{- define "lockstep.hasMonitor" -}}
{{- $mode := .root.Values.monitoring.prometheusOperator -}}
{{- if eq $mode "Always" -}}
true
{{- else if eq $mode "Auto" -}}
{{- if .root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the controller does in the namespaces of jobs. */ -}}
{{- define "lockstep.jobRules" -}}
- apiGroups: [lockstep.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [lockstep.dev]
  resources: [trainingjobs/status]
  verbs: [update]
- apiGroups: [lockstep.dev]  # for owner references that block the owner's deletion
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, update, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if .Values.networkPolicy.jobs }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, list, watch, update, delete]
{{- end }}
{{- end -}}
