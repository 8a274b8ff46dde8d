#!/bin/sh
# Leases a customization of a cluster pool, runs a command, and releases the lease when the command ends:
#
#   lease.sh POOL NAMESPACE COMMAND [ARGUMENT...]
#
# The command gets KCP_CUSTOMIZATION and the other variables in its environment. `kubectl kcp pool exec` does the same, and
# also renews the lease and stops the command if the lease is lost. Use this script if you need more steps in between.
set -eu
# Not every sh has pipefail.
if (set -o pipefail) 2>/dev/null; then
    set -o pipefail
fi

pool=${1:?POOL is missing}
namespace=${2:?NAMESPACE is missing}
shift 2

# The id of the lease, once it is known: only this lease is released, never a later one of the same name.
id=
# The name is chosen before the lease is acquired, so that the lease can be released even if the answer got lost. It is
# random, because two runs in containers often have the same process id.
name=ci-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')

release() {
    code=$?
    trap - EXIT
    # Exits with 0 if there is no lease. If the release fails, the lease expires.
    kubectl kcp pool release "$pool" -n "$namespace" --cluster-deployment "$name" ${id:+--id "$id"} >&2 ||
        echo "could not release the lease of $name" >&2
    exit "$code"
}
trap release EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Exits with 1 if no customization is free, and with 2 on an error, such as an unknown pool, no permission or no connection.
lease=$(kubectl kcp pool lease "$pool" -n "$namespace" --cluster-deployment "$name" --ttl 1h --no-cluster -o env)
set -a
eval "$lease"
set +a
id=$KCP_LEASE_ID

"$@"
