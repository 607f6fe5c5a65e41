"""What a cluster on this machine opens is open to this machine alone."""

import ipaddress

import pytest

from tangentlab.engines import Dask


def test_dask_listens_on_loopback_only() -> None:
    pytest.importorskip("distributed", reason="distributed is not installed: pip install '.[dask]'")
    psutil = pytest.importorskip("psutil", reason="psutil is not installed")
    me = psutil.Process()
    with Dask(1) as engine:
        assert engine.workers == 1
        open_places = {
            place.laddr.ip
            for process in (me, *me.children(recursive=True))
            for place in process.net_connections(kind="inet")
            if place.status == psutil.CONN_LISTEN
        }
    assert open_places
    assert all(ipaddress.ip_address(address).is_loopback for address in open_places), open_places
