"""The demo's scenario in network namespaces with losses: five hosts on a bridge, every link dropping 5 %.

    sudo .venv/bin/python benches/chaos.py [--loss 0.05] [--seconds 10] [--pause 1] [--trace DIR] [--json]

Needs root, Linux, `ip` (iproute2) and `iptables`. The namespaces are made by `netns.sh` and always removed. Besides the
crash of the sequencer, one member is stopped for a second (SIGSTOP): that is no failure yet, so no view may change.
Exit codes as `ordercast demo`: 0 every guarantee held, 1 violated or failed, 2 it cannot run here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ordercast.cli.main import main as ordercast

SCRIPT = Path(__file__).with_name("netns.sh")
MEMBERS = range(1, 6)
HOSTS = ",".join(f"10.77.0.{member}" for member in MEMBERS)
BAD_INPUT = 2


def obstacle() -> str | None:
    """What is missing here, as a sentence; None if nothing is."""
    if sys.platform != "linux":
        return "network namespaces are Linux's: run it there"
    if os.geteuid() != 0:
        return "making network namespaces takes root: run it with sudo"
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(tool) is None:
            return f"{tool} is not installed: apt-get install {package}"
    return None


def netns(*arguments: str) -> None:
    """Run the script; its complaint becomes ours."""
    subprocess.run([str(SCRIPT), *arguments], check=True)


def dropped(member: int) -> int:
    """Datagrams that were dropped on their way into a namespace."""
    listing = ["ip", "netns", "exec", f"oc{member}", "iptables", "-L", "INPUT", "-v", "-n", "-x"]
    lines = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines if "DROP" in line and "Chain" not in line)


def stop(number: int, frame: object) -> None:
    """A polite kill must not leave namespaces behind, either."""
    del number, frame
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description="The demo's scenario between network namespaces with losses.")
    parser.add_argument("--loss", type=float, default=0.05, help="probability that a datagram is dropped (0.05)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long messages are sent (10)")
    parser.add_argument("--pause", type=float, default=1.0, help="how long one member is stopped (1)")
    parser.add_argument("--trace", default=None, metavar="DIR", help="folder for the trace; new or empty")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    if not 0 <= args.loss < 1:
        parser.error(f"--loss lies between 0 and 1, not {args.loss:g}")
    reason = obstacle()
    if reason is not None:
        print(f"chaos: {reason}", file=sys.stderr)
        return BAD_INPUT
    command = ["demo", "--insecure", "--exec-prefix", "ip netns exec oc{n}", "--hosts", HOSTS]
    command += ["--seconds", str(args.seconds), "--pause", str(args.pause)]
    if args.trace is not None:
        command += ["--trace", args.trace]
    if args.json:
        command.append("--json")
    signal.signal(signal.SIGTERM, stop)
    try:
        netns("up")
        netns("loss", str(args.loss))
        code = ordercast(command)
        drops = [dropped(member) for member in MEMBERS]
        print(f"dropped on the way in, for each member: {', '.join(map(str, drops))}", file=sys.stderr)
        if args.loss and not all(drops):
            print("chaos: a link has dropped nothing, so this run proves nothing", file=sys.stderr)
            return 1
        return code
    except subprocess.CalledProcessError as error:
        print(f"chaos: {' '.join(error.cmd)} failed; does this kernel allow namespaces and iptables?", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    finally:
        # Ctrl-C in the middle of cleaning up would leave the rest behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        netns("down")


if __name__ == "__main__":
    sys.exit(main())
