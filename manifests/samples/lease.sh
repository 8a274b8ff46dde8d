#!/bin/sh
# Runs a command with a customization of a cluster pool, and gives it back however the command ends:
#
#   lease.sh POOL NAMESPACE COMMAND [ARGUMENT...]
#
# The command finds KCP_CUSTOMIZATION and the others in its environment. `kubectl kcp pool exec` does the same, renews
# the lease, and ends the command when it is lost: this is for scripts that do more between the two.
set -eu
# Where the shell has it.
if (set -o pipefail) 2>/dev/null; then
    set -o pipefail
fi

pool=${1:?POOL is missing}
namespace=${2:?NAMESPACE is missing}
shift 2

# Chosen before the lease is asked for: it can be given back even by who never saw the answer.
# Random: in containers the process ids of two runs are often the same.
name=ci-$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')

give_back() {
    code=$?
    trap - EXIT
    # With nothing held this is 0. The lease ends by itself when it cannot be given back now.
    kubectl kcp pool release "$pool" -n "$namespace" --cluster-deployment "$name" >&2 ||
        echo "the lease of $name was not given back" >&2
    exit "$code"
}
trap give_back EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# 1 when no customization is free, 2 when nobody could tell: no such pool, no permission, no connection.
lease=$(kubectl kcp pool lease "$pool" -n "$namespace" --cluster-deployment "$name" --ttl 1h -o env)
set -a
eval "$lease"
set +a

"$@"
