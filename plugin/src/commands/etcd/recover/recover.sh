#!/bin/bash
# Makes the etcd member on this host the only member of its cluster. If the other members are lost for good, the member keeps its
# own data. If the data of all members is lost, the member gets the data of a snapshot.
# `kubectl kcp etcd recover` and `kubectl kcp etcd restore` write this script. It contains no secrets, but a snapshot does.
#
#   bash SCRIPT                        prints what the member on this host has, and changes nothing
#   bash SCRIPT --lost MEMBER,MEMBER   checks, keeps a copy of etcd's data, and makes the member the only one. The list names
#                                      every other member; if there is none, it is ''. Use --lost only if the hosts of these
#                                      members are off, and their data is lost or older. If one of these hosts runs, stop its
#                                      etcd for good, and write MEMBER:stopped
#
# Nothing is changed on the host until every check has passed. If the script is killed at any point, run it again.
set -euo pipefail
umask 077
export LC_ALL=C

# Values. Each line that ends with @@ is replaced by a value in single quotes.
nodes=@@          # the Nodes of the control plane, separated by blanks
survivor=@@       # the Node on whose host etcd continues; empty: not chosen yet, so the script only checks
continue_with=@@  # the command that does the rest
snapshot=@@       # the file in the folder of this script that is restored; empty: etcd continues with the data on this host
hash=@@           # the SHA-256 hash with which the snapshot ends, in hexadecimal digits; empty without a snapshot
others=@@         # with a snapshot: the other members, one JSON object a line, because the data on this host may not name them

readonly MANIFESTS=/etc/kubernetes/manifests
readonly MANIFEST=$MANIFESTS/etcd.yaml API_SERVER=$MANIFESTS/kube-apiserver.yaml
# What the next run needs after an interruption: the manifest as it was, the members, and the name of the copy.
readonly STATE=/etc/kubernetes/kcp-etcd-recovery
# The hash of the snapshot that was restored last, so that a second run does not discard what was written since.
readonly RESTORED=/etc/kubernetes/kcp-etcd-restored
# etcdutl from the image of etcd, only while this script runs.
readonly PROGRAM=/var/lib/kcp-etcdutl IMAGE_FOLDER=/var/lib/kcp-etcd-image
# How far the script raises the revision of a restored etcd above that of the snapshot, so that it exceeds every revision that a
# client has seen.
readonly BUMP_REVISION=1000000000
# How many times the script looks for a leader, once a second or slower. With a quorum, an election takes a second or two, so one of
# the samples finds a leader. Without a quorum, none does.
readonly SAMPLES=5 CONNECT_SECONDS=2
# Beside the copy, etcd and the kubelet need space.
readonly SPACE_MARGIN_KIB=524288
readonly KUBELET_LIMIT_SECONDS=40 STOP_LIMIT_SECONDS=120 START_LIMIT_SECONDS=300 API_LIMIT_SECONDS=600 RESTART_KUBELET_AFTER_SECONDS=20

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

problems=()
problem() { problems+=("$1"); }
stop_at_problems() {
  [ "${#problems[@]}" -gt 0 ] || return 0
  local text
  for text in "${problems[@]}"; do say "error: $text"; done
  [ "$stage" != new ] || say "nothing was changed on this host"
  exit 1
}

lost='' is_check=no
case ${1:-} in
  '') is_check=yes ;;
  --lost) lost=${2:-} ;;
  *) fail "unknown argument $1" ;;
esac
[ $# -eq 0 ] || { [ $# -eq 2 ] && [ -n "$lost$snapshot" ]; } || fail "--lost needs the names of all other members, separated by commas"
file=$(dirname "$(realpath "$0")")/$snapshot
[ "$(id -u)" -eq 0 ] || fail "run this script as root"
command -v curl >/dev/null || fail "curl is not installed"
exec 9>/run/kcp-etcd-recovery.lock
flock --nonblock 9 || fail "another run of this script has not ended"

# The value of a flag in the command of a manifest. Empty if it has no such flag.
flag() { sed -nE "s/^ *- $1=(.*)\$/\1/p" "$2" | head -n 1; }

# A number or text of a JSON document, by its name. Empty if it is absent. Numbers of 64 bits are text in etcd's JSON.
field() { [[ $2 =~ \"$1\":\"?([^\",}]*) ]] && printf '%s' "${BASH_REMATCH[1]}" || true; }

# Sends a request to the member on this host.
get() {
  curl --silent --fail --max-time 5 --cacert "$authority" --cert "${authority%/*}/healthcheck-client.crt" \
    --key "${authority%/*}/healthcheck-client.key" "$@"
}
ask() { get --data '{}' "$client_url/v3/$1"; }

# Reads `status`, `members` (one JSON object a line), and `leader` (empty without a leader) from the member. None of these reads
# needs a quorum.
ask_member() {
  local list
  status=$(ask maintenance/status) && list=$(ask cluster/member/list) || return 1
  leader=$(field leader "$status")
  [ "$leader" != 0 ] || leader=
  members=$(one_a_line "$list")
}
one_a_line() { sed -E 's/^(.*"members":)?\[//; s/\},\{/}\n{/g' <<<"$1"; }

# Does the same for a member that was started without a quorum. Until such a member has a quorum, it serves no clients, but only the
# other members, and its metrics. With HTTP/2, the port for members accepts only gRPC, so the script uses HTTP/1.1.
ask_started_member() {
  local list metrics
  is_running && list=$(get --http1.1 "$peer_url/members") && metrics=$(get "$metrics_url/metrics") || return 1
  [ -n "$(metric etcd_server_has_leader "$metrics")" ] || return 1
  leader=$(metric etcd_server_has_leader "$metrics")
  [ "$leader" != 0 ] || leader=
  status='{"raftIndex":"'$(metric etcd_server_proposals_applied_total "$metrics")'"'
  status+=',"revision":"'$(metric etcd_debugging_mvcc_current_revision "$metrics")'"}'
  members=$(one_a_line "$list")
}
# Prometheus writes large numbers with an exponent.
metric() { sed -nE "s/^$1 ([0-9.e+]+)\$/\1/p" <<<"$2" | xargs -r printf '%.0f'; }
count_members() { grep -cE '"(ID|id)":' <<<"$members"; }
other_members() { grep -vF "\"name\":\"$name\"" <<<"$members" || true; }

# Whether an etcd that uses this host's data runs, in a container of any pod: is_running [FLAG]. With FLAG, counts only an etcd that
# was started with this flag.
is_running() { [ -n "$(processes "$@")" ]; }
processes() {
  local process words word
  for process in /proc/[0-9]*; do
    { mapfile -d '' -t words <"$process/cmdline"; } 2>/dev/null || continue
    [ "${#words[@]}" -gt 0 ] && [ "${words[0]##*/}" = etcd ] || continue
    [ "$process/root$data_flag" -ef "$data" ] || continue
    if [ -z "${1:-}" ]; then printf '%s\n' "${process#/proc/}"; continue; fi
    for word in "${words[@]}"; do [ "$word" != "$1" ] || printf '%s\n' "${process#/proc/}"; done
  done
}

# Stops an etcd that should not run: end_without_kubelet [FLAG]. A kubelet that has reached no API server since it started stops no
# pod, even if the manifest of the pod is gone or has changed. It does not start the changed pod either. Such a kubelet has
# forgotten the old pod, so that it does not start the old pod again.
end_without_kubelet() {
  local process
  ! wait_until "$KUBELET_LIMIT_SECONDS" is_ended "$@" || return 0
  say "the kubelet does not stop etcd, so this script does"
  for process in $(processes "$@"); do kill "$process" 2>/dev/null || true; done
  wait_until "$STOP_LIMIT_SECONDS" is_ended "$@" ||
    fail "etcd has not ended within $STOP_LIMIT_SECONDS seconds: look at journalctl -u kubelet"
  systemctl restart kubelet
}
is_ended() { ! is_running "$@"; }

# Runs a command every second until it succeeds: wait_until SECONDS COMMAND...
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 1
  done
}

# How far an interrupted run came: `stopped` (it has stopped etcd), `forced` (it has started etcd with --force-new-cluster), or
# `restored` (it has replaced the data). In every other case, the stage is `new`: etcd may have changed since, so that everything is
# checked again.
stage=new source_manifest=$MANIFEST
if [ -e "$STATE/etcd.yaml" ]; then
  if [ -e "$STATE/restored" ]; then stage=restored
  elif [ ! -e "$MANIFEST" ]; then stage=stopped
  elif grep -q force-new-cluster "$MANIFEST"; then stage=forced; fi
  [ "$stage" = new ] || [ "$(cat "$STATE/hash" 2>/dev/null)" = "$hash" ] ||
    fail "another script has not ended on this host: run that script again first, as before"
  [ "$stage" = new ] || source_manifest=$STATE/etcd.yaml
fi
[ -e "$source_manifest" ] || fail "there is no $MANIFEST: no etcd member of kubeadm runs on this host; nothing was changed on this host"
data_flag=$(flag --data-dir "$source_manifest")
data=$(realpath -m "${data_flag:-/}")
name=$(flag --name "$source_manifest")
authority=$(flag --trusted-ca-file "$source_manifest")
client_url=$(flag --listen-client-urls "$source_manifest")
client_url=${client_url%%,*}
peer_url=$(flag --listen-peer-urls "$source_manifest")
peer_url=${peer_url%%,*}
metrics_url=$(flag --listen-metrics-urls "$source_manifest")
metrics_url=${metrics_url%%,*}
for value in data_flag name authority client_url peer_url; do
  [ -n "${!value}" ] || fail "the manifest of etcd is not one of kubeadm: it has no $value; nothing was changed on this host"
done

check_host() {
  case " $nodes " in
    *" $name "*) ;;
    *) problem "the etcd member on this host is $name, but the script is for the Nodes $nodes" ;;
  esac
  if [ "$is_check" = no ]; then
    if [ -z "$survivor" ]; then
      problem "this script only checks, because it was written without --survivor: run it without an argument on each host that is left; then write a new script with --survivor, for the host whose member has the highest raft index"
    elif [ "$name" != "$survivor" ]; then
      problem "the etcd member on this host is $name, but etcd is to continue on $survivor"
    fi
  fi
  systemctl is-active --quiet kubelet || problem "the kubelet does not run: systemctl start kubelet"
  if [ -n "$snapshot" ] && ! [ -d "$data" ]; then
    found+=("$data does not exist")
  elif [ -z "$snapshot" ] && { ! [ -f "$data/member/snap/db" ] || ! compgen -G "$data/member/wal/*.wal" >/dev/null; }; then
    problem "$data has no data of etcd"
  elif [ -n "$(find "$data" ! -type d ! -type f)" ] || grep -qe --wal-dir "$source_manifest"; then
    problem "a copy of $data would not be complete: etcd has a part of its data elsewhere (a symbolic link, or --wal-dir)"
  fi
  if [ "$(grep -cE '^ *- etcd$' "$source_manifest")" -ne 1 ] || grep -q force-new-cluster "$source_manifest"; then
    problem "the command in $source_manifest is not that of kubeadm: correct it"
  fi
}

# Copies etcdutl, from PATH or from the image of etcd, to a place where it stays while etcd does not run.
find_program() {
  local image known
  if known=$(command -v etcdutl); then
    cp "$known" "$PROGRAM"
  elif command -v ctr >/dev/null; then
    image=$(sed -nE 's/^ *image: *"?([^" ]+)"? *$/\1/p' "$source_manifest" | head -n 1)
    release_image
    mkdir -p "$IMAGE_FOLDER"
    ctr --namespace k8s.io images mount "$image" "$IMAGE_FOLDER" >/dev/null 2>&1 &&
      cp "$IMAGE_FOLDER/usr/local/bin/etcdutl" "$PROGRAM" 2>/dev/null || true
    release_image
  fi
}
release_image() {
  ! mountpoint --quiet "$IMAGE_FOLDER" || umount "$IMAGE_FOLDER"
  ctr --namespace k8s.io snapshots rm "$IMAGE_FOLDER" >/dev/null 2>&1 || true
  [ ! -d "$IMAGE_FOLDER" ] || rmdir "$IMAGE_FOLDER"
}
check_snapshot() {
  local end
  if [ ! -f "$file" ]; then
    problem "there is no $file: copy the snapshot to this host, beside this script, under this name"
    return
  fi
  end=$(tail --bytes=32 "$file" | od -An -v -tx1 | tr -d ' \n')
  if [ "$end" != "$hash" ] || [ "$(head --bytes=-32 "$file" | sha256sum | cut -d' ' -f1)" != "$hash" ]; then
    problem "$file is not the snapshot for which this script was written, or it is damaged: copy it again"
  fi
  find_program
  if [ ! -e "$PROGRAM" ]; then
    problem "there is no etcdutl in PATH, and none in the image of etcd on this host: copy etcdutl of the version of etcd to /usr/local/bin"
  elif ! "$PROGRAM" snapshot restore --help 2>&1 | grep -e --bump-revision >/dev/null; then
    problem "etcdutl is too old, because it does not know --bump-revision: copy a newer one of the same minor version to /usr/local/bin"
  fi
  found+=("snapshot: $file, $(stat --format=%s "$file") bytes")
}

check_space() {
  local needed available
  needed=$(du --summarize --block-size=1K "$data" 2>/dev/null | cut -f1) || needed=0
  [ -z "$snapshot" ] || [ ! -f "$file" ] || needed=$((needed + $(du --block-size=1K --apparent-size "$file" | cut -f1)))
  needed=$((needed + needed / 10 + SPACE_MARGIN_KIB))
  available=$(df --output=avail --block-size=1K "$(dirname "$data")" | tail -n 1)
  [ "$available" -gt "$needed" ] ||
    problem "$(dirname "$data") has $available KiB of space, but a copy of $data and a margin need $needed KiB"
}

# Prints "answers URL" if something listens at a peer URL, "refuses URL" if only its host responds, and otherwise nothing.
probe() {
  local place=${1#*://} host port text
  host=${place%:*} port=${place##*:}
  host=${host#[} host=${host%]}
  if text=$(timeout "$CONNECT_SECONDS" bash -c 'exec 3<>"/dev/tcp/$1/$2"' -- "$host" "$port" 2>&1); then
    printf 'answers %s\n' "$1"
  elif [[ $text == *refused* ]]; then
    printf 'refuses %s\n' "$1"
  fi
}
peer_urls() { sed -E 's/^.*"peerURLs"://; s/"clientURLs".*//' <<<"$1" | grep -oE '[a-z]+://[^"]*' || true; }

# check_members SAMPLES: reads the members, and checks that they have no quorum and that no other member runs. Sets `found` to the
# lines to print, and `is_only` to yes if etcd has only this member, and a leader.
check_members() {
  local sample member other url state wal list states='' has_leader=no has_restarted=no names=() term
  is_only=no status=''
  for ((sample = 0; sample < $1; sample++)); do
    if [ -n "$snapshot" ]; then
      members=$others leader=''
    elif [ "$stage" = stopped ]; then
      members=$(cat "$STATE/members") leader=''
    elif ! { [ "$has_restarted" = no ] && ask_member; } && ! { has_restarted=yes && ask_started_member; }; then
      if [ "$(field isLearner "$status")" = true ]; then
        problem "the etcd member on this host is a learner, which may lack data, so that etcd cannot continue here"
      else
        problem "the etcd member on this host does not respond at $client_url, and not at $peer_url and ${metrics_url:-its port for metrics} either: read its log: crictl logs \$(crictl ps -aq --name etcd | head -n 1)"
      fi
      return
    elif [ -n "$leader" ] && [ "$(count_members)" -eq 1 ]; then
      is_only=yes found=("etcd has only the member $name, and a leader")
      return
    fi
    [ -z "$leader" ] || has_leader=yes
    states+=$(for url in $(peer_urls "$(other_members)"); do probe "$url" & done; sleep 1; wait)$'\n'
  done
  [ "$has_leader" = no ] || problem "etcd has a leader, and so a quorum: it needs no recovery"
  [ "$(grep -F "\"name\":\"$name\"" <<<"$members" | grep -c '"isLearner":true')" -eq 0 ] ||
    problem "the etcd member on this host is a learner, which may lack data, so that etcd cannot continue here"
  while read -r member; do
    [ -n "$member" ] || continue
    other=$(field name "$member")
    [ -n "$other" ] || other=$(field '[Ii][Dd]' "$member")
    names+=("$other")
    state="does not answer"
    list=$(peer_urls "$member")
    for url in $list; do
      if grep -qxF "answers $url" <<<"$states"; then
        state=answers
        problem "the etcd member $other answers at $url: if its data is newer, let etcd continue there; otherwise stop it first, on its host: mv $MANIFEST /root/; then, if it still runs after a minute: pkill -x etcd"
      elif grep -qxF "refuses $url" <<<"$states"; then
        state="does not answer, but its host runs"
        [ "$is_check" = no ] || [ -z "$snapshot" ] || continue
        case ,$lost, in
          *",$other:stopped,"*) ;;
          *) problem "the host of the etcd member $other runs, so its etcd may start again: if its data is newer, let etcd continue there; otherwise stop it for good, on its host: mv $MANIFEST /root/; if it still runs after a minute: pkill -x etcd; then write $other:stopped after --lost" ;;
        esac
      fi
    done
    found+=("other member: $other, at ${list:-an unknown address}, $state")
    [ "$is_check" = no ] || continue
    case ,$lost, in
      *",$other,"* | *",$other:stopped,"*) ;;
      *) problem "--lost does not name the etcd member $other" ;;
    esac
  done <<<"$(other_members)"
  if [ "${#names[@]}" -eq 0 ] && [ -z "$snapshot" ]; then
    problem "etcd has only the member $name, which has no leader yet: run this script again"
  fi
  for other in ${lost//,/ }; do
    case " ${names[*]} " in
      *" ${other%:stopped} "*) ;;
      *) problem "--lost names ${other%:stopped}, but the other etcd members are: ${names[*]}" ;;
    esac
  done
  if [ -n "$snapshot" ]; then
    status=$(ask maintenance/status) || status=
    [ -z "$status" ] || found+=("the member on this host has revision $(field revision "$status"): the restore replaces its data")
    [ "${#problems[@]}" -gt 0 ] ||
      found+=("only if the hosts of these members are off, or their etcd is stopped for good, run this script with: --lost '$(IFS=,; printf '%s' "${names[*]}")', and :stopped after the name of each member whose host runs")
    return
  fi
  # etcd fills the next WAL file before it uses that file. Until then, the name of the file ends in .tmp.
  wal=$(find "$data/member/wal" -name '*.wal' -printf '%T@\n' | sort -n | tail -n 1)
  wal=$(date -u -d "@${wal%.*}" +%Y-%m-%dT%H:%M:%SZ)
  state="without a leader"
  [ "$has_leader" = no ] || state="with a leader"
  found+=("member: $name, $state")
  term=$(field raftTerm "$status")
  found+=("raft index: $(field raftIndex "$status")${term:+, of term $term}" "revision: $(field revision "$status")")
  [ "$has_restarted" = no ] ||
    found+=("the member was started without a quorum: if it was killed before, for example by a loss of power, it discards its very last writes")
  found+=("newest write: not later than $wal")
  if [ -n "$survivor" ] && [ "${#problems[@]}" -eq 0 ]; then
    found+=("only if the hosts of these members are off, and their data is lost or older, run this script with: --lost $(IFS=,; printf '%s' "${names[*]}")")
  fi
}

# Writes a manifest to the kubelet's folder in one step: install_manifest < CONTENT
install_manifest() {
  cat >"$STATE/manifest"
  if cmp --silent "$STATE/manifest" "$MANIFEST"; then return; fi
  sync "$STATE/manifest"
  mv "$STATE/manifest" "$MANIFEST"
}

# Whatever ends a run early, the kubelet gets the manifest back as it was.
put_back() {
  local code=$?
  rm -f "$PROGRAM"
  [ "$code" -ne 0 ] && [ -e "$STATE/etcd.yaml" ] || return 0
  [ ! -s "$STATE/copy" ] || rm -rf "$(cat "$STATE/copy").partial"
  if install_manifest <"$STATE/etcd.yaml"; then
    say "$MANIFEST is as it was; run this script again"
  else
    say "put the manifest of etcd back: cp $STATE/etcd.yaml $MANIFEST"
  fi
}

begin() {
  [ ! -s "$STATE/copy" ] || rm -rf "$(cat "$STATE/copy").partial"
  rm -rf "$STATE"
  mkdir "$STATE"
  printf '%s\n' "$members" >"$STATE/members"
  printf '%s' "$hash" >"$STATE/hash"
  cp -p "$MANIFEST" "$STATE/etcd.yaml.new"
  sync "$STATE/members" "$STATE/hash" "$STATE/etcd.yaml.new"
  mv "$STATE/etcd.yaml.new" "$STATE/etcd.yaml"
  sync "$STATE"
  trap put_back EXIT
}

# The files of a folder, with their sizes and times.
files() { find "$1" -type f -printf '%P %s %T@\n' | sed -E 's/\.[0-9]+$//' | sort; }

keep_copy() {
  # Once this mark exists, the folder contains data of the snapshot, of which no copy is needed.
  [ ! -e "$STATE/kept" ] || return 0
  say "stopping etcd"
  rm -f "$MANIFEST"
  # An etcd without data fails and starts again and again, so it may be between two starts. A kubelet that has just started does not
  # start it without the manifest.
  [ -z "$snapshot" ] || systemctl restart kubelet
  end_without_kubelet
  [ -d "$data" ] || return 0
  copy=$(cat "$STATE/copy" 2>/dev/null) || copy=
  if [ -n "$copy" ]; then
    [ ! -d "$copy" ] || [ "$(files "$copy")" != "$(files "$data")" ] || return 0
    rm -rf "$copy.partial"
  fi
  copy=$data-before-recovery-$(date -u +%Y%m%dT%H%M%SZ)
  printf '%s' "$copy" >"$STATE/copy"
  sync "$STATE/copy"
  say "copying $data to $copy"
  cp --archive --reflink=auto "$data" "$copy.partial"
  [ "$(files "$copy.partial")" = "$(files "$data")" ] || fail "the copy differs from $data"
  sync --file-system "$copy.partial"
  mv "$copy.partial" "$copy"
  sync "${copy%/*}"
}

# Restores the snapshot. etcd must not be running.
restore() {
  local partial=$data/restored advertised
  advertised=$(flag --initial-advertise-peer-urls "$STATE/etcd.yaml")
  mark kept
  say "restoring $file"
  mkdir -p "$data"
  chmod 700 "$data"
  rm -rf "$partial"
  # The token gives the cluster a new id, so that no member of the old cluster can talk to this one.
  "$PROGRAM" snapshot restore "$file" --data-dir "$partial" --name "$name" --initial-cluster "$name=$advertised" \
    --initial-advertise-peer-urls "$advertised" --initial-cluster-token "restored-$(date +%s)-$RANDOM" \
    --bump-revision "$BUMP_REVISION" --mark-compacted >"$STATE/log" 2>&1 ||
    { rm -rf "$partial"; fail "etcdutl cannot restore the snapshot: $(tail -n 1 "$STATE/log")"; }
  sync --file-system "$partial"
  rm -rf "$data/member"
  mv "$partial/member" "$data/member"
  rmdir "$partial"
  sync --file-system "$data"
  mark restored
}
# Records a step, so that later runs know that it was done.
mark() {
  : >"$STATE/$1"
  sync "$STATE/$1" "$STATE"
}

start() {
  wait_until "$START_LIMIT_SECONDS" "$@" ||
    fail "etcd does not serve after $START_LIMIT_SECONDS seconds: read its log: crictl logs \$(crictl ps -aq --name etcd | head -n 1)${copy:+; its data as it was is in $copy}"
}

# With --force-new-cluster, etcd forgets the other members before it serves.
is_forced() { is_running --force-new-cluster && ask_member && [ -n "$leader" ]; }
forget_others() {
  say "starting etcd with --force-new-cluster"
  sed -E 's/^( *)- etcd$/&\n\1- --force-new-cluster/' "$STATE/etcd.yaml" | install_manifest
  start is_forced
  # Some versions of etcd do not sync what they have committed.
  sync --file-system "$data"
}

# With --force-new-cluster, each start of etcd would remove members that have joined since.
is_without_flag() { ! is_running --force-new-cluster && is_running && ask_member && [ -n "$leader" ]; }

is_served() {
  local port
  port=$(flag --secure-port "$API_SERVER")
  # The name is in the certificate of every API server.
  curl --silent --fail --output /dev/null --max-time 5 --cacert /etc/kubernetes/pki/ca.crt \
    --cert /etc/kubernetes/pki/apiserver-kubelet-client.crt --key /etc/kubernetes/pki/apiserver-kubelet-client.key \
    --resolve "kubernetes.default.svc:${port:-6443}:127.0.0.1" "https://kubernetes.default.svc:${port:-6443}/readyz"
}

# If a container has failed for a while, the kubelet waits up to five minutes before it starts the container again. A restart of the
# kubelet ends the wait.
serve() {
  [ -e "$API_SERVER" ] || return 0
  say "waiting until the API server serves"
  if wait_until "$RESTART_KUBELET_AFTER_SECONDS" is_served; then return; fi
  systemctl restart kubelet
  wait_until "$API_LIMIT_SECONDS" is_served ||
    fail "etcd has only this member and serves, but the API server does not serve after $API_LIMIT_SECONDS seconds: read its log: crictl logs \$(crictl ps -aq --name kube-apiserver | head -n 1)"
}

found=() is_only=no
trap 'rm -f "$PROGRAM"' EXIT
[ "$stage" = new ] || [ "$is_check" = yes ] || trap put_back EXIT
check_host
# In the stages forced and restored, an earlier run has passed these checks, and has changed what they check.
if [ -n "$snapshot" ] && [ "$stage" = new ] && [ "$(cat "$RESTORED" 2>/dev/null)" = "$hash" ]; then
  is_only=yes
  say "this snapshot was restored on this host already; to restore it again, and lose what was written since, first remove $RESTORED"
elif [ "$stage" = new ] || [ "$stage" = stopped ]; then
  [ -z "$snapshot" ] || check_snapshot
  check_members "$SAMPLES"
fi
[ "$stage" != new ] || [ "$is_only" = yes ] || check_space
if [ "$is_check" = yes ]; then
  [ "$stage" = new ] || found=("a recovery on this host has not ended: run this script again as before, with --lost")
  [ "${#found[@]}" -eq 0 ] || printf '%s\n' "${found[@]}"
  stop_at_problems
  exit 0
fi
stop_at_problems
if [ "$stage" = new ] && [ "$is_only" = no ]; then
  begin
  check_members 1
  stop_at_problems
fi
copy=$(cat "$STATE/copy" 2>/dev/null) || copy=
if [ "$stage" = forced ] || [ "$stage" = restored ] || [ "$is_only" = no ]; then
  if [ "$stage" = new ] || [ "$stage" = stopped ]; then
    keep_copy
    [ -z "$snapshot" ] || restore
  fi
  [ -n "$snapshot" ] || forget_others
  say "starting etcd as before"
  install_manifest <"$STATE/etcd.yaml"
  # After an etcd without data has failed for a while, the kubelet waits for minutes before it starts etcd again. A restart of the
  # kubelet ends the wait. It also makes the kubelet register its Node again.
  [ -z "$snapshot" ] || systemctl restart kubelet
fi
end_without_kubelet --force-new-cluster
start is_without_flag
if [ -n "$snapshot" ] && [ "$is_only" = no ]; then
  printf '%s' "$hash" >"$RESTORED"
  sync "$RESTORED"
fi
trap - EXIT
rm -f "$PROGRAM"
[ -z "$copy" ] || say "the data as it was before is in $copy"
rm -rf "$STATE"
serve
say "etcd on $name serves, and so does its API server; next: $continue_with"
