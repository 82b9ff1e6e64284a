"""How the processes of a run meet."""

import socket

import pytest

from experiments.cluster import Cluster, in_cluster, join
from models.errors import UserError


def test_a_port_that_another_program_has_is_named_with_a_free_one():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        cluster = Cluster(coordinator=f"127.0.0.1:{port}", num_processes=2, process_id=0)
        with pytest.raises(UserError) as error:
            join(cluster)
    assert f"cannot listen at port {port} (Address already in use)" in str(error.value)
    free = int(str(error.value).rpartition("port ")[2].split()[0])
    socket.create_server(("127.0.0.1", free)).close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"coordinator": "host:1"}, "--num_processes, --process_id: missing"),
        ({"coordinator": "host", "num_processes": 2, "process_id": 0}, "write host:port"),
        ({"coordinator": "host:70000", "num_processes": 2, "process_id": 0}, "from 1 to 65535"),
        ({"coordinator": "host:1", "num_processes": 2, "process_id": 2}, "below --num_processes 2"),
    ],
)
def test_flags_that_do_not_fit_each_other_are_named(given, said):
    with pytest.raises(UserError, match=said):
        Cluster(**given).check()


@pytest.mark.parametrize(
    ("environment", "several"),
    [
        ({}, False),
        # A Slurm allocation, but not within a step of it.
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, False),
        (
            {"SLURM_STEP_NODELIST": "a", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
            False,
        ),
        ({"SLURM_STEP_NODELIST": "a", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, True),
        ({"OMPI_MCA_orte_hnp_uri": "u", "OMPI_COMM_WORLD_SIZE": "4"}, True),
        ({"OMPI_MCA_orte_hnp_uri": "u", "OMPI_COMM_WORLD_SIZE": "1"}, False),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, True),
        ({"TPU_WORKER_HOSTNAMES": "a"}, False),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, True),
    ],
)
def test_several_processes_are_seen_in_the_environment(environment, several):
    assert in_cluster(environment) is several
