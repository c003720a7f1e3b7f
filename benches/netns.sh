#!/bin/sh
# Network namespaces on a bridge, for chaos.py. Root, Linux.
#
#   netns.sh up                 make them
#   netns.sh loss 0.05          drop each packet with this probability, at each member by itself; 0: none (iptables)
#   netns.sh cut "1 2" "3 4"    members 1 and 2 do not hear 3 and 4, nor the other way round; one cut at a time
#   netns.sh heal               end all cuts
#   netns.sh down               remove everything
#
# In the environment: MEMBERS="1 2 3 ...", which there are, at most 99 (1 to 5); NAME, what namespaces begin with (oc).
#
# Namespaces oc1 to oc5, each with one interface 10.77.0.N on the bridge br0 of a sixth namespace, ocbr: nothing is
# added to the host's own network, and deleting the namespaces deletes everything. Packets are dropped where they
# arrive: a rule for what goes out would tell the sender, which a real network does not. A cut puts the second set on a
# bridge of its own. The members know each other's hardware addresses, or a cut would tell them that nobody answers.
set -eu

MEMBERS="${MEMBERS:-1 2 3 4 5}"
NAME="${NAME:-oc}"

hardware() {
    printf '02:00:00:00:00:%02d' "$1"
}

down() {
    for n in $MEMBERS br; do
        if ip netns list | grep -q "^$NAME$n\b"; then ip netns delete "$NAME$n"; fi
    done
}

up() {
    down
    ip netns add "${NAME}br"
    for bridge in br0 br1; do
        ip -n "${NAME}br" link add "$bridge" type bridge mcast_snooping 0
        ip -n "${NAME}br" link set "$bridge" up
    done
    for n in $MEMBERS; do
        ip netns add "$NAME$n"
        ip -n "$NAME$n" link add eth0 address "$(hardware "$n")" type veth peer name "port$n" netns "${NAME}br"
        ip -n "${NAME}br" link set "port$n" master br0 up
        ip -n "$NAME$n" address add "10.77.0.$n/24" dev eth0
        ip -n "$NAME$n" link set lo up
        ip -n "$NAME$n" link set eth0 up
        ip -n "$NAME$n" route add 224.0.0.0/4 dev eth0
        for other in $MEMBERS; do
            if [ "$other" != "$n" ]; then
                ip -n "$NAME$n" neigh add "10.77.0.$other" lladdr "$(hardware "$other")" dev eth0 nud permanent
            fi
        done
        if command -v iptables >/dev/null; then
            ip netns exec "$NAME$n" iptables -N LOSS
            ip netns exec "$NAME$n" iptables -A INPUT -i eth0 -j LOSS
        fi
    done
}

loss() {
    for n in $MEMBERS; do
        ip netns exec "$NAME$n" iptables -F LOSS
        if [ "$1" != 0 ]; then
            ip netns exec "$NAME$n" iptables -A LOSS -m statistic --mode random --probability "$1" -j DROP
        fi
    done
}

cut() {
    for n in $1; do ip -n "${NAME}br" link set "port$n" master br0; done
    for n in $2; do ip -n "${NAME}br" link set "port$n" master br1; done
}

heal() {
    for n in $MEMBERS; do ip -n "${NAME}br" link set "port$n" master br0; done
}

case "${1:-}" in
    up) up ;;
    loss) loss "${2:?netns.sh loss PROBABILITY}" ;;
    cut) cut "${2:?netns.sh cut MEMBERS MEMBERS}" "${3:?netns.sh cut MEMBERS MEMBERS}" ;;
    heal) heal ;;
    down) down ;;
    *) echo "usage: netns.sh up | loss PROBABILITY | cut MEMBERS MEMBERS | heal | down" >&2; exit 2 ;;
esac
