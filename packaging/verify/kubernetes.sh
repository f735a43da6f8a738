#!/usr/bin/env bash
# kubernetes.sh [IMAGE]: installs both charts into the cluster that kubectl points at, under Pod Security `restricted`, and
# checks that they do what docs/kubernetes.md says. Needs kubectl, helm, openssl, and a litequic program for NodePorts
# (LITEQUIC, default target/release/litequic). The cluster's nodes must have the image, and ORIGIN_IMAGE or a way to it.
#   NODE=ADDRESS         where NodePorts and HOST_PORT are reached; the first node's InternalIP
#   HOST_PORT=PORT       that the DaemonSet binds on each node; 443
#   KILL='COMMAND ID'    kills a container by its runtime's ID; without it the sidecar is stopped by a signal
# Works in the namespaces litequic-verify and litequic-verify-node, which are made anew and removed.
# shellcheck disable=SC2317 # functions are called by their names
cd "$(dirname "$0")/../.."
# shellcheck source=packaging/verify/checks.sh
. packaging/verify/checks.sh

image=${1:-litequic:0.1.0}
litequic=${LITEQUIC:-target/release/litequic}
namespaces=(litequic-verify litequic-verify-node)
ns=${namespaces[0]}
host_port=${HOST_PORT:-443}
node=${NODE:-$(kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type=="InternalIP")].address}')}
loads=()
end() {
    local pid
    for pid in "${loads[@]+"${loads[@]}"}"; do kill "$pid" 2>/dev/null || true; done
    [[ -n ${KEEP:-} ]] || kubectl delete namespace "${namespaces[@]}" --wait=false >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
k() { kubectl --namespace "$ns" "$@"; }
h() { helm --namespace "$ns" "$@"; }

kubectl delete namespace "${namespaces[@]}" --ignore-not-found --timeout=120s >/dev/null
for each in "${namespaces[@]}"; do kubectl create namespace "$each" >/dev/null; done
kubectl label namespace "$ns" pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
certificate first www.example.com
certificate second www.example.com
certificate application app.example.com
certificate successor app.example.com
write_origin
secret() { k create secret tls "$1" --cert="$work/$2.crt" --key="$work/$2.key" --dry-run=client -o yaml | k apply -f - >/dev/null; }
secret litequic-tls first
secret application-tls application
# kubectl create secret tls rejects a pair that does not match; of this one the API server warns.
k create secret generic mismatched --type=kubernetes.io/tls --from-file=tls.crt="$work/first.crt" --from-file=tls.key="$work/second.key" >/dev/null 2>&1
k create configmap origin --from-file="$work/origin.conf" --from-file="$work/blob" >/dev/null
page() { k create configmap pages --from-literal=502.txt="$1" --dry-run=client -o yaml | k apply -f - >/dev/null; }
page "the first page"
helm dependency update helm/examples/application >/dev/null

# An origin without litequic.
origin_manifest | k apply -f - >/dev/null
k rollout status deployment/origin --timeout=120s >/dev/null

# get HOST PORT PATH CA [OPTION...]: over HTTP/3, from here to a NodePort.
get() {
    local host=$1 port=$2 path=$3 ca=$4
    shift 4
    "$litequic" get --timeout 60s --ca "$work/$ca.crt" --resolve "$host:$port:$node" "$@" "https://$host:$port$path"
}
# whole HOST PORT PATH CA: whether the origin's whole blob came.
whole() { get "$@" --output - | cmp - "$work/blob"; }
# pods LABELS: the newest last.
pods() { k get pods -l "$1" --sort-by=.metadata.creationTimestamp -o name; }

echo "# edge"
port=30443
edge=(edge helm/litequic --set "image.repository=${image%:*},image.tag=${image##*:}" --set "config.origin.url=http://origin:8080"
    --set "service.type=NodePort,service.nodePort=$port,service.externalTrafficPolicy=Cluster"
    --set "test.host=www.example.com,test.ca=tls.crt" --set resources.requests.cpu=50m --set config.listen.workers=1
    --set "extraVolumes[0].name=pages,extraVolumes[0].configMap.name=pages"
    --set "extraVolumeMounts[0].name=pages,extraVolumeMounts[0].mountPath=/etc/litequic/pages"
    --set "config.error_pages.502=/etc/litequic/pages/502.txt,config.origins.dead.url=http://127.0.0.1:1"
    --set "config.routes[0].path_prefix=/dead,config.routes[0].origin=dead")
# A key with a value that litequic rejects, and helm's error.
faults=("timeouts.idle=30x" "/config/timeouts/idle'" "origin.url=web:80" "/config/origin/url'"
    "routes[0].origin=nope" 'routes\[0\].origin = "nope": no origin has this name')
# refuses PREFIX COMMAND...: each of the faults.
refuses() {
    local n prefix=$1
    shift
    for ((n = 0; n < ${#faults[@]}; n += 2)); do
        check "helm $2 refuses $prefix${faults[n]}" says "${faults[n + 1]}" "$@" --set "$prefix${faults[n]}"
    done
}
released() { [[ -n $(h list --all --short --filter "^$1\$") ]]; }
no_pod() { says 'No resources found' k get deployments,daemonsets,pods -l app.kubernetes.io/instance=edge,app.kubernetes.io/name=litequic; }
# checked COMMAND...: with the Job that runs `litequic check`.
checked() { "$@" --timeout 180s "${edge[@]}" --set check.enabled=true "${more[@]}"; }
unsized=(--set "config.limits.worker_send_buffer=2 TiB")
refuses config. h install "${edge[@]}"
check "and no release is made" not released edge
more=("${unsized[@]}")
check "the check before an install refuses the rest" says 'failed pre-install' checked h install
check "with its fault in the Job's log" says 'limits.worker_send_buffer' k logs job/edge-litequic-check
more=(--set "certificates[0].secretName=litequic-tls,certificates[1].secretName=mismatched")
check "also a key that is not the certificate's" says 'pre-(install|upgrade) hooks? failed' checked h upgrade --install
check "with its file in the Job's log" says '/etc/litequic/tls/mismatched.key' k logs job/edge-litequic-check
check "and nothing is installed" no_pod
check "helm install --wait under restricted" h upgrade --install --wait --timeout 180s "${edge[@]}"
check "both pods are ready" says '^2$' k get deployment edge-litequic -o jsonpath='{.status.readyReplicas}'
check "helm test: HTTP/3 through the Service, from a pod" h test edge --timeout 90s
check "UDP and TCP have one port number" says '^443 443$' k get service edge-litequic -o jsonpath='{.spec.ports[*].port}'
check "HTTP/3 through a NodePort" says '^origin$' get www.example.com "$port" / first
check "HTTP/2 through the NodePort of the same number, which announces it" says "^alt-svc: h3=\":$port\"" \
    curl --noproxy '*' -sSi --cacert "$work/first.crt" --resolve "www.example.com:$port:$node" "https://www.example.com:$port/"
# Of one of the pods, and each request goes to either.
counted() {
    get www.example.com "$port" / first &&
        says '^litequic_requests_total\{protocol="h3"\} [1-9]' k exec deployment/edge-litequic -- /usr/local/bin/litequic ctl metrics
}
check "metrics" wait_for 30 counted

echo "# a new certificate, while a download runs"
whole www.example.com "$port" /slow first >"$work/during" 2>&1 &
download=$!
secret litequic-tls second
# Each pod gets it from its kubelet in its own time, and each connection goes to any of them.
renewed() { local _; for _ in {1..12}; do get www.example.com "$port" / second || return 1; done; }
check "the new certificate is served by both pods" wait_for 180 renewed
check "the old one no more" not get www.example.com "$port" / first
check "a download that ran meanwhile is whole" wait "$download"
check "no pod was restarted" says '^0 0$' k get pods -l app.kubernetes.io/instance=edge -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'

echo "# a rolling upgrade under load"
# Downloads of nine seconds and small requests, each on a connection of its own, and HTTP/2 beside them; a line each.
load() { # KIND COMMAND...
    local kind=$1 said
    said=$work/load.$kind.$BASHPID
    shift
    while :; do
        if "$@" >"$said" 2>&1; then echo "$kind ok"; else echo "$kind LOST $(paste -s -d ' ' "$said")"; fi
    done >>"$work/load"
}
curled() {
    curl --noproxy '*' -sS --fail --http2 --cacert "$work/second.crt" --resolve "www.example.com:$port:$node" "https://www.example.com:$port/blob" | cmp - "$work/blob"
}
: >"$work/load"
for _ in 1 2 3 4; do
    load slow whole www.example.com "$port" /slow second &
    loads+=($!)
done
load small whole www.example.com "$port" /blob second &
loads+=($!)
load http2 curled &
loads+=($!)
before=$(pods app.kubernetes.io/instance=edge)
check "helm upgrade --wait rolls the pods" h upgrade --wait --timeout 300s "${edge[@]}" --set config.litequic.receive_batch=64
gone() { local pod; for pod in $before; do not k get "$pod" || return 1; done; }
check "the old pods end" wait_for 120 gone
sleep 12 # the downloads that the new pods began
for pid in "${loads[@]}"; do kill "$pid" 2>/dev/null || true; done
loads=()
sort "$work/load" | uniq -c | sed 's/^/      /'
check "no request was lost" not grep LOST "$work/load"
check "each kind was served" bash -c "for kind in slow small http2; do grep -q \"\$kind ok\" '$work/load' || exit 1; done"
before=$(pods app.kubernetes.io/instance=edge)
h upgrade "${edge[@]}" --set config.litequic.receive_batch=64,config.limits.max_headers=77 >/dev/null
taken() { says '"limits.max_headers": "77"' k exec "$(pods app.kubernetes.io/instance=edge | tail -n 1)" -- /usr/local/bin/litequic ctl config; }
check "it is taken on while serving" wait_for 180 taken
check "by the same pods" test "$before" = "$(pods app.kubernetes.io/instance=edge)"

echo "# upgrades that are rejected"
# What a rollout would change.
installed() {
    pods app.kubernetes.io/instance=edge
    k get deployment edge-litequic -o jsonpath='{.metadata.generation}'
    k get configmap edge-litequic -o jsonpath='{.metadata.resourceVersion}'
}
before=$(installed)
untouched() { [[ $(installed) == "$before" ]]; }
revision() { h history edge --max 1 -o json | grep -Eo '"revision": *[0-9]+' | grep -Eo '[0-9]+'; }
refuses config. h upgrade "${edge[@]}"
more=("${unsized[@]}" --set config.litequic.receive_batch=32)
check "a check before the upgrade refuses the rest" says 'pre-upgrade hooks failed' checked h upgrade --wait
wrong=$(revision)
check "with its fault in the Job's log" says 'worker_send_buffer' k logs job/edge-litequic-check
more=(--set "certificates[0].secretName=litequic-tls,certificates[1].secretName=mismatched")
check "also a key that is not the certificate's" says 'pre-upgrade hooks failed' checked h upgrade --wait
check "no pod and no configuration was touched" untouched
check "both pods serve" renewed
more=(--set "config.litequic.receive_batch=64")
check "the check accepts what is right" checked h upgrade --wait
check "and leaves nothing" says 'No resources found|NotFound' k get job,configmap edge-litequic-check
before=$(installed)
right=$(revision)
check "the check before a rollback refuses what it refused before" says 'edge-litequic-check failed' h rollback edge "$wrong" --wait --timeout 180s
check "no pod and no configuration was touched" untouched
# Helm takes the rollback to be in progress until another one succeeds.
check "a rollback to what was accepted" h rollback edge "$right" --wait --timeout 180s
check "no pod was touched" test "$before" = "$(installed)"

echo "# a new certificate and a new error page, while the configuration is rejected"
dead() { says "$1" get www.example.com "$port" /dead "$2"; }
check "the error page is served" dead '^the first page$' second
k get configmap edge-litequic -o yaml | sed 's/max_connections = 10000/max_connections = 0/' | k replace -f - >/dev/null
refused() { says '"refused_since": *[1-9]' k exec "$(pods app.kubernetes.io/instance=edge | tail -n 1)" -- /usr/local/bin/litequic ctl status --json; }
check "the configuration is rejected" wait_for 180 refused
secret litequic-tls first
page "the second page"
renewed() { local _; for _ in {1..12}; do get www.example.com "$port" / first || return 1; done; }
check "the new certificate is served by both pods" wait_for 180 renewed
turned() { local _; for _ in {1..12}; do dead '^the second page$' first || return 1; done; }
check "the new error page, too" wait_for 180 turned
check "the configuration is still rejected" refused
check "an upgrade mends it" h upgrade "${edge[@]}" --set config.litequic.receive_batch=64
check "it is taken on" wait_for 180 not refused
check "by the same pods" says '^0 0$' k get pods -l app.kubernetes.io/instance=edge -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'
check "helm uninstall" h uninstall edge --wait --timeout 120s

echo "# an application with the sidecar"
port=30444
application=(app helm/examples/application --set "image=$origin_image,replicas=1"
    --set "litequic-sidecar.image.repository=${image%:*},litequic-sidecar.image.tag=${image##*:},litequic-sidecar.advertisedPort=$port")
refuses litequic-sidecar.config. h install "${application[@]}"
check "and no release is made" not released app
checked() { "$@" --timeout 180s "${application[@]}" --set litequic-sidecar.check.enabled=true "${more[@]}"; }
more=(--set "litequic-sidecar.config.limits.worker_send_buffer=2 TiB")
check "the check before an install refuses the rest" says 'failed pre-install' checked h install
check "with its fault in the Job's log" says 'limits.worker_send_buffer' k logs job/app-litequic-check
more=()
check "helm install --wait under restricted, checked" checked h upgrade --install --wait
# The same application with an answer that takes time, and a port of the node.
k patch service app --type=json -p "[{\"op\":\"replace\",\"path\":\"/spec/type\",\"value\":\"NodePort\"},
    {\"op\":\"add\",\"path\":\"/spec/ports/0/nodePort\",\"value\":$port},{\"op\":\"add\",\"path\":\"/spec/ports/1/nodePort\",\"value\":$port}]" >/dev/null
k patch deployment app -p '{"spec":{"template":{"spec":{"volumes":[{"name":"origin","configMap":{"name":"origin"}}],
    "containers":[{"name":"nginx","volumeMounts":[{"name":"origin","mountPath":"/etc/nginx/conf.d"},{"name":"origin","mountPath":"/srv"}]}]}}}}' >/dev/null
k rollout status deployment/app --timeout=180s >/dev/null
wait_for 60 says '^1$' bash -c "kubectl -n '$ns' get pods -l app=app -o name | wc -l" || true
check "HTTP/3 to the application" says '^origin$' get app.example.com "$port" / application
pod=$(pods app=app | tail -n 1)
cat >"$work/client.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  volumes: [{name: tls, secret: {secretName: application-tls}}]
  containers:
    - name: get
      image: $image
      args: [get, --ca=/tls/tls.crt, "--resolve=app.example.com:443:\$(APP_SERVICE_HOST)", "https://app.example.com/"]
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
YAML
k apply -f "$work/client.yaml" >/dev/null
check "HTTP/3 through the Service, from a pod" wait_for 60 says '^Succeeded$' k get pod client -o jsonpath='{.status.phase}'
secret application-tls successor
check "a new certificate is served" wait_for 180 get app.example.com "$port" / successor
check "the old one no more" not get app.example.com "$port" / application
restarts() { k get "$pod" -o jsonpath='{.status.initContainerStatuses[0].restartCount} {.status.containerStatuses[0].restartCount} {.status.initContainerStatuses[0].ready}'; }
if [[ -n ${KILL:-} ]]; then
    id=$(k get "$pod" -o jsonpath='{.status.initContainerStatuses[0].containerID}')
    # shellcheck disable=SC2086 # a command with its arguments
    check "the sidecar is killed" $KILL "${id##*//}"
else
    check "the sidecar is told to end" k exec "$pod" -c litequic -- /usr/local/bin/litequic ctl drain
fi
check "it comes back alone" wait_for 90 says '^1 0 true$' restarts
check "and serves" wait_for 30 get app.example.com "$port" / successor
whole app.example.com "$port" /slow successor >"$work/during" 2>&1 &
download=$!
open() { says '"requests_open": 1' k exec "$pod" -c litequic -- /usr/local/bin/litequic ctl status --json; }
check "a download begins" wait_for 8 open
began=$SECONDS
check "the pod is deleted" k delete "$pod" --timeout=90s
echo "      it took $((SECONDS - began)) s"
check "the pod's end drained: the download is whole" wait "$download"
check "helm uninstall" h uninstall app --wait --timeout 120s

echo "# a DaemonSet with a port of each node"
origin="http://origin.$ns.svc:8080"
ns=${namespaces[1]}
secret litequic-tls first
daemon=(daemon helm/litequic --values helm/examples/daemonset.yaml --set "image.repository=${image%:*},image.tag=${image##*:}"
    --set "hostPort=$host_port,nodeSelector=null,config.origin.url=$origin" --set resources.requests.cpu=50m)
check "a second pod on a node is refused" says 'maxSurge: with a hostPort' h install "${daemon[@]}" --set updateStrategy.rollingUpdate.maxSurge=1
check "helm install --wait" h upgrade --install --wait --timeout 180s "${daemon[@]}" --set config.listen.workers=2
check "HTTP/3 at the node's port" says '^origin$' get www.example.com "$host_port" / first
check "HTTP/2 at the same port, which announces it" says "^alt-svc: h3=\":$host_port\"" \
    curl --noproxy '*' -sSi --cacert "$work/first.crt" --resolve "www.example.com:$host_port:$node" "https://www.example.com:$host_port/"
before=$(pods app.kubernetes.io/instance=daemon)
whole www.example.com "$host_port" /slow first >"$work/during" 2>&1 &
download=$!
open() { local pod; for pod in $before; do ! says '"requests_open": 1' k exec "$pod" -- /usr/local/bin/litequic ctl status --json || return 0; done; return 1; }
check "a download begins" wait_for 8 open
check "helm upgrade --wait rolls it" h upgrade --wait --timeout 300s "${daemon[@]}" --set config.listen.workers=1
check "the download is whole" wait "$download"
check "the old pods end" wait_for 120 gone
taken() { says '"listen.workers": "1"' k exec "$(pods app.kubernetes.io/instance=daemon | tail -n 1)" -- /usr/local/bin/litequic ctl config; }
# helm does not wait for the last pod, which the DaemonSet lets be unavailable.
check "the new ones have the new configuration" wait_for 60 taken
check "HTTP/3 at the node's port" wait_for 30 says '^origin$' get www.example.com "$host_port" / first
check "helm uninstall" h uninstall daemon --wait --timeout 120s

echo "# server IDs"
examples() { helm template "$1" helm/litequic --namespace "$ns" --values "helm/examples/$1.yaml" "${@:2}"; }
dry_run() { examples "$@" | k apply --dry-run=server --validate=strict -f -; }
check "the API server accepts the example for EKS" dry_run eks-nlb
check "and the one for MetalLB" dry_run metallb
balanced=(balanced helm/litequic --values helm/examples/metallb.yaml --set "image.repository=${image%:*},image.tag=${image##*:}"
    --set "replicas=2,config.origin.url=$origin,certificates[0].secretName=litequic-tls,test.host=www.example.com" --set resources.requests.cpu=50m)
# Without --wait: where nothing like MetalLB is, the Service gets no address.
check "helm install of the example for MetalLB" h upgrade --install "${balanced[@]}"
check "its pods are ready" k rollout status deployment/balanced-litequic --timeout=180s
# id_of POD: the server ID in /status, which is the pod's address.
id_of() { k exec "$1" -- /usr/local/bin/litequic ctl status --json | sed -n 's/.*"id": "0x\([0-9a-f]*\)".*/\1/p'; }
is_its_address() {
    local pod address
    for pod in $(pods app.kubernetes.io/instance=balanced); do
        address=$(k get "$pod" -o jsonpath='{.status.podIP}')
        echo "$pod: $address, server ID $(id_of "$pod")"
        [[ $(id_of "$pod") == "$(printf '%02x%02x%02x%02x' ${address//./ })" ]] || return 1
    done
}
check "each pod's server ID is its address" is_its_address
check "HTTP/3 through the Service, from a pod" h test balanced --timeout 90s
check "helm uninstall" h uninstall balanced --wait --timeout 120s
finish
