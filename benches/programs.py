"""What scripts of measurements share: cgroups, Chromium, counters of the kernel."""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

RMEM_MAX = pathlib.Path("/proc/sys/net/core/rmem_max")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


@contextlib.contextmanager
def receive_buffers(most):
    """Sets net.core.rmem_max of the machine, and restores it at the end, also of a program that is terminated."""
    before = RMEM_MAX.read_text()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        RMEM_MAX.write_text(str(most))
        yield
    finally:
        RMEM_MAX.write_text(before)


def spki(certificate):
    """The fingerprint by which Chromium trusts a certificate."""
    key = subprocess.run("openssl x509 -noout -pubkey | openssl pkey -pubin -outform der", shell=True, check=True, capture_output=True,
                         input=pathlib.Path(certificate).read_bytes()).stdout
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def drops(ports):
    """Datagrams that the kernel dropped at the sockets that are connected to these ports."""
    found = dict.fromkeys(ports, 0)
    for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        port = int(words[2].split(":")[1], 16)
        if port in found:
            found[port] += int(words[-1])
    return found


class Cgroup:
    """Programs' cgroup, version 1 or 2, with a quota of CPU time or without."""

    def __init__(self, name, share=0, period_ms=100):
        self.is_one = (CGROUPS / "cpu" / "cgroup.procs").exists()
        roots = [CGROUPS / "cpu", CGROUPS / "cpuacct"] if self.is_one else [CGROUPS]
        # Both controllers of version 1 may be one.
        self.folders = list(dict.fromkeys((root.resolve() / f"litequic-bench-{os.getpid()}-{name}") for root in roots))
        for folder in self.folders:
            folder.mkdir()
        period = period_ms * 1000
        if share and self.is_one:
            (self.folders[0] / "cpu.cfs_period_us").write_text(str(period))
            (self.folders[0] / "cpu.cfs_quota_us").write_text(str(int(share * period)))
        elif share:
            (self.folders[0] / "cpu.max").write_text(f"{int(share * period)} {period}")

    def join(self):
        """For the child, before it becomes the program."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def cpu(self):
        """Seconds of CPU time of all that ever ran in it, exact: the clock's ticks see half of a process with a quota."""
        if self.is_one:
            return int((self.folders[-1] / "cpuacct.usage").read_text()) / 1e9
        lines = (self.folders[0] / "cpu.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6

    def close(self):
        for folder in self.folders:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)


class Chromium:
    """Chromium, spoken to in the DevTools protocol over two pipes."""

    def __init__(self, program, profile, options):
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()

        def pipes():
            # Chromium reads descriptor 3 and writes 4.
            for fd in (os.dup(to_browser), os.dup(from_browser)):
                os.set_inheritable(fd, True)
            one, other = os.dup2(to_browser, 1003), os.dup2(from_browser, 1004)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
             "--autoplay-policy=no-user-gesture-required", *options, "about:blank"],
            preexec_fn=pipes, close_fds=False, env={**os.environ, "TMPDIR": str(profile)}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.number = b"", 0
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})["sessionId"]

    def call(self, method, parameters=None, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                piece = os.read(self.read, 1 << 16)
                if not piece:
                    raise RuntimeError("Chromium ended")
                self.rest += piece
            line, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True}, self.session)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", {"url": url}, self.session)

    def wait_for(self, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(RuntimeError):
                if self.evaluate(script):
                    return
            time.sleep(0.2)
        raise RuntimeError(f"not within {seconds} s: {script}")

    def close(self):
        with contextlib.suppress(RuntimeError, OSError):
            self.call("Browser.close")
        self.process.wait(30)
