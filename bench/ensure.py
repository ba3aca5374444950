"""A no-op `ensure()` against the published InferenceKey client, on the same server."""

from __future__ import annotations

import inferencekey

from bench.control_plane import PROJECT, control_plane, fields
from bench.report import Row, interleaved_ms, median_ms
from holdfast import ManagementClient, WorkloadSpec

GOALS = {10: 1.0, 1_000: 5.0, 10_000: 50.0}


def measure() -> list[Row]:
    """The ratio is the peer's time over ours."""
    rows = []
    ours_by_size = {}
    for size, goal in GOALS.items():
        with control_plane(workloads=size) as server:
            ours = ManagementClient(server.url, project=PROJECT, token=server.token)
            theirs = inferencekey.ManagementClient(
                base_url=server.url, sdk_token=server.token, project=PROJECT
            )
            declared = fields("w-000007")
            spec = WorkloadSpec(slug="w-000007", **declared)  # type: ignore[arg-type]
            other = inferencekey.WorkloadSpec(slug="w-000007", **declared)
            mine, peer = interleaved_ms(
                lambda: ours.ensure(spec),  # noqa: B023  # called within this round
                lambda: theirs.ensure(other),  # noqa: B023
                rounds=400 if size < 10_000 else 20,
            )
            ours_by_size[size] = median_ms(lambda: ours.ensure(spec), rounds=200)  # noqa: B023
            ours.close()
        rows.append(
            Row(
                what=f"no-op `ensure()`, {size:,} workloads, against `inferencekey`",
                ours=f"{mine:.2f} ms",
                peer=f"{peer:.2f} ms",
                ratio=peer / mine,
                goal=goal,
            )
        )
    small, large = ours_by_size[10], ours_by_size[10_000]
    rows.append(
        Row(
            what="no-op `ensure()` at 10 workloads against itself at 10,000 (flat is 1)",
            ours=f"{large:.2f} ms",
            peer=f"{small:.2f} ms",
            ratio=small / large,
            goal=0.7,
        )
    )
    return rows
