#!/bin/sh
# Boots a machine: boot.sh FOLDER NAME ADDRESS PREFIX PROGRAMS SWITCH [HOLDER]
#
# This script runs three times, each time in more namespaces, and then becomes the machine's first process, systemd. FOLDER
# is the machine's folder, PREFIX the first three numbers of ADDRESS, PROGRAMS a folder that lies over the host's /usr,
# SWITCH a process in the network namespace of the switch, and HOLDER, if given, a process in whose mount namespace the machine's
# disk is mounted.
set -eu

stage=${stage:-cgroups} folder=$1 name=$2 address=$3 prefix=$4 programs=$5 switch=$6 holder=${7:-}
number=${address##*.}

# In the host's namespaces: enters the cgroups, because they are the roots that the new cgroup namespace has.
if [ "$stage" = cgroups ]; then
    while read -r _ path; do echo $$ >"$path/cgroup.procs"; done <"$folder/cgroups"
    stage=network exec ${holder:+nsenter --target "$holder" --mount} unshare --net "$0" "$@"
fi

# In a network namespace of its own: connects it to the switch. The namespace ends with the last process of the machine, and
# the cable with the namespace. The kernel may still be removing the cable of a machine that was switched off.
if [ "$stage" = network ]; then
    cable=v-$number
    nsenter --target "$switch" --net ip link delete "$cable" 2>/dev/null || true
    # A random MAC address would leave the others with an outdated one for up to 45 seconds after a power-off.
    ip link add eth0 address "02:4b:43:50:00:$(printf %02x "$number")" type veth peer name "$cable" netns "$switch"
    nsenter --target "$switch" --net ip link set "$cable" master bridge up
    ip link set lo up
    ip address add "$address/24" dev eth0
    ip link set eth0 up
    # The pods of the machine with address PREFIX.N have addresses in 10.244.N.0/24.
    {
        echo "route add default via $prefix.1"
        other=11
        while [ "$other" -le 30 ]; do
            [ "$other" = "$number" ] || echo "route add 10.244.$other.0/24 via $prefix.$other"
            other=$((other + 1))
        done
    } | ip -batch -
    # `--kill-child`: the kernel ends the machine when this process ends, however that happens.
    stage=machine exec unshare --mount --uts --ipc --cgroup --pid --fork --kill-child --propagation private "$0" "$@"
fi

# In all of its own namespaces. /proc is still the host's: it has the number by which the host knows this process.
read -r pid _ </proc/self/stat
echo "$pid" >"$folder/pid"
hostname "$name"
root=$folder/disk/root
mount --bind "$root" "$root"
mount -t overlay overlay -o "lowerdir=$programs:/usr,upperdir=$folder/disk/usr/upper,workdir=$folder/disk/usr/work" "$root/usr"
mount -t proc -o nosuid,noexec,nodev proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
while read -r controllers _; do
    # systemd mounts the second version of cgroups itself.
    [ "$controllers" != unified ] || continue
    mkdir "$root/sys/fs/cgroup/$controllers"
    case $controllers in
    systemd) options=none,name=systemd ;;
    *) options=$controllers ;;
    esac
    mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup/$controllers"
done <"$folder/cgroups"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
for device in null zero full random urandom tty kmsg; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
# The kubelet and the API server write these settings of the kernel, which the host and all machines share. Here they write files.
mkdir "$root/run/kernel"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    path=${setting%=*}
    file=$root/run/kernel/$(echo "$path" | tr / .)
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "$root/proc/sys/$path"
done
echo 1 >"$root/proc/sys/net/ipv4/ip_forward"
cd "$root"
mkdir -p mnt
pivot_root . mnt
umount --lazy /mnt
mount --make-rshared /
# The marker of the run stays in the environment, by which tests/leftovers finds this process.
exec env -i "KCP_TEST_RUN=${KCP_TEST_RUN:-}" container=kcp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot . /lib/systemd/systemd --system --log-target=console --show-status=no
