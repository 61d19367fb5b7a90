"""Hosts on one machine: network namespaces, joined by links of a chosen bandwidth. Needs root, and Debian's iproute2.

    with Hosts(2) as hosts:
        hosts.limit(60e6)                       # bytes per second, each way; calibrate() counts no headers
        rate = hosts.measure()                  # what TCP gets through
        hosts.run(0, ["ls"])                    # on host 0
        hosts.run(0, hosts.mpirun([0, 1]) + ["program"])

Hosts hang on a switch (a bridge in a namespace of its own). A host's link is limited where data leaves: on the host for what it
sends, on the switch for what it receives. Latency is that of the machine, and cannot be chosen. Nothing is left behind, also
when interrupted; what a killed process has left is removed by the next that makes hosts.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import statistics
import subprocess
import sys
import tempfile
import time

NETWORK = "10.77.0"
PREFIX = "pdc-host"


def ip(*words, check=True, **more):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True, **more).stdout


def missing():
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root: run this as root, or with sudo"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"'{tool}' is not installed: apt-get install iproute2"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        ip("netns", "add", probe)
        try:
            ip("-n", probe, "link", "show")  # not where / is no mount point, as in a chroot
        finally:
            ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"this machine has no network namespaces: {error.stderr.strip()}"
    return ""


def remove_leftovers():
    """Namespaces whose maker is gone. Links go with them."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(PREFIX):
            maker = name[len(PREFIX):].split("-")[0]
            if maker == str(os.getpid()) or not pathlib.Path("/proc", maker).exists():
                remove(name)


def remove(namespace):
    # Until none is left: what is killed may have started another one just before.
    for _ in range(500):
        processes = ip("netns", "pids", namespace, check=False).split()
        if not processes:
            break
        for process in processes:
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    ip("netns", "delete", namespace, check=False)


class Hosts:
    """`pinned`: each host has a core of its own, which all its processes share."""

    def __init__(self, count=2, pinned=False):
        self.count, self.pinned = count, pinned
        self.switch = f"{PREFIX}{os.getpid()}-switch"
        self.names = [f"{PREFIX}{os.getpid()}-{host}" for host in range(count)]

    def inside(self, host):
        """The words before a command that is to run there."""
        return ["ip", "netns", "exec", self.names[host], *(["taskset", "-c", str(host)] if self.pinned else [])]

    def address(self, host):
        return f"{NETWORK}.{host + 1}"

    def __enter__(self):
        if why := missing():
            raise SystemExit(why)
        remove_leftovers()
        # An interrupted script cleans up as one that ends.
        self.handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pdc-hosts-"))
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (*self.names, self.switch):
            remove(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, self.handler)

    def _make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for host, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{host}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{host}", "master", "switch", "up")
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            # Linux's usual congestion control, whatever this machine's is: BBR takes 2 to 9 % off the all-reduces, by turns.
            ip("-n", name, "route", "replace", f"{NETWORK}.0/24", "dev", "eth0", "congctl", "cubic")
        # What mpirun types instead of ssh.
        agent = self.folder / "agent"
        cases = "\n".join(f"{self.address(host)}) name={name} ;;" for host, name in enumerate(self.names))
        agent.write_text(f'#!/bin/sh\ncase $1 in\n{cases}\n*) echo "no host $1" >&2; exit 1 ;;\nesac\nshift\n'
                         'exec ip netns exec "$name" sh -c "$*"\n')
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        self.agent = agent

    def limit(self, bytes_per_s):
        """Of every link, each way. None: as fast as the machine."""
        ends = [(name, "eth0") for name in self.names] + [(self.switch, f"port{host}") for host in range(self.count)]
        for namespace, device in ends:
            if bytes_per_s is None:
                subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"], capture_output=True)
                continue
            # A bucket of some milliseconds, or the timer cannot keep up, and of more than what TCP hands over at once, 64 KiB and headers: the kernel
            # cuts what is larger than the bucket into packets with a timer each, which takes a fifth of the cores from who computes on them. A queue
            # long enough that nothing is dropped early. A bucket of a MiB at most, or whole messages pass a fast link as if it had no limit.
            bucket = min(max(98304, int(bytes_per_s * 4e-3)), 1 << 20)
            subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                            f"{8 * bytes_per_s:.0f}bit", "burst", str(bucket), "latency", "50ms"], check=True)

    def calibrate(self, bytes_per_s):
        """Limits links so that TCP gets this rate, headers (a twentieth) not counted. Returns (the limit, what TCP gets)."""
        self.limit(bytes_per_s)
        limit = bytes_per_s * min(1.1, bytes_per_s / self.measure())
        self.limit(limit)
        return limit, self.measure()

    def run(self, host, command, **more):
        """subprocess.run there."""
        return subprocess.run([*self.inside(host), *map(str, command)], **more)

    def start_ranks(self, command, environment=None, places=None):
        """Ranks of pdc's pipeline on these hosts, or one on each, joined by TCP, with one thread for kernels."""
        places = list(range(self.count)) if places is None else places
        place = {"OMP_NUM_THREADS": "1", **(environment or os.environ), "PDC_WORLD_SIZE": str(len(places)), "PDC_MASTER": f"{self.address(places[0])}:29600"}
        return [subprocess.Popen([*self.inside(host), *map(str, command)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, env={**place, "PDC_RANK": str(rank)}) for rank, host in enumerate(places)]

    def run_ranks(self, command, environment=None, places=None):
        """What each of them says, when all have ended; ends the script if one fails."""
        ranks = self.start_ranks(command, environment, places)
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit(f"{' '.join(map(str, command))} failed on some host:\n" + "\n".join(text[-2000:] for text in said))
        return said

    def start(self, host, command, log):
        """subprocess.Popen there, with one thread for kernels; what it says goes into the file `log`."""
        with open(log, "w") as said:
            return subprocess.Popen([*self.inside(host), *map(str, command)], stdin=subprocess.DEVNULL, stdout=said,
                                    stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def mpirun(self, hosts, environment=()):
        """The words that start one rank on each of these hosts, to be run on the first of them."""
        subnet = f"{NETWORK}.0/24"
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--host", ",".join(map(self.address, hosts)),
                 "--mca", "plm_rsh_agent", self.agent, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                 "--mca", "btl_tcp_if_include", subnet, "--mca", "oob_tcp_if_include", subnet, "--mca", "mpi_yield_when_idle", "1"]
        for name in environment:
            words += ["-x", name]
        return [*words, "-n", str(len(hosts))]

    def bytes_sent(self):
        """By each host since it was made, as its network interface counts: headers of all layers included."""
        return [json.loads(ip("-n", name, "-s", "-j", "link", "show", "eth0"))[0]["stats64"]["tx"]["bytes"] for name in self.names]

    def measure(self, seconds=1.0, repetitions=3):
        """Bytes per second that TCP gets from host 0 to host 1: the median."""
        return statistics.median(self._measure(seconds) for _ in range(repetitions))

    def _measure(self, seconds):
        script = pathlib.Path(__file__)
        receiver = subprocess.Popen([*self.inside(1), sys.executable, script, "receive"],
                                    stdout=subprocess.PIPE, text=True)
        receiver.stdout.readline()  # it listens
        self.run(0, [sys.executable, script, "send", self.address(1), seconds], check=True)
        rate = float(receiver.stdout.readline())
        receiver.wait()
        return rate


PORT = 7711


def receive():
    """Prints the rate of what arrives, without the start, in which a bucket is full and TCP finds its window."""
    with socket.create_server(("0.0.0.0", PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        arrived, begin, buffer = [(time.perf_counter(), 0)], 0, bytearray(1 << 20)
        while count := connection.recv_into(buffer):
            begin += count
            arrived.append((time.perf_counter(), begin))
    first, last = arrived[len(arrived) // 4], arrived[-1]
    print((last[1] - first[1]) / (last[0] - first[0]), flush=True)


def send(address, seconds):
    with socket.create_connection((address, PORT)) as connection:
        block, end = bytes(1 << 16), time.perf_counter() + seconds
        while time.perf_counter() < end:
            connection.sendall(block)


if __name__ == "__main__":
    receive() if sys.argv[1] == "receive" else send(sys.argv[2], float(sys.argv[3]))
