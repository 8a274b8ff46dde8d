#!/bin/sh
# Removes the cgroups of a machine whose first process has ended: remove-cgroups.sh FILE
#
# Each line of FILE has controllers and a path. The kernel may still be ending processes of the machine.
set -eu

attempt=0
while :; do
    left=
    while read -r _ path; do
        [ -d "$path" ] || continue
        find "$path" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ ! -d "$path" ] || left=$path
        # The folder of the run, after its last machine.
        rmdir "${path%/*}" 2>/dev/null || true
    done <"$1"
    [ -n "$left" ] || exit 0
    attempt=$((attempt + 1))
    [ "$attempt" -lt 300 ] || { echo "error: $left still has processes: $(tr '\n' ' ' <"$left/cgroup.procs")" >&2; exit 1; }
    sleep 0.1
done
