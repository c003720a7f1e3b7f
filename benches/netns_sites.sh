#!/bin/sh
# Network namespaces for the sites of chaos.py: three sites of three hosts. Root, Linux.
#
#   netns_sites.sh up        make them
#   netns_sites.sh join      hand the devices of wan.py over, which runs in the namespace ocwan
#   netns_sites.sh down      remove everything
#
# Each site is a namespace ocsS with a bridge, and each of its hosts a namespace ocsSdD with one interface 10.78.S.D on
# that bridge. What leaves a site goes through a device of wan.py, which delays, loses and cuts: this needs no traffic
# control of the kernel, and each packet has its own fate. Nothing is added to the host's own network, and deleting the
# namespaces deletes everything.
set -eu

SITES="1 2 3"
HOSTS="1 2 3"

down() {
    for s in $SITES; do
        for d in $HOSTS; do
            if ip netns list | grep -q "^ocs${s}d$d\b"; then ip netns delete "ocs${s}d$d"; fi
        done
        if ip netns list | grep -q "^ocs$s\b"; then ip netns delete "ocs$s"; fi
    done
    if ip netns list | grep -q "^ocwan\b"; then ip netns delete ocwan; fi
}

up() {
    down
    ip netns add ocwan
    for s in $SITES; do
        ip netns add "ocs$s"
        ip -n "ocs$s" link add lan type bridge mcast_snooping 0
        ip -n "ocs$s" address add "10.78.$s.254/24" dev lan
        ip -n "ocs$s" link set lan up
        ip netns exec "ocs$s" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
        for d in $HOSTS; do
            host="ocs${s}d$d"
            ip netns add "$host"
            ip -n "$host" link add eth0 type veth peer name "port$d" netns "ocs$s"
            ip -n "ocs$s" link set "port$d" master lan up
            ip -n "$host" address add "10.78.$s.$d/24" dev eth0
            ip -n "$host" link set lo up
            ip -n "$host" link set eth0 up
            ip -n "$host" route add default via "10.78.$s.254"
            ip -n "$host" route add 224.0.0.0/4 dev eth0
        done
    done
}

join() {
    for s in $SITES; do
        ip -n ocwan link set "wan$s" netns "ocs$s"
        ip -n "ocs$s" link set "wan$s" up
        ip -n "ocs$s" route add 10.78.0.0/16 dev "wan$s"
    done
}

case "${1:-}" in
    up) up ;;
    join) join ;;
    down) down ;;
    *) echo "usage: netns_sites.sh up | join | down" >&2; exit 2 ;;
esac
