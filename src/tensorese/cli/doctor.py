"""`tensorese doctor`: is this machine fit to tune on?"""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def doctor(as_json: bool) -> int:
    """Check this machine, then build, run and verify one real program. Exit 1 if unfit."""
    from tensorese.measure.doctor import diagnose

    checks = []
    for check in diagnose():
        checks.append(check)
        if not as_json:
            mark = "ok  " if check.ok else "FAIL" if check.required else "-   "
            click.echo(f"{mark} {check.name:<16} {check.value}")
            if not check.ok:
                click.echo(f"     {'':<16} fix: {check.fix}")
    healthy = all(check.ok for check in checks if check.required)
    if as_json:
        click.echo(json.dumps({"healthy": healthy, "checks": [asdict(c) for c in checks]}))
    else:
        click.echo("healthy" if healthy else "not healthy: see FAIL above")
    return 0 if healthy else 1
