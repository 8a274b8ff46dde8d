#!/bin/sh
# Reports why kubeadm has failed on this host: join-report.sh PROCESS SECONDS
#
# kubectl kcp generate join-report prints this file and the command that starts it, before kubeadm, in a unit of its own. PROCESS is
# the shell that runs kubeadm. After SECONDS, a kubeadm that still runs is reported, too, if a cause is found. A kubeadm
# that succeeds before is not reported.
#
# The report has a sentence from the list below, and at most eight lines of logs. A line is reported only if the list has a pattern
# for it, and if it names no token, key, certificate, password or secret. The report is an Event, which this host creates with the
# kubelet's certificate, or else with kubeadm's token. If no Event can be created, the report is one line on the console.
#
# cloud-init reads this file as a template of Jinja: no opening brace may precede another one, a percent sign or a hash sign.
set -u
umask 077
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin

process=$1 seconds=$2
success=/run/cluster-api/bootstrap-success.complete
authority=/etc/kubernetes/pki/ca.crt
kubelet=/var/lib/kubelet/pki/kubelet-client-current.pem
# cloud-init's, and Ignition's.
config=/run/kubeadm/kubeadm-join-config.yaml
[ -e "$config" ] || config=/etc/kubeadm.yml
log=/var/log/cloud-init-output.log

# The value of the first field with this name in the configuration of kubeadm.
field() {
    sed -n "s/^ *$1: *[\"']*\([^\"' ]*\).*/\1/p" "$config" 2>/dev/null | head -n 1
}
endpoint=$(field apiServerEndpoint)
token=$(field token)
address=$(printf '%s\n' "$endpoint" | sed 's/:[0-9]*$//; s/[][]//g')

# A pattern of a line, and what it means. The first pattern that a line matches is the cause. ENDPOINT is the address of the
# control plane endpoint.
causes() {
    cat <<END
no space left on device|a disk of the host is full
unknown (shorthand )?flag:|a program on the host does not know one of its flags
node with name .* already exists|the cluster already has a Node with the name of this host
ERROR ImagePull|ErrImagePull|ImagePullBackOff|failed to pull|an image cannot be pulled
expired or is not yet valid|a certificate is not valid at the time of the host's clock
JWS signature|invalid bearer token|: Unauthorized|the bootstrap token has expired, or the cluster does not know it
ENDPOINT.*(no route to host|network is unreachable|connection refused|i/o timeout|no such host|deadline exceeded)|the control plane endpoint cannot be reached
etcd cluster is not healthy|unhealthy cluster|etcd has an unhealthy member, so it accepts no new one
ERROR (Port|FileAvailable|DirAvailable)-|the host is not new: a port or a file that kubeadm needs is in use
ERROR [A-Za-z-]+\]|a preflight check of kubeadm has failed
address already in use|a port that a component needs is in use
kubelet is not (running|healthy)|the kubelet does not run
the clock of the host is wrong|the clock of the host is wrong
END
}

kubeadm_log() {
    if [ -e "$log" ]; then tail -n 400 "$log"; else journalctl -u kubeadm --no-pager -o cat -n 400; fi 2>/dev/null
}

# What kubeadm, the kubelet and the newest container of each static Pod have logged.
logs() {
    kubeadm_log
    journalctl -u kubelet --no-pager -o cat -n 200 2>/dev/null
    for component in etcd kube-apiserver kube-controller-manager kube-scheduler; do
        newest=$(ls -t /var/log/pods/kube-system_"$component"-*/"$component"/*.log 2>/dev/null | head -n 1)
        [ -z "$newest" ] || tail -n 50 "$newest" | sed "s/^[^ ]* std[a-z]* [FP] /$component: /"
    done
    # Not the root, which is always full on an image-based host.
    df -P /var/lib/kubelet /var/lib/containerd /var/lib/etcd /var/log 2>/dev/null |
        awk '$4 == 0 && !seen[$6]++ { print "no space left on device: " $6 }'
    clock
}

# How far the clock is from that of the API server, if it is more than a minute. The answer is not trusted: with a wrong clock, no
# certificate can be checked. Nothing is sent but the request.
clock() {
    theirs=$(curl -sk -o /dev/null -D - --max-time 5 "https://$endpoint/version" 2>/dev/null |
        tr -d '\r' | sed -n 's/^[Dd]ate: *//p')
    [ -n "$theirs" ] && theirs=$(date -d "$theirs" +%s 2>/dev/null) || return 0
    ours=$(date +%s)
    if [ $((ours - theirs)) -gt 60 ] || [ $((theirs - ours)) -gt 60 ]; then
        echo "the clock of the host is wrong: it says $(date -u +%Y-%m-%dT%H:%M:%SZ), and that of the API server" \
            "$(date -u -d "@$theirs" +%Y-%m-%dT%H:%M:%SZ)"
    fi
}

# Prints the report: the sentence, and then the lines that show it, newest first. Prints nothing if no cause is found, unless $1 is KubeadmFailed.
describe() {
    printable=$(logs | tr -c '[:print:]\n' ' ')
    sentence=
    while IFS= read -r cause; do
        # An address has dots, which match any character. No other text is in its place.
        pattern=$(printf '%s\n' "$cause" | sed "s/|[^|]*\$//; s/ENDPOINT/$(printf '%s\n' "${address:-no-endpoint}" | tr -cd 'A-Za-z0-9.:-')/")
        lines=$(printf '%s\n' "$printable" | grep -iE -- "$pattern") || continue
        sentence=$(printf '%s\n' "$cause" | sed 's/.*|//')
        break
    done <<END
$(causes)
END
    phase=$(printf '%s\n' "$printable" | sed -n 's/.*error execution phase \([a-z/-]*\).*/ in its phase \1/p' | tail -n 1)
    evidence=$([ -z "$sentence" ] || printf '%s\n' "$lines" | sed -E 's/.*(current time [0-9TZ:-]+ is (before|after) )/\1/; s/^ +//' |
        grep -viE 'token|passw|secret|bearer|authorization|credential|certificate|(^|[^a-z])keys?([^a-z]|$)|-----' |
        sed -E 's/\?[^ "]*/?.../g; s/[A-Za-z0-9%+\/=_-]{40,}/.../g; s/[a-z0-9]{6}\.[a-z0-9]{16}/.../g' |
        sed -E 's/^[EIWF][0-9]{4} [0-9:.]+ +[0-9]+ //' | cut -c 1-300 | awk '!seen[$0]++' | tail -n 8 | sed -n '1!G;h;$p')
    sentence=$sentence${evidence:+:}
    if [ "$1" = KubeadmFailed ]; then
        echo "kubeadm has failed$phase: ${sentence:-no line of its log has a known cause}"
    elif [ -n "$sentence" ]; then
        echo "kubeadm has not ended after $seconds seconds: $sentence"
    else
        return 1
    fi
    [ -z "$evidence" ] || printf '%s\n' "$evidence"
}

# Creates the Event with the report in $2, for the reason $1.
create_event() {
    [ -n "$endpoint" ] && [ -s "$authority" ] && command -v curl >/dev/null || return 1
    note=$(printf '%s\n' "$2" | head -c 1000 | sed 's/\\/\\\\/g; s/"/\\"/g' | awk '{ printf "%s%s", separator, $0; separator = "\\n" }')
    host=$(uname -n)
    addresses=$(ip -o address show scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }' | head -n 8 | tr '\n' ' ')
    event=/run/kcp-join-report.json
    cat >"$event" <<END
{"apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning", "reason": "$1", "action": "Join",
 "metadata": {"generateName": "join-report-", "namespace": "kcp-join-reports",
  "annotations": {"kubectl-kcp.dev/host-addresses": "$addresses"} },
 "eventTime": "$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)",
 "reportingController": "kubectl-kcp.dev/join-report", "reportingInstance": "$host",
 "regarding": {"apiVersion": "v1", "kind": "Node", "name": "$host", "namespace": "kcp-join-reports"},
 "note": "$note"}
END
    if [ -s "$kubelet" ] && echo "cert = \"$kubelet\"" | send; then return 0; fi
    [ -n "$token" ] && echo "header = \"Authorization: Bearer $token\"" | send
}

# Sends the Event. The standard input is configuration for curl, so that no other process sees the token among its arguments.
send() {
    curl --config - -sS --fail -o /dev/null --proto =https --cacert "$authority" --connect-timeout 5 --max-time 10 --retry 2 \
        -H 'Content-Type: application/json' --data-binary "@$event" \
        "https://$endpoint/apis/events.k8s.io/v1/namespaces/kcp-join-reports/events"
}

report() {
    text=$(describe "$1") || return 0
    printf '%s\n' "$text"
    create_event "$1" "$text" ||
        printf 'kcp-join-report: %s: %s\n' "$(uname -n)" "$(printf '%s\n' "$text" | head -n 2 | tr '\n' ' ')" >/dev/console
}

began=$(cut -d . -f 1 /proc/uptime) slow=
while :; do
    [ ! -e "$success" ] || exit 0
    if ! kill -0 "$process" 2>/dev/null || kubeadm_log | grep -q 'error execution phase'; then
        # After kubeadm, the shell writes the file.
        sleep 2
        [ ! -e "$success" ] || exit 0
        report KubeadmFailed
        exit 0
    fi
    if [ -z "$slow" ] && [ $(($(cut -d . -f 1 /proc/uptime) - began)) -ge "$seconds" ]; then
        slow=reported
        report KubeadmRuns
    fi
    sleep 1
done
