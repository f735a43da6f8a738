# shellcheck shell=bash
# What the scripts beside it share: checks that are counted, and a folder that vanishes.
set -euo pipefail

# An nginx that runs without root.
readonly origin_image=${ORIGIN_IMAGE:-nginxinc/nginx-unprivileged:1.28}

# Of the container image for x86-64, unpacked.
# shellcheck disable=SC2034 # image.sh and size.sh
readonly most_image_bytes=40000000

passed=0
failed=0
work=$(mktemp -d)
readonly work

# check NAME COMMAND...: reports whether it succeeds; its output only if it does not.
check() {
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        printf 'ok    %s\n' "$name"
        passed=$((passed + 1))
    else
        printf 'FAIL  %s\n' "$name"
        tail -n 15 "$work/out" | sed 's/^/      /'
        failed=$((failed + 1))
    fi
}

# says PATTERN COMMAND...: whether its output has it, however it ends.
says() {
    local pattern=$1 output
    shift
    output=$("$@" 2>&1) || true
    printf '%s\n' "$output"
    grep -Eq -- "$pattern" <<<"$output"
}

# ends_with CODE PATTERN COMMAND...: whether it ends with this exit code, and its output has the pattern.
ends_with() {
    local code=$1 pattern=$2 output status=0
    shift 2
    output=$("$@" 2>&1) || status=$?
    printf '%s\nended with %d\n' "$output" "$status"
    [[ $status == "$code" ]] && grep -Eq -- "$pattern" <<<"$output"
}

not() { ! "$@"; }

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || {
            "$@"
            return 1
        }
        sleep 0.5
    done
}

# guide NAME PART: the one command of docs/how-to/NAME.md in which PART is, without sudo and without its comment, in one line. Fails if the
# guide has no such command, or several.
guide() {
    local found
    found=$(awk '/^```/ { fenced = !fenced && ($0 == "```sh" || $0 == "```bash"); next } fenced' "../../docs/how-to/$1.md" | sed -e ':a' -e '/\\$/{' -e 'N' -e 's/ *\\\n */ /' -e 'ba' -e '}' | grep -F -- "$2" |
        sed -e 's/ \+# .*//' -e 's/^sudo //')
    [[ -n $found && $found != *$'\n'* ]] && printf '%s\n' "$found"
}

# certificate NAME HOST...: NAME.crt and NAME.key in the folder, signed by themselves.
certificate() {
    local name=$1 host names=
    shift
    for host in "$@"; do names+=",DNS:$host"; done
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$name" \
        -addext "subjectAltName=${names#,}" -addext basicConstraints=critical,CA:FALSE -keyout "$work/$name.key" -out "$work/$name.crt" 2>/dev/null
    chmod 0644 "$work/$name.key" # the container's user is another
}

# An origin for nginx at port 8080 without root: /blob has 900,000 bytes, /slow sends them in some 9 seconds.
write_origin() {
    # Text: a container's log, where a download ends up, takes no other bytes.
    head -c 675000 /dev/urandom | base64 -w 0 >"$work/blob"
    cat >"$work/origin.conf" <<'CONF'
server {
    listen 8080;
    listen [::]:8080;
    root /srv;
    location = / { return 200 "origin\n"; }
    location = /slow { alias /srv/blob; limit_rate 100k; }
}
CONF
}

# The same in a cluster, of the config map `origin`: a Deployment and a Service.
origin_manifest() {
    cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: origin}
spec:
  replicas: 1
  selector: {matchLabels: {app: origin}}
  template:
    metadata: {labels: {app: origin}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 101, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: nginx
          image: $origin_image
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: origin, mountPath: /etc/nginx/conf.d}
            - {name: origin, mountPath: /srv}
      volumes:
        - {name: tmp, emptyDir: {}}
        - {name: origin, configMap: {name: origin}}
---
apiVersion: v1
kind: Service
metadata: {name: origin}
spec:
  selector: {app: origin}
  ports: [{name: http, port: 8080}]
YAML
}

finish() {
    printf '%d passed, %d failed\n' "$passed" "$failed"
    ((failed == 0))
}
