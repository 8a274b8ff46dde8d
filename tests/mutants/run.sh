#!/bin/sh
# Applies each patch of this folder to a copy of the sources, each of which brings back a mistake in the lease protocol, and requires
# that the simulation finds it within RUNS schedules. Prints the seed. With names of patches, only these.
set -eu
repo=$(cd "$(dirname "$0")/../.." && pwd)
copy=${COPY:-$repo/target/mutants}
if [ "$copy" != "$repo" ]; then
    mkdir -p "$copy"
    (cd "$repo" && git ls-files -z | tar --create --null --files-from=-) | tar --extract --directory="$copy"
fi
survivors=0
for patch in "$repo"/tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -eq 0 ] || echo " $* " | grep -q " $name " || continue
    patch --quiet --strip=1 --directory="$copy" <"$patch"
    log=$copy/target/$name.log
    mkdir -p "$copy/target"
    # shellcheck disable=SC2086
    if (cd "$copy" && RUNS=${RUNS:-20000} cargo test --quiet --package kcp-pool --all-features --lib --locked ${OPTIONS:-} \
        -- --ignored many_schedules >"$log" 2>&1); then
        echo "$name: not found"
        survivors=1
    else
        echo "$name: $(grep -e '^found after' "$log" || echo "does not compile, see $log") ($(grep -e '^SEED=' "$log" | cut -c1-110))"
    fi
    patch --quiet --strip=1 --reverse --directory="$copy" <"$patch"
done
exit $survivors
