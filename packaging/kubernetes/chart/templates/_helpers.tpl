{{/* The name of all objects. */}}
{{- define "widelane.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods. It must never change: selectors of a Deployment are fixed. */}}
{{- define "widelane.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "widelane.image" -}}
{{- $repository := required "image.repository is empty: name your image, for example --set image.repository=registry.example.org/widelane; `make image` builds it, and `skopeo copy` puts it into your registry" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "widelane.preStop" -}}
{{- if kindIs "invalid" .Values.preStopSeconds -}}
{{- ternary 0 35 (eq .Values.kind "daemonset") -}}
{{- else -}}
{{- int .Values.preStopSeconds -}}
{{- end -}}
{{- end -}}

{{- define "widelane.grace" -}}
{{- $needed := add (include "widelane.preStop" . | int) (int .Values.drainSeconds) -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add $needed 15 -}}
{{- else if le (int .Values.terminationGracePeriodSeconds) (int $needed) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but a pod needs more than preStopSeconds (%s) and drainSeconds (%d) together: Kubernetes would kill it and cut its connections. Set it to %d, or leave it out" (int .Values.terminationGracePeriodSeconds) (include "widelane.preStop" .) (int .Values.drainSeconds) (add $needed 15)) -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/* The memory of a pod in MiB. */}}
{{- define "widelane.mebibytes" -}}
{{- $memory := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+Gi$" $memory -}}
{{- mul 1024 (trimSuffix "Gi" $memory | int) -}}
{{- else if regexMatch "^[0-9]+Mi$" $memory -}}
{{- trimSuffix "Mi" $memory -}}
{{- else -}}
{{- fail (printf "resources.limits.memory is %s: give it in Mi or Gi, for example 2Gi; without it, the number of connections is not bounded by anything, and the kernel would end the pod" (quote $memory)) -}}
{{- end -}}
{{- end -}}

{{- define "widelane.connections" -}}
{{- $mebibytes := include "widelane.mebibytes" . | int -}}
{{- $most := div (mul $mebibytes 5) 3 | int -}}
{{- if kindIs "invalid" .Values.connections -}}
{{- div (mul $mebibytes 3) 2 -}}
{{- else if gt (int .Values.connections) $most -}}
{{- fail (printf "connections is %d, but %d MiB (resources.limits.memory) hold %d at their worst, and then the kernel would end the pod: lower it, leave it out, or give more memory" (int .Values.connections) $mebibytes $most) -}}
{{- else -}}
{{- int .Values.connections -}}
{{- end -}}
{{- end -}}

{{/* A list of strings in TOML. Strings of JSON are strings of TOML. */}}
{{- define "widelane.list" -}}
[{{ range $at, $one := . }}{{ if $at }}, {{ end }}{{ toJson $one }}{{ end }}]
{{- end -}}

{{- define "widelane.backend" -}}
{{- $backends := .Values.backend -}}
{{- if not (kindIs "slice" $backends) -}}
{{- $backends = list (toString $backends) | compact -}}
{{- end -}}
{{- if not $backends -}}
{{- fail "backend is empty: say where decrypted connections go, for example --set backend=application:80 for the Service `application` in the same namespace" -}}
{{- end -}}
{{- range $backends -}}
{{- if not (regexMatch "^(unix:.+|[^/]+:[0-9]+)$" .) -}}
{{- fail (printf "backend is %s: give HOST:PORT without a scheme or a path, for example application:80, or unix:PATH" (quote .)) -}}
{{- end -}}
{{- end -}}
{{- if eq (len $backends) 1 }}{{ first $backends | toJson }}{{ else }}{{ include "widelane.list" $backends }}{{ end -}}
{{- end -}}

{{/* Mistakes that no other template finds. */}}
{{- define "widelane.check" -}}
{{- $limits := default dict .Values.resources.limits -}}
{{- $requests := default dict .Values.resources.requests -}}
{{- if not .Values.certificates -}}
{{- fail "certificates is empty: name a Secret of type kubernetes.io/tls, for example --set certificates[0]=example-tls; cert-manager writes such Secrets, and `kubectl create secret tls example-tls --cert=site.pem --key=site.key` makes one" -}}
{{- end -}}
{{- if and (not $limits.cpu) (not .Values.workers) -}}
{{- fail "neither resources.limits.cpu nor workers is set: there would be a worker for each CPU of the node; set one of them" -}}
{{- end -}}
{{- if or (lt (int .Values.port) 1024) (eq (int .Values.port) 9464) -}}
{{- fail (printf "port is %d: choose one from 1024 on, because the pod's user has no capability for lower ones, and not 9464, which has the metrics; service.port is what clients of a Deployment see" (int .Values.port)) -}}
{{- end -}}
{{- if and .Values.tickets .Values.etcd.endpoints -}}
{{- fail "both tickets and etcd.endpoints are set: ticket keys come from a Secret or from etcd; remove one of them" -}}
{{- end -}}
{{- if and .Values.etcd.endpoints (not .Values.etcd.secret) -}}
{{- fail "etcd.secret is empty: name a Secret with etcd.key, for example --set etcd.secret=widelane-etcd; `widelane tickets etcd-key etcd.key && kubectl create secret generic widelane-etcd --from-file=etcd.key` makes one" -}}
{{- end -}}
{{- if eq .Values.kind "daemonset" -}}
{{- if .Values.podMonitor.enabled -}}
{{- fail "podMonitor.enabled is true, but the pods of a DaemonSet serve their metrics on 127.0.0.1 of the node, where no Prometheus reaches them: set it to false, and scrape 127.0.0.1:9464 by an agent on the node" -}}
{{- end -}}
{{- else if .Values.autoscaling.enabled -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas (%d) is more than autoscaling.maxReplicas (%d): exchange them" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if and (not .Values.autoscaling.cpu) (not .Values.autoscaling.handshakes) -}}
{{- fail "autoscaling.enabled is true, but neither autoscaling.cpu nor autoscaling.handshakes says by what: set one of them, or autoscaling.enabled=false and replicas" -}}
{{- end -}}
{{- if and .Values.autoscaling.cpu (not (or $requests.cpu $limits.cpu)) -}}
{{- fail "autoscaling.cpu is a percentage of resources.requests.cpu, which is not set: set it, or autoscaling.cpu=null" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The program's configuration file. */}}
{{- define "widelane.configuration" -}}
{{- $node := eq .Values.kind "daemonset" -}}
{{- with .Values.workers }}
workers = {{ int . }}
{{- end }}
{{- with .Values.config.server }}
{{ trim . }}
{{- end }}

[limits]
# A connection holds at most half a MiB, and an idle one 10 KB. Without this line there would be as many as
# descriptors, and the kernel would end the pod. Change it together with the container's memory.
connections = {{ include "widelane.connections" . }}
{{- with .Values.config.limits }}
{{ trim . }}
{{- end }}

[drain]
# Change it together with terminationGracePeriodSeconds.
seconds = {{ int .Values.drainSeconds }}

[metrics]
{{- if $node }}
# The network is the node's own: others must not read them.
listen = "127.0.0.1:9464"
{{- else }}
listen = "0.0.0.0:9464"
{{- end }}

[[listener]]
{{- if $node }}
# On nodes with IPv6 addresses: also "[::]:{{ int .Values.port }}".
{{- else }}
# In a cluster with IPv6 addresses: "[::]:{{ int .Values.port }}", and above "[::]:9464".
{{- end }}
listen = ["0.0.0.0:{{ int .Values.port }}"]
{{- if $node }}
# A port of the node, or a Service like "application:80".
{{- else }}
# The application's Service, by its name in this namespace and its port.
{{- end }}
backend = {{ include "widelane.backend" . }}
{{- with .Values.alpn }}
alpn = {{ include "widelane.list" . }}
{{- end }}
{{- with .Values.proxyProtocolFrom }}
proxy_protocol_from = {{ include "widelane.list" . }}
{{- else }}
# The networks of your load balancers, if they send the PROXY protocol.
# proxy_protocol_from = ["10.0.0.0/24"]
{{- end }}
{{- with .Values.proxyProtocolTo }}
proxy_protocol_to = {{ toJson . }}
{{- end }}
{{- with .Values.config.listener }}
{{ trim . }}
{{- end }}
{{- if .Values.tickets }}

[listener.tickets]
keys = "/etc/widelane/tickets"
{{- else if .Values.etcd.endpoints }}

[listener.tickets]
# The second container writes them.
keys = "/run/widelane/tickets"
{{- end }}
{{- range $at, $secret := .Values.certificates }}

[[listener.certificate]]
cert = "/etc/widelane/certificates/{{ $at }}/tls.crt"
key = "/etc/widelane/certificates/{{ $at }}/tls.key"
{{- end }}
{{- end -}}
