#!/usr/bin/env bash
# start-kubernetes.sh DIST: from nothing to a response over HTTP/3, as docs/start.md says: makes a certificate, installs the chart from
# a registry before a Service that is there, requests a page. Prints how long that took. DIST is the folder of a release, whose chart
# and amd64 image are pushed to the registry first. Needs kubectl, helm, docker and openssl, and a cluster whose nodes can pull from
# the registry.
#   REGISTRY=HOST:PORT   one that runs; without it Debian's docker-registry is started at 127.0.0.1:5000, which a node on this
#                        machine can reach
#   NODE=ADDRESS         where NodePorts are reached; the first node's InternalIP
# Works in the namespace litequic-start, which is made anew and removed.
dist=$(realpath "$1")
cd "$(dirname "$0")" || exit
# shellcheck source=packaging/verify/checks.sh
. ./checks.sh

ns=litequic-start
port=30444
node=${NODE:-$(kubectl get nodes -o jsonpath='{.items[0].status.addresses[?(@.type=="InternalIP")].address}')}
server=
end() {
    kubectl delete namespace "$ns" --wait=false >/dev/null 2>&1 || true
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
k() { kubectl --namespace "$ns" "$@"; }

if [[ -z ${REGISTRY:-} ]]; then
    REGISTRY=127.0.0.1:5000
    cat >"$work/registry.yml" <<YAML
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: $REGISTRY}
YAML
    docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
    server=$!
fi
check "a registry runs" wait_for 20 curl --noproxy '*' --silent --fail "http://$REGISTRY/v2/"

program=$(echo "$dist"/litequic-*-x86_64-unknown-linux-gnu.tar.gz)
version=${program##*/litequic-}
version=${version%-x86_64-unknown-linux-gnu.tar.gz}
tar --extract --file "$program" --directory "$work" --strip-components 3 "litequic-$version-x86_64-unknown-linux-gnu/libexec/litequic/litequic"
docker load --quiet --input "$dist/litequic-$version-image-amd64.tar" >/dev/null
docker tag "litequic:$version" "$REGISTRY/litequic:$version"
check "the image is pushed" docker push --quiet "$REGISTRY/litequic:$version"
check "the chart is pushed" helm push "$dist/litequic-$version.tgz" "oci://$REGISTRY/charts" --plain-http

# The Service that is there before litequic is.
kubectl delete namespace "$ns" --ignore-not-found --timeout=120s >/dev/null
kubectl create namespace "$ns" >/dev/null
write_origin
k create configmap origin --from-file="$work/origin.conf" --from-file="$work/blob" >/dev/null
origin_manifest | k apply -f - >/dev/null
check "a Service answers" k rollout status deployment/origin --timeout=120s

began=$(date +%s%N)
certificate tls www.example.com
check "kubectl create secret tls" k create secret tls litequic-tls --cert="$work/tls.crt" --key="$work/tls.key"
check "helm install oci://" helm --namespace "$ns" install edge "oci://$REGISTRY/charts/litequic" --version "$version" --plain-http \
    --set "image.repository=$REGISTRY/litequic" --set config.origin.url=http://origin:8080 \
    --set "service.type=NodePort,service.nodePort=$port,service.externalTrafficPolicy=Cluster" \
    --set test.host=www.example.com,test.ca=tls.crt --set resources.requests.cpu=50m
check "kubectl rollout status" k rollout status deployment/edge-litequic --timeout=180s
check "a response over HTTP/3" wait_for 30 says '^origin$' "$work/litequic" get --timeout 10s --ca "$work/tls.crt" \
    --resolve "www.example.com:$port:$node" "https://www.example.com:$port/"
printf 'start: %d s\n' $((($(date +%s%N) - began + 999999999) / 1000000000))
check "helm test" helm --namespace "$ns" test edge --timeout 90s
finish
