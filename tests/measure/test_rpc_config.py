"""Where the tracker is: flags, then TVM's variables, then one clear line."""

from __future__ import annotations

import pytest

from tensorese.errors import MeasureError
from tensorese.measure.config import FarmConfig
from tensorese.measure.rpc_config import FleetConfig

pytestmark = pytest.mark.null

ENV = {"TVM_TRACKER_HOST": "tracker", "TVM_TRACKER_PORT": "9190", "TVM_TRACKER_KEY": "pi4"}


def test_the_environment_names_the_fleet() -> None:
    fleet = FleetConfig.resolve(env=ENV)
    assert (fleet.address, fleet.key) == ("tracker:9190", "pi4")


def test_arguments_beat_the_environment() -> None:
    fleet = FleetConfig.resolve("127.0.0.1", 9999, "h200", env=ENV)
    assert (fleet.address, fleet.key) == ("127.0.0.1:9999", "h200")


@pytest.mark.parametrize(
    ("variable", "flag"),
    [
        ("TVM_TRACKER_HOST", "--rpc-tracker"),
        ("TVM_TRACKER_PORT", "--rpc-tracker"),
        ("TVM_TRACKER_KEY", "--rpc-key"),
    ],
)
def test_what_is_missing_is_named_with_its_flag(variable: str, flag: str) -> None:
    env = {name: value for name, value in ENV.items() if name != variable}
    with pytest.raises(MeasureError, match=f"{variable}.*{flag}"):
        FleetConfig.resolve(env=env)


@pytest.mark.parametrize("port", ["http", "0", "70000", "-1"])
def test_a_port_is_a_port(port: str) -> None:
    with pytest.raises(MeasureError, match=f"port must be .*{port}"):
        FleetConfig.resolve(env={**ENV, "TVM_TRACKER_PORT": port})


@pytest.mark.parametrize("setting", ["connect_timeout", "patience"])
def test_limits_are_positive(setting: str) -> None:
    with pytest.raises(MeasureError, match=f"{setting} must be positive"):
        FleetConfig(host="h", port=1, key="k", **{setting: 0.0})  # type: ignore[arg-type]


def test_a_session_outlives_our_own_limits() -> None:
    fleet = FleetConfig(host="h", port=1, key="k", connect_timeout=7.0)
    assert fleet.session_secs(FarmConfig(run_timeout=5.0)) > 12.0
