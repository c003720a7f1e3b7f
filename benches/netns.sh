#!/bin/sh
# Network namespaces on a bridge, for chaos.py: `netns.sh up`, `netns.sh loss 0.05`, `netns.sh down`. Root, Linux.
#
# Namespaces oc1 to oc5, each with one interface 10.77.0.N on the bridge br0 of a sixth namespace, ocbr: nothing is
# added to the host's own network, and deleting the namespaces deletes everything.
set -eu

MEMBERS="1 2 3 4 5"

down() {
    for n in $MEMBERS br; do
        if ip netns list | grep -q "^oc$n\b"; then ip netns delete "oc$n"; fi
    done
}

up() {
    down
    ip netns add ocbr
    ip -n ocbr link add br0 type bridge mcast_snooping 0
    ip -n ocbr link set br0 up
    for n in $MEMBERS; do
        ip netns add "oc$n"
        ip -n "oc$n" link add eth0 type veth peer name "port$n" netns ocbr
        ip -n ocbr link set "port$n" master br0 up
        ip -n "oc$n" address add "10.77.0.$n/24" dev eth0
        ip -n "oc$n" link set lo up
        ip -n "oc$n" link set eth0 up
        ip -n "oc$n" route add 224.0.0.0/4 dev eth0
    done
}

# Each datagram that arrives at a member is dropped with this probability, at each member by itself.
loss() {
    for n in $MEMBERS; do
        ip netns exec "oc$n" iptables -F INPUT
        if [ "$1" != 0 ]; then
            ip netns exec "oc$n" iptables -A INPUT -i eth0 -m statistic --mode random --probability "$1" -j DROP
        fi
    done
}

case "${1:-}" in
    up) up ;;
    loss) loss "${2:?netns.sh loss PROBABILITY}" ;;
    down) down ;;
    *) echo "usage: netns.sh up | loss PROBABILITY | down" >&2; exit 2 ;;
esac
