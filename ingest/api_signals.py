"""What a training process says of itself while it runs: that it lives, and that it wants attention.

These two speak the py service's dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from catalog.alerts import Alert
from ingest.api_answers import PY
from ingest.api_bodies import AlertBody, TriggerBody
from ingest.api_endpoints import taking
from ingest.api_replies import AlertKept, Beat
from ingest.appkeys import HEARTBEATS

if TYPE_CHECKING:
    from ingest.api_calls import Call

log = structlog.get_logger()


async def trigger(call: Call[TriggerBody]) -> dict[str, Any]:
    """Takes note of a heartbeat; the answer tells the client whether the run was cancelled."""
    status = await call.request.app[HEARTBEATS].beat(call.tenant, call.body.run_id)
    return {"status": status.value, "triggers": None}


async def alert(call: Call[AlertBody]) -> dict[str, Any]:
    """Keeps an alert."""
    part = call.body.alert
    await call.catalog.alerts.add(
        call.tenant,
        call.body.run_id,
        Alert(
            level=part.level,
            title=part.title,
            body=part.body,
            url=part.url,
            wants_mail=bool(part.email),
            raised_at_ms=part.timestamp,
        ),
    )
    log.info("run_alert", run_id=call.body.run_id, level=part.level[:32])
    return {"status": "success"}


SIGNAL_ENDPOINTS = [
    taking("/api/runs/trigger", TriggerBody, trigger, Beat, example={"runId": 100}, dialect=PY),
    taking(
        "/api/runs/alert",
        AlertBody,
        alert,
        AlertKept,
        example={
            "runId": 100,
            "alert": {
                "timestamp": 1764423221123,
                "level": "WARNING",
                "title": "loss",
                "body": "the loss is not a number",
                "email": True,
                "url": None,
            },
        },
        dialect=PY,
    ),
]
