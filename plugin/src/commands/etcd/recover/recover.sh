#!/bin/bash
# Makes the etcd member on this host the only one of its cluster, after the other members were lost for good.
# Written by `kubectl kcp etcd recover`. It contains no secrets.
#
#   bash SCRIPT --check   prints what the member on this host has, and changes nothing
#   bash SCRIPT           checks, keeps a copy of etcd's data, and makes the member the only one
#
# Nothing is changed on the host until every check has passed. If the script is killed at any point, it continues when it runs again.
set -euo pipefail
umask 077

# Values. Each line that ends with @@ is replaced by a value in single quotes.
nodes=@@          # the Nodes of the control plane, separated by blanks
survivor=@@       # the Node on whose host etcd continues; empty: not chosen yet, so the script only checks
continue_with=@@  # the command that does the rest

readonly MANIFESTS=/etc/kubernetes/manifests
readonly MANIFEST=$MANIFESTS/etcd.yaml API_SERVER=$MANIFESTS/kube-apiserver.yaml
# What an interrupted run needs: the manifest as it was, the folder of the copy, and whether the member is the only one.
readonly STATE=/etc/kubernetes/kcp-etcd-recovery
# A member without a quorum elects no leader. An election takes a second or two.
readonly LEADER_SAMPLES=5
readonly STOP_LIMIT_SECONDS=120 START_LIMIT_SECONDS=300 API_LIMIT_SECONDS=600 RESTART_KUBELET_AFTER_SECONDS=20

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

problems=()
problem() { problems+=("$1"); }
stop_at_problems() {
  [ "${#problems[@]}" -gt 0 ] || return 0
  local text
  for text in "${problems[@]}"; do say "error: $text"; done
  say "nothing was changed on this host"
  exit 1
}

case ${1:-} in
  --check) only_checks=yes ;;
  '') only_checks=no ;;
  *) fail "unknown argument $1: use --check, or no argument" ;;
esac
[ "$(id -u)" -eq 0 ] || fail "run this script as root"
command -v curl >/dev/null || fail "curl is not installed"
exec 9>/run/kcp-etcd-recovery.lock
flock --nonblock 9 || fail "another run of this script has not ended"

# The value of a flag in the command of a manifest. Empty if it has no such flag.
flag() { sed -nE "s/^ *- $1=(.*)\$/\1/p" "$2" | head -n 1; }

# A number or text of a JSON document, by its name. Empty if it is absent. Numbers of 64 bits are text in etcd's JSON.
field() { [[ $2 =~ \"$1\":\"?([^\",}]*) ]] && printf '%s' "${BASH_REMATCH[1]}" || true; }

# Sends a request to the member on this host. It needs no quorum.
ask() {
  curl --silent --fail --max-time 5 --cacert "$authority" --cert "${authority%/*}/healthcheck-client.crt" \
    --key "${authority%/*}/healthcheck-client.key" --data '{}' "$client_url/v3/$1"
}

# Reads `status`, `members` (one JSON object a line), `own_id`, and `leader` (empty without a leader) from the member.
ask_member() {
  local list
  status=$(ask maintenance/status) && list=$(ask cluster/member/list) || return 1
  members=$(sed -E 's/^.*"members":\[//; s/\},\{/}\n{/g' <<<"$list")
  own_id=$(field member_id "$status")
  leader=$(field leader "$status")
  [ "$leader" != 0 ] || leader=
}
count_members() { grep -c '"ID":' <<<"$members"; }
is_only_member() { ask_member && [ "$(count_members)" -eq 1 ] && [ "$leader" = "$own_id" ]; }

# Whether an etcd with this host's data runs, in the container of any pod: is_running [FLAG]. With a flag, only one that has it.
is_running() {
  local process words word
  for process in /proc/[0-9]*; do
    { mapfile -d '' -t words <"$process/cmdline"; } 2>/dev/null || continue
    [ "${#words[@]}" -gt 0 ] && [ "${words[0]##*/}" = etcd ] || continue
    [ "$process/root$data" -ef "$data" ] || continue
    [ -n "${1:-}" ] || return 0
    for word in "${words[@]}"; do [ "$word" != "$1" ] || return 0; done
  done
  return 1
}

# Runs a command every second until it succeeds: wait_until SECONDS COMMAND...
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 1
  done
}

# The manifest as it was before this script changed it.
source_manifest=$MANIFEST
is_begun=no
if [ -e "$STATE/etcd.yaml" ]; then source_manifest=$STATE/etcd.yaml is_begun=yes; fi
[ -e "$source_manifest" ] || fail "there is no $MANIFEST: no etcd member of kubeadm runs on this host; nothing was changed on this host"
data=$(flag --data-dir "$source_manifest")
name=$(flag --name "$source_manifest")
authority=$(flag --trusted-ca-file "$source_manifest")
client_url=$(flag --listen-client-urls "$source_manifest")
client_url=${client_url%%,*}
for value in data name authority client_url; do
  [ -n "${!value}" ] || fail "the manifest of etcd is not one of kubeadm: it has no $value; nothing was changed on this host"
done

check_host() {
  case " $nodes " in
    *" $name "*) ;;
    *) problem "the etcd member on this host is $name, but the script is for the Nodes $nodes" ;;
  esac
  if [ "$only_checks" = no ]; then
    if [ -z "$survivor" ]; then
      problem "this script only checks: run it with --check on each host that is left, and write a new script for the host whose member has the newest raft index, with --survivor"
    elif [ "$name" != "$survivor" ]; then
      problem "the etcd member on this host is $name, but etcd is to continue on $survivor"
    fi
  fi
  systemctl is-active --quiet kubelet || problem "the kubelet does not run: systemctl start kubelet"
  [ -d "$data/member" ] || problem "$data has no data of etcd"
  if [ "$(grep -cE '^ *- etcd$' "$source_manifest")" -ne 1 ] || grep -q force-new-cluster "$source_manifest"; then
    problem "the command in $source_manifest is not that of kubeadm: correct it"
  fi
}

check_space() {
  local needed available
  needed=$(du --summarize --block-size=1K "$data" | cut -f1)
  available=$(df --output=avail --block-size=1K "$(dirname "$data")" | tail -n 1)
  [ "$available" -gt "$needed" ] ||
    problem "$(dirname "$data") has $available KiB of space, but a copy of $data needs $needed KiB"
}

# Whether something listens at the peer URL of a member.
answers() {
  local place=${1#*://} host port
  host=${place%:*} port=${place##*:}
  host=${host#[} host=${host%]}
  timeout 3 bash -c 'exec 3<>"/dev/tcp/$1/$2"' -- "$host" "$port" 2>/dev/null
}

# Reads the members, checks that they have no quorum and that no other member runs, and sets `found` to what to print.
check_members() {
  local sample member other url state wal
  found=()
  if ! ask_member; then
    problem "the etcd member on this host does not respond at $client_url: read its log: crictl logs \$(crictl ps -aq --name etcd | head -n 1)"
    return
  fi
  for ((sample = 1; sample < LEADER_SAMPLES; sample++)); do
    [ -z "$leader" ] || break
    sleep 1
    ask_member || true
  done
  if is_only_member; then return; fi
  [ -z "$leader" ] || problem "etcd has a leader, and so a quorum: it needs no recovery"
  while read -r member; do
    [ "$(field ID "$member")" != "$own_id" ] || continue
    other=$(field name "$member")
    url=$(grep -oE '"peerURLs":\["[^"]*' <<<"$member" | cut -d '"' -f 4)
    state="does not answer"
    if [ -n "$url" ] && answers "$url"; then
      state=answers
      problem "the etcd member ${other:-without a name} answers at $url: if its data is newer (compare with --check), let etcd continue there; otherwise stop it first, on its host: mv $MANIFEST /root/"
    fi
    found+=("other member: ${other:-(not started)}, at ${url:-an unknown address}, $state")
  done <<<"$members"
  # etcd fills the next file before it uses it; its name ends in .tmp.
  wal=$(find "$data/member/wal" -name '*.wal' -printf '%T@\n' | sort -n | tail -n 1)
  wal=$(date -u -d "@${wal%.*}" +%Y-%m-%dT%H:%M:%SZ)
  state="with a leader"
  [ -n "$leader" ] || state="without a leader"
  found+=("member: $name, id $own_id, $state"
    "raft index: $(field raftIndex "$status"), of term $(field raftTerm "$status")"
    "revision: $(field revision "$status")"
    "newest write: not later than $wal")
}

# A run that was interrupted has passed these checks, and has changed what they check.
checked() {
  check_host
  if [ "$is_begun" = no ]; then
    check_members
    check_space
  fi
}

# Writes a manifest to the kubelet's folder at once: install_manifest < CONTENT
install_manifest() {
  cat >"$STATE/manifest"
  if cmp --silent "$STATE/manifest" "$MANIFEST"; then return; fi
  sync "$STATE/manifest"
  mv "$STATE/manifest" "$MANIFEST"
}

begin() {
  rm -rf "$STATE"
  mkdir "$STATE"
  printf '%s-before-recovery-%s' "${data%/}" "$(date -u +%Y%m%dT%H%M%SZ)" >"$STATE/copy"
  cp -p "$MANIFEST" "$STATE/etcd.yaml.new"
  sync "$STATE/copy" "$STATE/etcd.yaml.new"
  mv "$STATE/etcd.yaml.new" "$STATE/etcd.yaml"
}

is_stopped() { ! is_running; }

keep_copy() {
  copy=$(cat "$STATE/copy")
  [ ! -e "$copy" ] || return 0
  say "stopping etcd"
  rm -f "$MANIFEST"
  wait_until "$STOP_LIMIT_SECONDS" is_stopped ||
    fail "the kubelet has not stopped etcd within $STOP_LIMIT_SECONDS seconds: look at journalctl -u kubelet, and run this script again"
  say "copying $data to $copy"
  rm -rf "$copy.partial"
  cp --archive --reflink=auto "$data" "$copy.partial"
  sync --file-system "$copy.partial"
  mv "$copy.partial" "$copy"
}

start() {
  wait_until "$START_LIMIT_SECONDS" "$@" ||
    fail "etcd does not serve as the only member after $START_LIMIT_SECONDS seconds: read its log: crictl logs \$(crictl ps -aq --name etcd | head -n 1); its data as it was is in $copy; run this script again"
}

forget_others() {
  [ ! -e "$STATE/only-member" ] || return 0
  say "starting etcd with --force-new-cluster"
  sed -E 's/^( *)- etcd$/&\n\1- --force-new-cluster/' "$STATE/etcd.yaml" | install_manifest
  start is_only_member
  touch "$STATE/only-member"
  sync "$STATE"
}

# With the flag, each start of etcd would remove members that have joined since.
is_without_flag() { ! is_running --force-new-cluster && is_running && ask_member && [ -n "$leader" ]; }
start_as_before() {
  say "starting etcd as before"
  install_manifest <"$STATE/etcd.yaml"
  start is_without_flag
}

is_served() {
  local port
  port=$(flag --secure-port "$API_SERVER")
  # The name is in the certificate of every API server.
  curl --silent --fail --output /dev/null --max-time 5 --cacert /etc/kubernetes/pki/ca.crt \
    --cert /etc/kubernetes/pki/apiserver-kubelet-client.crt --key /etc/kubernetes/pki/apiserver-kubelet-client.key \
    --resolve "kubernetes.default.svc:${port:-6443}:127.0.0.1" "https://kubernetes.default.svc:${port:-6443}/readyz"
}

# The kubelet waits up to five minutes before it starts a container again that has failed for a while. A restart ends the wait.
serve() {
  [ -e "$API_SERVER" ] || return 0
  say "waiting until the API server serves"
  if wait_until "$RESTART_KUBELET_AFTER_SECONDS" is_served; then return; fi
  systemctl restart kubelet
  wait_until "$API_LIMIT_SECONDS" is_served ||
    fail "etcd is the only member and serves, but the API server does not after $API_LIMIT_SECONDS seconds: crictl logs \$(crictl ps -aq --name kube-apiserver | head -n 1)"
}

checked
if [ "$only_checks" = yes ]; then
  if [ "$is_begun" = yes ]; then found=("a recovery on this host has not ended: run the script without --check"); fi
  printf '%s\n' "${found[@]:-etcd has only the member $name, and a leader}"
  stop_at_problems
  exit 0
fi
stop_at_problems
if [ "$is_begun" = yes ] || ! is_only_member; then
  [ "$is_begun" = yes ] || begin
  keep_copy
  forget_others
  start_as_before
  # The manifest says whether a run was interrupted.
  rm "$STATE/etcd.yaml"
  rm -rf "$STATE"
  say "the data as it was before is in $copy"
fi
serve
say "etcd on $name has one member, and its API server serves; next: $continue_with"
