"""Written as a user would: the type checker is the test."""

from __future__ import annotations

from typing import assert_type

from holdfast import AsyncManagementClient, Live, ManagementClient, Phase, Progress, Step
from holdfast.testing import (
    a_spec,
    async_memory_client,
    drift,
    fail_next,
    memory_client,
    set_available,
    set_progress,
    writes,
)

client = memory_client(project="test")
assert_type(client, ManagementClient)
assert_type(async_memory_client(), AsyncManagementClient)
client.ensure(a_spec(replicas=2))
assert_type(drift(client, "support-bot", replicas=9, env={"A": "b"}, by="kubectl-edit"), Live)
fail_next(client, times=2)
set_available(client, True)
set_progress(client, "support-bot", [Progress(phase=Phase.READY, message="serving")])
assert_type(writes(client), list[Step])
