# `kubeadm reset`, without the two ways in which it deletes data that is not kubeadm's. The sources of kubeadm 1.36 show these ways,
# in cmd/kubeadm/app/cmd/phases/reset:
#
# - The phase remove-etcd-member empties /var/lib/etcd if there is no manifest of etcd, and so deletes the data of an etcd that runs
#   as a service (kubernetes/kubeadm#3225).
# - The phase cleanup-node empties folders together with what is mounted below them. It unmounts only what is below
#   /var/lib/kubelet, an outer mount before the mounts in it. Older versions go on if that fails (kubernetes/kubeadm#2923).
readonly ETCD_DATA=/var/lib/etcd ETCD_MANIFEST=/etc/kubernetes/manifests/etcd.yaml KUBELET_DATA=/var/lib/kubelet
readonly UNMOUNT_LIMIT_SECONDS=60

# Whether a folder is missing, or has no entries. Ignores lost+found, which is at the top of a file system.
is_empty() {
  local entries
  [ -e "$1" ] || return 0
  entries=$(ls -A --ignore=lost+found -- "$1/") && [ -z "$entries" ]
}

# The folder that kubeadm's manifest mounts as etcd's data. Empty without a manifest.
data_of_manifest() {
  local key value path='' folder=''
  [ -e "$ETCD_MANIFEST" ] || return 0
  while read -r key value; do
    case $key:$value in path:*) path=$value ;; name::etcd-data) folder=$path ;; esac
  done <"$ETCD_MANIFEST"
  printf '%s' "$folder"
}

# The argument that keeps kubeadm from etcd's data. Nothing if there is a manifest of etcd.
skipped_phase() { [ -n "$(data_of_manifest)" ] || printf -- --skip-phases=remove-etcd-member; }

# Sets `mounts` to what is mounted below these folders. A mount stands after the mount that contains it.
find_mounts() {
  local lines line path folder real
  mapfile -t lines </proc/self/mounts || return 1
  mounts=()
  for folder in "$@"; do
    real=$(readlink -e -- "$folder") || continue
    for line in "${lines[@]}"; do
      line=${line#* }
      path=${line%% *}
      # In /proc/self/mounts, blanks and backslashes are octal escapes, see proc_pid_mounts(5).
      # shellcheck disable=SC2059
      printf -v path "${path//%/%%}"
      case $path in "$real"/*) mounts+=("$path") ;; esac
    done
  done
}

# Unmounts everything below the kubelet's folder. False if a mount is left where kubeadm deletes.
unmount_all() {
  local mounts index path
  find_mounts "$KUBELET_DATA" || return 1
  for ((index = ${#mounts[@]} - 1; index >= 0; index--)); do
    timeout "$UNMOUNT_LIMIT_SECONDS" umount -- "${mounts[index]}" >&2 || true
  done
  find_mounts "$KUBELET_DATA" /etc/kubernetes/manifests /etc/kubernetes/pki "$@" || return 1
  for path in "${mounts[@]}"; do
    printf 'error: kubeadm reset would delete the files in %q, which is still mounted: umount %q\n' "$path" "$path" >&2
  done
  [ "${#mounts[@]}" -eq 0 ]
}

# Runs `kubeadm reset`: reset_host KUBEADM ARGUMENT... It deletes etcd's data only if there is a manifest of etcd.
reset_host() {
  local kubeadm=$1 folder skipped
  shift
  folder=$(data_of_manifest)
  skipped=$(skipped_phase)
  # A running kubelet would mount volumes again.
  systemctl stop kubelet >&2 || true
  if systemctl is-active --quiet kubelet; then
    printf 'error: the kubelet does not stop: systemctl status kubelet\n' >&2
    return 1
  fi
  unmount_all ${folder:+"$folder"} || return 1
  "$kubeadm" reset --force ${skipped:+"$skipped"} "$@" >&2
}
