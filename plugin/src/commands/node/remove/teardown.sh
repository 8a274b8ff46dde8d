#!/bin/bash
# Removes Kubernetes from this host, after its Node was removed from the cluster.
# Written by `kubectl kcp node remove`. It contains no secrets.
set -euo pipefail

node_name=@@

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "run this script as root"
name=$(uname -n | tr '[:upper:]' '[:lower:]')
[ "$name" = "$node_name" ] || fail "this host is $name, but the script is for $node_name"

@@reset.sh

folder=$(data_of_manifest)
if [ "$folder" != "$ETCD_DATA" ] && ! is_empty "$ETCD_DATA"; then
  say "$ETCD_DATA stays as it is: its data is not that of an etcd member that kubeadm created"
fi
# Stops the pods, and removes certificates, manifests, the data of kubeadm's etcd member and the kubelet's state. The member has
# left etcd before. Without a kubeconfig, kubeadm takes the folder of the data from the manifest, not from the cluster.
reset_host kubeadm --kubeconfig /dev/null ||
  fail "Kubernetes is not removed from $name: correct what is named above, and run this script again"

# kubeadm leaves the configuration and the state of network plugins. The folder itself stays: containerd does not watch a folder
# that was removed and created again, so a host that joined again would not become Ready.
if [ -d /etc/cni/net.d ]; then find /etc/cni/net.d -xdev -mindepth 1 -delete; fi
rm -rf --one-file-system /var/lib/cni

# Rules of kube-proxy and of network plugins: kubeadm leaves them too.
remove_rules() {
  local save=$1-save restore=$1-restore
  command -v "$save" >/dev/null && command -v "$restore" >/dev/null || return 0
  "$save" | sed -E '/(KUBE|CNI)-/d' | "$restore"
}
for program in iptables ip6tables; do
  remove_rules "$program" || say "warning: could not remove the rules of $program"
done
if command -v nft >/dev/null; then
  for family in ip ip6; do
    if nft list table "$family" kube-proxy >/dev/null 2>&1; then nft delete table "$family" kube-proxy; fi
  done
fi
# Without this interface, kube-proxy made none of the IPVS rules.
if [ -e /sys/class/net/kube-ipvs0 ] && command -v ipvsadm >/dev/null; then ipvsadm --clear; fi
for interface in cni0 kube-ipvs0 flannel.1; do
  if [ -e "/sys/class/net/$interface" ]; then ip link delete "$interface"; fi
done

# What kubectl kcp and kcp-webhook put on the host.
rm -rf --one-file-system /etc/kubernetes/kcp-webhook /etc/kubernetes/kcp-webhook-admission /etc/kubernetes/kcp-api-proxy /etc/kubectl-kcp

say "Kubernetes is removed from $name"
