"""The routes of `/api/ops/v1`, and that of the document which describes both APIs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from monque.management import Action, ops
from monque.web.answering import json_response
from monque.web.mount import prefix_of
from monque.web.routes import OPS, Ask, Handler, Need, Route

# Payloads come with these bodies.
_LARGE_BODY = 1024 * 1024
_JSON_LINES = "application/x-ndjson"


def _read(
    path: str,
    operation: str,
    summary: str,
    answer: type[BaseModel],
    handler: Handler,
    *,
    needs: Action | Need = Action.READ,
    query: type[BaseModel] | None = None,
    is_tagged: bool = False,
) -> Route:
    return Route(
        method="GET",
        path=f"{OPS}{path}",
        needs=needs,
        operation=operation,
        summary=summary,
        handler=handler,
        query=query,
        answer=answer,
        is_tagged=is_tagged,
    )


def _act(
    method: str,
    path: str,
    operation: str,
    summary: str,
    needs: Action | Need,
    body: type[BaseModel],
    answer: type[BaseModel],
    handler: Handler,
    *,
    body_limit: int | None = None,
    only_looks: bool = False,
    takes_if_match: bool = False,
    also: tuple[Action, ...] = (),
    doing: str | None = None,
) -> Route:
    return Route(
        method=method,
        path=f"{OPS}{path}",
        needs=needs,
        operation=operation,
        summary=summary,
        handler=handler,
        body=body,
        body_may_lack=body is ops.OpsNoteBody,
        body_limit=body_limit,
        answer=answer,
        only_looks=only_looks,
        takes_if_match=takes_if_match,
        also=also,
        doing=doing,
    )


async def _document(ask: Ask) -> dict[str, Any]:
    return ask.context.document(prefix_of(ask.request.scope, ask.context.root_path))


async def _payload(ask: Ask) -> Response:
    """A payload as a file. Its name is fixed: no header has stored text in it."""
    answer = await ask.surface.ops_payload(ask.caller, ask.id)
    disposition = 'attachment; filename="payload.json"'
    return json_response(answer.dump(), {"content-disposition": disposition, "cache-control": "no-store"})


async def _export(ask: Ask) -> Response:
    """The trail as a file. Its name is fixed: no header has stored text in it."""
    lines = await ask.surface.ops_audit_export(ask.caller, ask.query)
    headers = {"content-disposition": 'attachment; filename="audit.jsonl"', "cache-control": "no-store"}
    return Response(lines, headers=headers, media_type=_JSON_LINES)


DOCUMENT = Route(
    method="GET",
    path="/openapi.json",
    needs=Need.IDENTITY,
    operation="opsDocument",
    summary="This document",
    handler=_document,
    opens=False,
)

_LOOKING = (
    _read(
        "/me",
        "opsMe",
        "Who asks, what they may do, and what there is",
        ops.OpsMe,
        lambda ask: ask.surface.ops_me(ask.caller),
        needs=Need.IDENTITY,
    ),
    _read(
        "/overview",
        "opsOverview",
        "Everything for the first screen",
        ops.OpsOverview,
        lambda ask: ask.surface.ops_overview(ask.caller, ask.query),
        query=ops.OpsOverviewQuery,
        is_tagged=True,
    ),
    _read(
        "/queues",
        "opsQueues",
        "All job names with their numbers",
        ops.OpsQueueList,
        lambda ask: ask.surface.ops_queues(ask.caller),
    ),
    _read(
        "/queue",
        "opsQueue",
        "One job name with everything",
        ops.OpsQueue,
        lambda ask: ask.surface.ops_queue(ask.caller, ask.query),
        query=ops.OpsQueueQuery,
    ),
    _read(
        "/queue/explanation",
        "opsQueueExplanation",
        "Why the jobs of a name do not run",
        ops.OpsExplanationAnswer,
        lambda ask: ask.surface.ops_queue_explanation(ask.caller, ask.query),
        query=ops.OpsNameQuery,
    ),
    _read(
        "/instances",
        "opsInstances",
        "Instances, and what they run",
        ops.OpsInstanceList,
        lambda ask: ask.surface.ops_instances(ask.caller),
        is_tagged=True,
    ),
    _read(
        "/instance",
        "opsInstance",
        "One instance",
        ops.OpsInstanceAnswer,
        lambda ask: ask.surface.ops_instance(ask.caller, ask.query),
        query=ops.OpsInstanceQuery,
    ),
    _read(
        "/running",
        "opsRunning",
        "What runs now, the longest first",
        ops.OpsRunningList,
        lambda ask: ask.surface.ops_running(ask.caller),
    ),
    _read(
        "/trends",
        "opsTrends",
        "Numbers over time",
        ops.OpsSeriesAnswer,
        lambda ask: ask.surface.ops_trends(ask.caller, ask.query),
        query=ops.OpsTrendsQuery,
        is_tagged=True,
    ),
    _read(
        "/latency",
        "opsLatency",
        "How long jobs waited and ran",
        ops.OpsLatency,
        lambda ask: ask.surface.ops_latency(ask.caller, ask.query),
        query=ops.OpsLatencyQuery,
    ),
    _read(
        "/audit",
        "opsAudit",
        "Who did what",
        ops.OpsAuditPage,
        lambda ask: ask.surface.ops_audit(ask.caller, ask.query),
        needs=Action.AUDIT,
        query=ops.OpsAuditQuery,
    ),
    _read(
        "/search",
        "opsSearch",
        "Jobs, names, schedules and instances that fit a text",
        ops.OpsSearch,
        lambda ask: ask.surface.ops_search(ask.caller, ask.query),
        query=ops.OpsSearchQuery,
    ),
    _read(
        "/doctor",
        "opsDoctor",
        "What is wrong with the set-up",
        ops.OpsDoctor,
        lambda ask: ask.surface.ops_doctor(ask.caller),
    ),
)

_JOBS = (
    _read(
        "/jobs",
        "opsJobs",
        "A page of jobs",
        ops.OpsJobList,
        lambda ask: ask.surface.ops_jobs(ask.caller, ask.query),
        query=ops.OpsJobsQuery,
    ),
    _read(
        "/jobs/count",
        "opsCount",
        "How many jobs there are, up to 100,000",
        ops.OpsCount,
        lambda ask: ask.surface.ops_count(ask.caller, ask.query),
        query=ops.OpsSelection,
    ),
    _read(
        "/jobs/{id}",
        "opsJob",
        "One job with everything",
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_job(ask.caller, ask.id),
        is_tagged=True,
    ),
    _read("/jobs/{id}/payload", "opsPayload", "The whole payload of a job", ops.OpsPayload, _payload),
    _read(
        "/jobs/{id}/attempts",
        "opsAttempts",
        "The attempts of a job, 50 at a time, the newest first",
        ops.OpsAttemptList,
        lambda ask: ask.surface.ops_attempts(ask.caller, ask.id, ask.query),
        query=ops.OpsAttemptsQuery,
    ),
    _read(
        "/jobs/{id}/explanation",
        "opsExplanation",
        "Why a job does not run",
        ops.OpsExplanationAnswer,
        lambda ask: ask.surface.ops_job_explanation(ask.caller, ask.id),
    ),
    _act(
        "POST",
        "/jobs",
        "opsEnqueue",
        "Store a job",
        Action.ENQUEUE,
        ops.OpsEnqueueBody,
        ops.OpsEnqueued,
        lambda ask: ask.surface.ops_enqueue(ask.caller, ask.body),
        body_limit=_LARGE_BODY,
    ),
    _act(
        "POST",
        "/jobs/{id}/enqueue-again",
        "opsEnqueueAgain",
        "Store a completed job once more, with its payload as it is stored",
        Action.ENQUEUE,
        ops.OpsNoteBody,
        ops.OpsEnqueued,
        lambda ask: ask.surface.ops_enqueue_again(ask.caller, ask.id, ask.body),
    ),
    _act(
        "POST",
        "/jobs/{id}/cancel",
        "opsCancel",
        "Cancel a job that waits",
        Action.CANCEL,
        ops.OpsNoteBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_cancel(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/jobs/{id}/retry",
        "opsRetry",
        "Run a failed or cancelled job again",
        Action.RETRY,
        ops.OpsNoteBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_retry(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/jobs/{id}/reschedule",
        "opsReschedule",
        "Let a job run at another time",
        Action.RESCHEDULE,
        ops.OpsRescheduleBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_reschedule(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/jobs/{id}/run-now",
        "opsRunNow",
        "Let a job run now",
        Action.RESCHEDULE,
        ops.OpsNoteBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_run_now(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        doing="run-now",
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/jobs/{id}/stop",
        "opsStop",
        "Cancel a job that runs",
        Action.STOP,
        ops.OpsNoteBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_stop(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/jobs/{id}/priority",
        "opsPriority",
        "Say how urgent a job is",
        Action.PRIORITIZE,
        ops.OpsPriorityBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_priority(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        doing="prioritize",
        takes_if_match=True,
    ),
    _act(
        "DELETE",
        "/jobs/{id}",
        "opsDelete",
        "Delete a job",
        Action.DELETE,
        ops.OpsNoteBody,
        ops.OpsDeleted,
        lambda ask: ask.surface.ops_delete(ask.caller, ask.id, ask.body, if_match=ask.if_match),
        takes_if_match=True,
    ),
    _act(
        "POST",
        "/bulk/preview",
        "opsBulkPreview",
        "What an action on many jobs would do",
        Need.BY_BODY,
        ops.OpsBulkPreviewBody,
        ops.OpsBulkPreview,
        lambda ask: ask.surface.ops_bulk_preview(ask.caller, ask.body),
        only_looks=True,
    ),
    _act(
        "POST",
        "/bulk",
        "opsBulk",
        "One piece of an action on many jobs",
        Need.BY_BODY,
        ops.OpsBulkBody,
        ops.OpsBulkResult,
        lambda ask: ask.surface.ops_bulk(ask.caller, ask.body),
    ),
)

_QUEUES = (
    _act(
        "POST",
        "/queue/pause",
        "opsPause",
        "Start no more jobs of a name, or of any",
        Action.PAUSE,
        ops.OpsPauseBody,
        ops.OpsPauseAnswer,
        lambda ask: ask.surface.ops_pause(ask.caller, ask.body),
    ),
    _act(
        "POST",
        "/queue/resume",
        "opsResume",
        "End a pause",
        Action.PAUSE,
        ops.OpsResumeBody,
        ops.OpsResumed,
        lambda ask: ask.surface.ops_resume(ask.caller, ask.body),
        doing="resume",
    ),
)

_FAILURES = (
    _read(
        "/failures",
        "opsFailures",
        "Failures in groups that look alike",
        ops.OpsGroupList,
        lambda ask: ask.surface.ops_failures(ask.caller, ask.query),
        query=ops.OpsFailuresQuery,
    ),
    _read(
        "/failures/{fingerprint}",
        "opsFailure",
        "One group of failures",
        ops.OpsGroupAnswer,
        lambda ask: ask.surface.ops_failure(ask.caller, ask.id, ask.query),
        query=ops.OpsWindowQuery,
    ),
    _read(
        "/failures/{fingerprint}/report",
        "opsReport",
        "One group of failures as text for a bug report",
        ops.OpsReport,
        lambda ask: ask.surface.ops_report(ask.caller, ask.id, ask.query),
        query=ops.OpsWindowQuery,
    ),
    _act(
        "POST",
        "/failures/{fingerprint}/canary",
        "opsCanary",
        "Retry the newest job of a group",
        Action.RETRY,
        ops.OpsNoteBody,
        ops.OpsCanary,
        lambda ask: ask.surface.ops_canary(ask.caller, ask.id, ask.body),
        doing="canary",
    ),
    _act(
        "POST",
        "/failures/{fingerprint}/bulk",
        "opsGroupBulk",
        "One piece of an action on the jobs of a group",
        Need.BY_BODY,
        ops.OpsGroupBulkBody,
        ops.OpsBulkResult,
        lambda ask: ask.surface.ops_group_bulk(ask.caller, ask.id, ask.body),
    ),
)

_SCHEDULES = (
    _read(
        "/schedules",
        "opsSchedules",
        "All schedules",
        ops.OpsScheduleList,
        lambda ask: ask.surface.ops_schedules(ask.caller),
        is_tagged=True,
    ),
    _read(
        "/schedules/lanes",
        "opsLanes",
        "The next 24 hours of all schedules",
        ops.OpsLanes,
        lambda ask: ask.surface.ops_lanes(ask.caller),
    ),
    _read(
        "/schedules/{id}",
        "opsSchedule",
        "One schedule with everything",
        ops.OpsScheduleAnswer,
        lambda ask: ask.surface.ops_schedule(ask.caller, ask.id),
        is_tagged=True,
    ),
    _act(
        "POST",
        "/schedules/{id}/run-now",
        "opsScheduleRunNow",
        "Run a schedule now",
        Action.SCHEDULE,
        ops.OpsNoteBody,
        ops.OpsJobAnswer,
        lambda ask: ask.surface.ops_schedule_run_now(ask.caller, ask.id, ask.body),
        doing="schedule-run-now",
    ),
    _act(
        "POST",
        "/schedules/{id}/pause",
        "opsSchedulePause",
        "Pause a schedule",
        Action.SCHEDULE,
        ops.OpsNoteBody,
        ops.OpsScheduleAnswer,
        lambda ask: ask.surface.ops_schedule_pause(ask.caller, ask.id, ask.body),
        doing="schedule-pause",
    ),
    _act(
        "POST",
        "/schedules/{id}/resume",
        "opsScheduleResume",
        "Resume a schedule",
        Action.SCHEDULE,
        ops.OpsNoteBody,
        ops.OpsScheduleAnswer,
        lambda ask: ask.surface.ops_schedule_resume(ask.caller, ask.id, ask.body),
        doing="schedule-resume",
    ),
    _act(
        "PUT",
        "/schedules/{id}",
        "opsSchedulePut",
        "Change cron, zone or payload of a schedule",
        Action.SCHEDULE,
        ops.OpsSchedulePutBody,
        ops.OpsScheduleAnswer,
        lambda ask: ask.surface.ops_schedule_put(ask.caller, ask.id, ask.body),
        doing="schedule-edit",
        also=(Action.ENQUEUE,),
        body_limit=_LARGE_BODY,
    ),
    _act(
        "DELETE",
        "/schedules/{id}",
        "opsScheduleDelete",
        "Unschedule",
        Action.SCHEDULE,
        ops.OpsNoteBody,
        ops.OpsUnscheduled,
        lambda ask: ask.surface.ops_schedule_delete(ask.caller, ask.id, ask.body),
        doing="unschedule",
    ),
    _act(
        "POST",
        "/schedules/preview",
        "opsSchedulePreview",
        "When a cron expression would run",
        Action.READ,
        ops.OpsSchedulePreviewBody,
        ops.OpsSchedulePreview,
        lambda ask: ask.surface.ops_schedule_preview(ask.caller, ask.body),
        only_looks=True,
    ),
)

_EXPORT = Route(
    method="GET",
    path=f"{OPS}/audit/export",
    needs=Action.AUDIT,
    operation="opsAuditExport",
    summary="The trail as JSON lines, up to 10,000 of the newest entries",
    handler=_export,
    query=ops.OpsAuditFilter,
    media_type=_JSON_LINES,
)

_COPYING = (
    _act(
        "POST",
        "/copy-as",
        "opsCopyAs",
        "Requests as commands, as Python and as curl",
        Action.READ,
        ops.OpsCopyBody,
        ops.OpsWays,
        lambda ask: ask.surface.ops_copy_as(ask.caller, ask.body),
        only_looks=True,
    ),
)

OPS_ROUTES = (DOCUMENT, *_LOOKING, *_JOBS, *_QUEUES, *_FAILURES, *_SCHEDULES, *_COPYING, _EXPORT)
