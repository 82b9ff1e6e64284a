"""A Slurm of one node on this machine, made of Debian packages, while a test needs it."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")

_CONFIG = """
ClusterName=kpd
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket.2
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
MinJobAge=600
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def obstacle():
    """Why no Slurm can be started here; None where it can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    return None


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def cluster(folder: pathlib.Path):
    """Starts the daemons in a folder; gives the environment in which Slurm's commands work."""
    environment = os.environ | {
        "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(
        _CONFIG.format(
            host=host,
            folder=folder,
            controller_port=_free_port(),
            node_port=_free_port(),
            cores=os.cpu_count(),
        )
    )
    key = folder / "munge" / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)

    def run(*command):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    try:
        run(
            "munged",
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge/munge.socket.2",
            f"--pid-file={folder}/munge/munged.pid",
            f"--log-file={folder}/munge/munged.log",
            f"--seed-file={folder}/munge/munged.seed",
        )
        run("slurmctld", "-c", "-f", environment["SLURM_CONF"])
        run("slurmd", "-f", environment["SLURM_CONF"])
        deadline = time.monotonic() + 30
        while "idle" not in run("sinfo", "--noheader", "--format=%T"):
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.3)
        yield environment
    finally:
        # Without the daemons, what a job started would not end.
        subprocess.run(["scancel", "--user=root"], env=environment, capture_output=True)
        deadline = time.monotonic() + 20
        with contextlib.suppress(AssertionError):
            while time.monotonic() < deadline and run("squeue", "--noheader").strip():
                time.sleep(0.3)
        for pid_file in ("slurmd.pid", "slurmctld.pid", "munge/munged.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / pid_file).read_text()), signal.SIGTERM)
