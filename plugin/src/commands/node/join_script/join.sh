#!/bin/bash
# Joins this host to a Kubernetes cluster with kubeadm, and waits until its Node is Ready.
# Written by `kubectl kcp node join-script`. It contains a bootstrap token: treat this file as a secret until the token expires.
#
# Nothing is changed on the host until every check has passed. If the join fails, the script runs `kubeadm reset`, which removes
# what the join left. If there were files in the folders that `kubeadm reset` empties, the script removes nothing, and says so.
set -euo pipefail
umask 077

# Values. Each line that ends with @@ is replaced by a value in single quotes.
token_id=@@
token_secret=@@
token_expires=@@
endpoint=@@             # API server, HOST:PORT
ca=@@                   # the cluster's CA in PEM
expected_name=@@        # empty: any name of the host
cluster_version=@@      # such as 1.36.3
is_control_plane=@@     # yes or no
etcd_folder=@@          # the folder of etcd's data in kubeadm's configuration; empty: the host gets no etcd member
certificates_expire=@@  # when the cluster deletes the certificates that a control plane host reads; empty: unknown
cri_socket=@@           # empty: the only one that exists
ignored_errors=@@       # preflight errors of kubeadm, separated by commas
downloads=@@            # lines of: PROGRAM SHA256 URL
join_configuration=@@   # kubeadm's JoinConfiguration, as JSON
proxy_port=@@           # empty: no proxy in front of the API servers
proxy_health_port=@@
proxy_configuration=@@
proxy_manifest=@@
kubelet_edit=@@         # command that lets the kubelet use the proxy
ready_seconds=@@

readonly CLOCK_LIMIT_SECONDS=60
readonly JOIN_LIMIT_SECONDS=600
# The kubelet sets its label kubernetes.io/hostname to the name of the host, and the API server allows 63 characters in a value of a
# label (Kubernetes 1.36, pkg/kubelet/kubelet_node_status.go; LabelValueMaxLength in apimachinery). On Linux, the name of a host has
# at most 64 characters. A Node whose name has more than 63 is never created.
readonly NAME_LIMIT=63

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

# Folders that `kubeadm reset` empties, and that had files before the join.
found_before=()
problems=()
problem() { problems+=("$1"); }

@@reset.sh

is_ignored() { case ",$ignored_errors," in *",all,"* | *",$1,"*) return 0 ;; *) return 1 ;; esac; }

[ "$(id -u)" -eq 0 ] || fail "run this script as root"
command -v curl >/dev/null || fail "curl is not installed"

work=$(mktemp -d "${TMPDIR:-/run}/kcp-join.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf '%s' "$ca" >"$work/ca.crt"

# Requests to the API server. The token goes through standard input, so that `ps` does not show it.
with_token() {
  printf 'header = "Authorization: Bearer %s.%s"\n' "$token_id" "$token_secret" |
    curl --config - --silent --show-error --max-time 10 --cacert "$work/ca.crt" "$@"
}
with_kubelet() {
  curl --silent --max-time 10 --cacert "$work/ca.crt" ${proxy_port:+--resolve "$endpoint:127.0.0.1"} --cert /var/lib/kubelet/pki/kubelet-client-current.pem "$@"
}

check_name() {
  if [ -n "$expected_name" ] && [ "$name" != "$expected_name" ]; then
    problem "the name of this host is $name, but the script is for $expected_name: hostnamectl set-hostname $expected_name"
  fi
  if ! [[ $name =~ ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ ]]; then
    problem "the name of this host is not a valid name of a Node"
  elif [ "${#name}" -gt "$NAME_LIMIT" ]; then
    problem "the name of this host has ${#name} characters, more than the $NAME_LIMIT that the kubelet's label kubernetes.io/hostname can have: hostnamectl set-hostname NAME"
  fi
}

# After a failed join, the script runs `kubeadm reset`, which empties folders. Files that are in these folders now do not come from
# the join.
check_data() {
  local folder
  if [ -e /etc/kubernetes/kubelet.conf ]; then
    problem "this host has joined a cluster before: remove its Node from that cluster with kubectl kcp node remove, and run the script that this command prints"
  fi
  for folder in /etc/kubernetes/manifests /etc/kubernetes/pki "$KUBELET_DATA"; do
    is_empty "$folder" || found_before+=("$folder")
  done
  if [ -n "$etcd_folder" ] && ! is_empty "$etcd_folder"; then
    problem "$etcd_folder is not empty, but a new member of etcd has no data yet: move what is in it, or choose another host"
  elif ! is_empty "$ETCD_DATA" && ! is_ignored DirAvailable--var-lib-etcd; then
    problem "$ETCD_DATA is not empty, so this host may run an etcd of its own: choose another host; or, to leave this etcd as it is, create the script with --ignore-preflight-errors DirAvailable--var-lib-etcd"
  fi
}

check_swap() {
  if [ "$(wc -l </proc/swaps)" -gt 1 ] && ! is_ignored Swap; then
    problem "swap is on: swapoff -a, and remove it from /etc/fstab"
  fi
}

check_ports() {
  local ports=(10250) port
  [ -z "$proxy_port" ] || ports+=("$proxy_port" "$proxy_health_port")
  [ "$is_control_plane" = no ] || ports+=(6443 10257 10259 2379 2380)
  for port in "${ports[@]}"; do
    if ! is_ignored "Port-$port" && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      problem "port $port is in use"
    fi
  done
}

# kubeadm stops without a runtime too. These messages say what to do.
check_runtime() {
  local socket found=()
  local candidates=(unix:///var/run/containerd/containerd.sock unix:///var/run/crio/crio.sock unix:///var/run/cri-dockerd.sock)
  [ -z "$cri_socket" ] || candidates=("$cri_socket")
  for socket in "${candidates[@]}"; do
    if [ -S "${socket#unix://}" ]; then found+=("$socket"); fi
  done
  case ${#found[@]} in
    1) ;;
    0) problem "no container runtime listens at ${candidates[*]}: start it" ;;
    *) problem "several container runtimes are running: create the script with --cri-socket" ;;
  esac
}

# Checks the clock, the token and the name of the Node with one request each.
check_cluster() {
  local date there here difference code
  if ! with_token --dump-header "$work/headers" --output /dev/null "https://$endpoint/version"; then
    problem "the API server at $endpoint cannot be reached, or its certificate is not of the cluster's CA"
    return
  fi
  date=$(sed -n 's/^[Dd]ate: *//p' "$work/headers" | tr -d '\r')
  if there=$(date -u -d "$date" +%s 2>/dev/null); then
    here=$(date -u +%s)
    difference=$((here > there ? here - there : there - here))
    if [ "$difference" -gt "$CLOCK_LIMIT_SECONDS" ]; then
      problem "the clock of this host differs from the API server's by $difference seconds: start a time service"
    fi
    if [ -n "$certificates_expire" ] && [ "$there" -ge "$(date -u -d "$certificates_expire" +%s)" ]; then
      problem "the cluster has deleted the certificates that this host needs, at $certificates_expire: on a host of the control plane, run kubeadm init phase upload-certs --upload-certs (with an external etcd, also --config FILE), and create a new script with the key that this command prints"
    fi
  fi
  code=$(with_token --output /dev/null --write-out '%{http_code}' "https://$endpoint/api/v1/nodes/$name") || code=0
  case $code in
    200) problem "the cluster already has a Node $name: choose another name, or delete that Node" ;;
    401) problem "the API server rejects the token $token_id: it has expired (at $token_expires) or is revoked; create a new script" ;;
    # 403: the token has no permission to read Nodes. kubeadm checks the name again.
    *) ;;
  esac
}

# Downloads into the work folder, and compares each file with its hash.
download() {
  local program sha256 url
  [ -n "$downloads" ] || return 0
  while read -r program sha256 url; do
    say "downloading $program"
    curl --fail --location --silent --show-error --max-time 600 --output "$work/$program" -- "$url" ||
      fail "cannot download $program from $url"
    printf '%s  %s\n' "$sha256" "$work/$program" | sha256sum --check --status ||
      fail "$program from $url does not have the SHA-256 $sha256"
    chmod 0755 "$work/$program"
  done <<<"$downloads"
}

# The downloaded program, or the one on the PATH.
find_program() {
  if [ -e "$work/$1" ]; then printf '%s' "$work/$1"; else command -v "$1" || fail "$1 is not installed"; fi
}

minor() { sed -E 's/^[^0-9]*1\.([0-9]+)\..*$/\1/' <<<"$1"; }

# kubeadm may be one minor version newer than the cluster, a kubelet up to three older.
check_versions() {
  local kubeadm_version kubelet_version cluster kubeadm kubelet
  kubeadm=$(find_program kubeadm)
  kubelet=$(find_program kubelet)
  kubeadm_version=$("$kubeadm" version -o short)
  kubelet_version=$("$kubelet" --version)
  cluster=$(minor "$cluster_version") kubeadm=$(minor "$kubeadm_version") kubelet=$(minor "$kubelet_version")
  if [ "$kubeadm" -lt "$cluster" ] || [ "$kubeadm" -gt $((cluster + 1)) ]; then
    problem "kubeadm $kubeadm_version cannot join a cluster of version $cluster_version: install kubeadm 1.$cluster"
  fi
  if [ "$kubelet" -gt "$cluster" ] || [ "$kubelet" -lt $((cluster - 3)) ]; then
    problem "the kubelet (${kubelet_version#Kubernetes }) does not work with API servers of version $cluster_version: install kubelet 1.$cluster"
  fi
}

stop_at_problems() {
  [ "${#problems[@]}" -gt 0 ] || return 0
  local text
  for text in "${problems[@]}"; do say "error: $text"; done
  say "nothing was changed on this host"
  exit 1
}

install_downloads() {
  local program target mode
  for program in kubelet kubeadm unit drop-in; do
    [ -e "$work/$program" ] || continue
    case $program in
      unit) target=/etc/systemd/system/kubelet.service ;;
      drop-in) target=/etc/systemd/system/kubelet.service.d/10-kubeadm.conf ;;
      *) target=/usr/local/bin/$program ;;
    esac
    case $program in unit | drop-in) mode=0644 ;; *) mode=0755 ;; esac
    # umask is for secrets; these folders must be readable.
    (umask 022 && mkdir -p "$(dirname "$target")")
    install -m "$mode" "$work/$program" "$target.new"
    mv "$target.new" "$target"
  done
  if [ -e "$work/unit" ] || [ -e "$work/drop-in" ]; then
    systemctl daemon-reload
    systemctl enable kubelet
  fi
}

join() {
  local kubeadm=/usr/local/bin/kubeadm configuration=$work/join.json
  [ -e "$work/kubeadm" ] || kubeadm=$(command -v kubeadm)
  printf '%s\n' "$join_configuration" >"$configuration"
  # kubeadm creates folders that others must be able to enter.
  if (umask 022 && timeout "$JOIN_LIMIT_SECONDS" "$kubeadm" join --config "$configuration") >&2; then return; fi
  if [ "${#found_before[@]}" -gt 0 ]; then
    fail "this host did not join the cluster. What the join left is still there, because kubeadm reset would also delete the files that were in ${found_before[*]} before: move these files away, and run: kubeadm reset $(skipped_phase)"
  fi
  say "the join failed; removing what it left with kubeadm reset"
  reset_host "$kubeadm" ${cri_socket:+--cri-socket "$cri_socket"} || say "error: kubeadm reset did not remove everything"
  fail "this host did not join the cluster"
}

# From now on, the kubelet and this script reach the API servers through the proxy.
use_proxy() {
  [ -n "$proxy_port" ] || return 0
  local folder=/etc/kubernetes/kcp-api-proxy manifests=/etc/kubernetes/manifests
  printf '%s' "$proxy_configuration" >"$work/haproxy.cfg"
  printf '%s' "$proxy_manifest" >"$work/manifest.yaml"
  # 65532 is the user of the proxy.
  install -d -m 0700 -o 65532 -g 65532 "$folder"
  install -m 0600 -o 65532 -g 65532 "$work/haproxy.cfg" "$folder/haproxy.cfg"
  install -m 0644 "$work/manifest.yaml" "$manifests/.kcp-api-proxy.yaml.new"
  mv "$manifests/.kcp-api-proxy.yaml.new" "$manifests/kcp-api-proxy.yaml"
  sh -c "$kubelet_edit"
  systemctl restart kubelet
  # The certificate of every API server contains this name. curl connects to the proxy instead.
  endpoint=kubernetes.default.svc:$proxy_port
}

# The API server's table of one Node has the columns NAME, STATUS, ROLES and so on.
is_ready() {
  local table
  table=$(with_kubelet --header 'Accept: application/json;as=Table;v=v1;g=meta.k8s.io' \
    "https://$endpoint/api/v1/nodes/$name?pretty=false&includeObject=None") || return 1
  [[ $table == *"\"cells\":[\"$name\",\"Ready\""* || $table == *"\"cells\":[\"$name\",\"Ready,"* ]]
}

wait_until_ready() {
  local end=$((SECONDS + ready_seconds))
  until is_ready; do
    [ "$SECONDS" -lt "$end" ] ||
      fail "node $name has joined, but is not Ready after $ready_seconds seconds: kubectl describe node $name"
    sleep 1
  done
}

name=$(uname -n | tr '[:upper:]' '[:lower:]')
check_name
check_data
check_swap
check_ports
check_runtime
check_cluster
stop_at_problems
download
check_versions
stop_at_problems
install_downloads
join
use_proxy
say "node $name has joined; waiting until it is Ready"
wait_until_ready
say "node $name is Ready"
